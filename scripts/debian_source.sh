#!/usr/bin/env bash
# Unpacks Debian's source of PACKAGE in FOLDER/PACKAGE, from the source package that this system's own
# package sources name: apt compares what it gets with the archive's signed checksums.
#
#   scripts/debian_source.sh FOLDER PACKAGE
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
package=$2

die() { printf 'debian_source: %s\n' "$*" >&2; exit 1; }

# The system's lists name binary packages only: lists of source packages, in a place of our own.
if ! [ -d "$folder/$package" ]; then
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
    (cd "$folder" && "${apt[@]}" source --download-only "$package") \
        || die "the source package $package is not to be had: apt said why"
    dpkg-source --no-check -x "$folder/$package"_*.dsc "$folder/$package.new" >/dev/null
    mv "$folder/$package.new" "$folder/$package"
fi
