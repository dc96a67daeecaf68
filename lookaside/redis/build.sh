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

"$root/scripts/debian_source.sh" "$folder" redis
cargo build --quiet --release --locked --manifest-path "$root/Cargo.toml" -p lookaside

src=$folder/redis/src
wrapped=(dictFind dictUnlink dictDelete dictEmpty dictRelease dictScan emptyDbAsync)
flags=("${wrapped[@]/#/-Wl,--wrap=}")
exec >"$folder/build.log" 2>&1
# Its Makefile builds everything anew when flags change: libraries first, for their headers.
make -C "$folder/redis/deps" -j2 hiredis linenoise lua hdr_histogram jemalloc
# Debian's patch takes an undefined macro for "yes", the system's jemalloc.
jemalloc=(-DUSE_JEMALLOC -DUSE_SYSTEM_JEMALLOC=0x1)
"${CC:-cc}" -O2 -g -std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror "${jemalloc[@]}" \
    -I"$root/lookaside/include" -isystem "$src" -isystem "$folder/redis/deps/jemalloc/include" \
    -isystem "$folder/redis/deps/lua/src" -isystem "$folder/redis/deps/hdr_histogram" \
    -c "$here/lookaside_redis.c" -o "$folder/lookaside_redis.o"
make=(make -C "$src" -j2 MALLOC=jemalloc REDIS_CFLAGS="${jemalloc[*]}" REDIS_LDFLAGS=)
# The other programs have no server, which lookaside_redis.o refers to. Make does not link them again.
"${make[@]}" redis-cli redis-benchmark
# shellcheck disable=SC2016  # for make
"${make[@]}" REDIS_LD='$(QUIET_LINK)$(CC) $(FINAL_LDFLAGS)'" ${flags[*]} $folder/lookaside_redis.o $target/release/liblookaside.a"
