/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of the built-in program kv-btree: absl::btree_map (libabsl-dev). */
#include <absl/container/btree_map.h>

#include "kv_requests.h"

int main(int argc, char **argv) {
    static absl::btree_map<std::string, std::string> map;
    return serve(map, argc, argv);
}
