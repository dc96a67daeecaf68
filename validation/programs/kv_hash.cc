/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of the built-in program kv-hash: std::unordered_map. */
#include <unordered_map>

#include "kv_requests.h"

int main(int argc, char **argv) {
    static std::unordered_map<std::string, std::string> map MAPS;
    return serve(map, argc, argv);
}
