#!/usr/bin/env bash
# Builds Debian's redis-server with STLT in front of its look-ups (validation/programs/redis_stlt.c)
# in FOLDER, from the source that scripts/debian_source.sh unpacks. Nothing of the source is changed,
# and nothing of the system is but for packages that are missing.
#
#   scripts/redis_stlt.sh FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)

die() { printf 'redis_stlt: %s\n' "$*" >&2; exit 1; }

missing=()
for need in gcc:/usr/bin/gcc make:/usr/bin/make dpkg-dev:/usr/bin/dpkg-source \
        libjemalloc-dev:/usr/include/jemalloc/jemalloc.h libxxhash-dev:/usr/include/xxhash.h; do
    [ -e "${need#*:}" ] || missing+=("${need%%:*}")
done
if [ ${#missing[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        || die "missing: ${missing[*]} (on Debian: apt-get install ${missing[*]})"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

"$root/scripts/debian_source.sh" "$folder" redis
make -s -C "$root/validation/programs" redis_stlt "REDIS=$folder/redis" >"$folder/build.log" 2>&1 \
    || { tail -n 20 "$folder/build.log" >&2; die "see $folder/build.log"; }
# Replaced, not overwritten: it may be running.
cp "$folder/redis/src/redis-server" "$folder/redis-server.new"
mv -f "$folder/redis-server.new" "$folder/redis-server"
