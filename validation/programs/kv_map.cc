/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of the built-in program kv-map: std::map. */
#include <map>

#include "kv_requests.h"

int main(int argc, char **argv) {
    static std::map<std::string, std::string> map;
    return serve(map, argc, argv);
}
