/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The counterpart of the built-in program kv-dense: google::dense_hash_map
 * (libsparsehash-dev), with the standard library's hash as the others have. */
#include <sparsehash/dense_hash_map>

#include "kv_requests.h"

int main(int argc, char **argv) {
    static google::dense_hash_map<std::string, std::string, std::hash<std::string>> map;
    map.set_empty_key(std::string());
#ifdef DELETES
    map.set_deleted_key("deleted");
#endif
    return serve(map, argc, argv);
}
