#!/usr/bin/env bash
# Runs Redis' own tests on a server with lookaside, and writes what passed to a file: the table is small, so
# that rows replace one another, always on, and every hit is compared with the dictionary.
#
#   lookaside/redis/test.sh FOLDER RESULTS [OPTION OF runtest]...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
results=$(realpath -m "$2")
shift 2

"$here/build.sh" "$folder"
export LOOKASIDE_ROWS=4096 LOOKASIDE_AUTOMATIC=0 LOOKASIDE_CHECK=1
cd "$folder/redis"
if ./runtest --clients 4 "$@" </dev/null >"$folder/test.log" 2>&1; then verdict=passed; else verdict=failed; fi

plain() { sed 's/\x1b\[[0-9;]*m//g' "$1"; }
{
    echo "redis $(sed -n 's/#define REDIS_VERSION "\(.*\)"/\1/p' src/version.h) with lookaside: $verdict"
    echo "LOOKASIDE_ROWS=$LOOKASIDE_ROWS LOOKASIDE_AUTOMATIC=$LOOKASIDE_AUTOMATIC LOOKASIDE_CHECK=$LOOKASIDE_CHECK"
    echo "runtest --clients 4 $*"
    echo "passed tests: $(plain "$folder/test.log" | grep -c '^\[ok\]')"
    echo "failed tests: $(plain "$folder/test.log" | grep -c '^\[err\]\|^\[exception\]')"
    plain "$folder/test.log" | grep '^\[err\]\|^\[exception\]' || true
    plain "$folder/test.log" | grep -o '^\[[0-9]*/[0-9]* done\]: [^ ]*' | sed 's/.*: /unit: /' | sort
} >"$results"
echo "$verdict: $results"
[ "$verdict" = passed ]
