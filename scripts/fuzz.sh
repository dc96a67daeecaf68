#!/usr/bin/env bash
# Fuzzes every target of every crate, each for a bounded time.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]    default: 60 seconds each, all targets
#
# Corpora stay in $PAGEWALK_FUZZ, by default ~/.cache/pagewalk/fuzz, so that each run continues
# the last one. A failing input is kept beside them; the exit status is then 1.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'fuzz: %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

seconds=${1:-60}
shift || true
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "'$seconds' is no number of seconds: expected scripts/fuzz.sh [SECONDS [TARGET...]]"
rustup toolchain list 2>/dev/null | grep -q ^nightly \
    || die "no nightly compiler here, which the sanitizer needs: rustup toolchain install nightly --profile minimal"
cargo +nightly fuzz --version >/dev/null 2>&1 || die "no cargo-fuzz here: cargo install cargo-fuzz --locked"

kept=${PAGEWALK_FUZZ:-${XDG_CACHE_HOME:-$HOME/.cache}/pagewalk/fuzz}
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
known=()
failed=()
for file in {crates/*,elastic}/fuzz/fuzz_targets/*.rs; do
    target=$(basename "$file" .rs)
    known+=("$target")
    [ $# = 0 ] || [[ " $* " == *" $target "* ]] || continue
    fuzz_dir=${file%/fuzz_targets/*}
    crate=$(basename "${fuzz_dir%/fuzz}")
    corpus=$kept/corpus/$crate/$target
    artifacts=$kept/artifacts/$crate/$target
    mkdir -p "$corpus" "$artifacts"
    options=(--fuzz-dir "$fuzz_dir" --target-dir "$target_dir")
    before=$(find "$corpus" -type f | wc -l)
    cargo +nightly fuzz build "${options[@]}" "$target" >&2 || die "$crate: target $target does not compile"
    say "$crate: $target, $seconds s from $before inputs"
    if ! cargo +nightly fuzz run "${options[@]}" "$target" "$corpus" -- -max_total_time="$seconds" \
        -timeout=60 -print_final_stats=1 -artifact_prefix="$artifacts/" >"$artifacts.log" 2>&1
    then
        tail -n 40 "$artifacts.log" >&2
        # libFuzzer names the input; a failure without one is named by its log.
        input=$(sed -n 's/.*Test unit written to //p' "$artifacts.log" | tail -n 1)
        failed+=("$crate: $target failed on ${input:-no input of its own, see $artifacts.log}
  reproduce: cargo +nightly fuzz run ${options[*]} $target ${input:-$corpus}")
        continue
    fi
    say "$(sed -n 's/^stat::number_of_executed_units: */executions: /p' "$artifacts.log")"
    after=$(find "$corpus" -type f | wc -l)
    # Minimisation runs every input again: it pays when many new ones say the same.
    if ((after * 10 > before * 11)); then
        cargo +nightly fuzz cmin "${options[@]}" "$target" "$corpus" >"$artifacts.log" 2>&1 \
            || { tail -n 20 "$artifacts.log" >&2; die "$crate: the corpus of $target could not be minimised"; }
        say "$crate: $target grew to $after inputs, $(find "$corpus" -type f | wc -l) after minimisation"
    fi
done

for name in "$@"; do
    [[ " ${known[*]} " == *" $name "* ]] || die "no target $name: there are ${known[*]}"
done
if ((${#failed[@]})); then
    printf 'fuzz: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "no failing input"
