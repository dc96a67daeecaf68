/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of the built-in program kv-flat: absl::flat_hash_map (libabsl-dev). */
#include <absl/container/flat_hash_map.h>

#include "kv_requests.h"

int main(int argc, char **argv) {
    static absl::flat_hash_map<std::string, std::string> map;
    return serve(map, argc, argv);
}
