#!/usr/bin/env bash
# Checks RocksDB's memtable with lookaside on Debian's librocksdb, and leaves the program in FOLDER: with
# arguments it measures (memtable_test.cc).
#
#   lookaside/rocksdb/test.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)

[ -e /usr/include/rocksdb/memtablerep.h ] || { echo "missing: librocksdb-dev" >&2; exit 1; }
"$root/scripts/debian_source.sh" "$folder" rocksdb
cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p lookaside
"${CXX:-c++}" -O2 -std=c++17 -Wall -Wextra -Werror -I"$root/lookaside/include" -I"$folder/rocksdb" \
    "$here/memtable_test.cc" -o "$folder/memtable_test" \
    "${CARGO_TARGET_DIR:-$root/target}/release/liblookaside.a" -lrocksdb -lpthread
TMPDIR=$folder "$folder/memtable_test"
echo "memtable_test: passed"
