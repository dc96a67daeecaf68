#!/usr/bin/env bash
# Checks that the minimum version of Rust, `rust-version` in Cargo.toml, compiles the workspace:
# the engine, the bindings, the plugin, and their tests and benches.
#
#   scripts/msrv.sh
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'msrv: %s\n' "$*" >&2; exit 1; }

version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
[ -n "$version" ] || die "Cargo.toml has no line 'rust-version = \"…\"'"
case $version in *.*.*) ;; *) version=$version.0 ;; esac
command -v rustup >/dev/null || die "no rustup found: Rust $version is installed with it (https://rustup.rs)"
rustup toolchain list | grep -q "^$version-" \
    || rustup toolchain install "$version" --profile minimal --no-self-update \
    || die "rustup cannot install Rust $version: it needs the network once"

# A directory of its own: both compilers would rebuild everything in a common one.
target=${CARGO_TARGET_DIR:-$PWD/target}/msrv
CARGO_TARGET_DIR=$target cargo "+$version" check --quiet --workspace --all-targets --locked \
    || die "Rust $version does not compile the workspace: mend the code, or raise rust-version in Cargo.toml"
echo "msrv: Rust $version compiles the workspace with its tests and benches"
