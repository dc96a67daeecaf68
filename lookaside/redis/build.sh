#!/usr/bin/env bash
# Builds Debian's redis-server with lookaside (lookaside_redis.c) in FOLDER/redis/src, with the jemalloc
# of its source, which active defragmentation needs. No file of Redis is changed.
#
#   lookaside/redis/build.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

"$root/scripts/redis_source.sh" "$folder"
cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p lookaside

src=$folder/redis/src
wrapped=(dictFind dictUnlink dictDelete dictEmpty dictRelease dictScan emptyDbAsync)
flags=("${wrapped[@]/#/-Wl,--wrap=}")
exec >"$folder/build.log" 2>&1
# The first build makes the libraries of deps. The program alone is linked again.
make -C "$src" -j2 MALLOC=jemalloc
"${CC:-cc}" -O2 -g -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror -DUSE_JEMALLOC \
    -I"$root/lookaside/include" -isystem "$src" -isystem "$folder/redis/deps/jemalloc/include" \
    -isystem "$folder/redis/deps/lua/src" -isystem "$folder/redis/deps/hdr_histogram" \
    -c "$here/lookaside_redis.c" -o "$folder/lookaside_redis.o"
cp "$src/redis-server" "$folder/redis-server.base"
rm "$src/redis-server"
make -C "$src" redis-server MALLOC=jemalloc \
    REDIS_LDFLAGS="${flags[*]} $folder/lookaside_redis.o $target/release/liblookaside.a"
