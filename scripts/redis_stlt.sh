#!/usr/bin/env bash
# Builds Debian's redis-server with STLT in front of its look-ups (validation/programs/redis_stlt.c)
# in FOLDER, from the source package that this system's own package sources name: apt compares
# what it gets with the archive's signed checksums. Nothing of the source is changed, and nothing
# of the system is but for packages that are missing.
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

# The system's lists name binary packages only: lists of source packages, in a place of our own.
if ! [ -d "$folder/redis" ]; then
    lists=$folder/apt
    mkdir -p "$lists/sources" "$lists/lists/partial" "$lists/cache/archives/partial"
    for file in /etc/apt/sources.list.d/*.sources; do
        [ -e "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" > "$lists/sources/${file##*/}"
    done
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null \
        | sed -n 's/^deb /deb-src /p' > "$lists/sources/system.list" || true
    apt=(apt-get -qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$lists/sources"
        -o "Dir::State::Lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=)
    # Some sources may be unreachable. The next command fails if Debian's source is.
    "${apt[@]}" update || true
    (cd "$folder" && "${apt[@]}" source --download-only redis) \
        || die "the source package redis is not to be had: apt said why"
    dpkg-source --no-check -x "$folder"/redis_*.dsc "$folder/redis.new" >/dev/null
    mv "$folder/redis.new" "$folder/redis"
fi
make -s -C "$root/validation/programs" redis_stlt "REDIS=$folder/redis" >"$folder/build.log" 2>&1 \
    || { tail -n 20 "$folder/build.log" >&2; die "see $folder/build.log"; }
# Replaced, not overwritten: it may be running.
cp "$folder/redis/src/redis-server" "$folder/redis-server.new"
mv -f "$folder/redis-server.new" "$folder/redis-server"
