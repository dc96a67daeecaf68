#!/usr/bin/env bash
# Makes ready what the Makefile's targets need: a virtual environment in .venv
# with the packages that pyproject.toml names, Rust's formatter and linter,
# QEMU's user-mode emulator, the programs that the tests run in it, and a browser.
# System packages are installed by root on Debian only, and named before that; elsewhere the
# command that brings them is printed. Fails only without what nothing works without.
#
#   scripts/setup.sh python [GROUP...] | rust | cargo-deny | qemu
#   scripts/setup.sh test-deps    system packages that tests need
#   scripts/setup.sh rtl     verilator, iverilog and opensta, for the hardware in rtl/
#   scripts/setup.sh slurm   installs slurm-wlm and munge, for the tests of a SLURM cluster
#   scripts/setup.sh qemu10  builds QEMU 10 with plugins from Debian's source, some minutes
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing $* with apt-get"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null 2>&1 && return 0
    # An image that was never updated knows no packages.
    apt-get update -qq >/dev/null 2>&1 || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

# Into .venv, at the versions of constraints.txt. uv resolves in seconds where pip takes a minute.
install_packages() {
    local pip=(.venv/bin/pip install -q --disable-pip-version-check -c constraints.txt)
    if [ -x .venv/bin/uv ] || "${pip[@]}" --only-binary :all: uv 2>/dev/null; then
        VIRTUAL_ENV=$PWD/.venv .venv/bin/uv pip install -q -c constraints.txt "$@" && return
        say "uv could not install the packages; pip tries"
    fi
    "${pip[@]}" "$@"
}

python_environment() {
    local python=${PYTHON:-python3}
    if ! command -v "$python" >/dev/null; then
        [ "$python" = python3 ] && apt_install python3 python3-venv \
            || die "no $python found: install Python 3.10 or newer"
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
        || die "$($python --version) is too old: install Python 3.10 or newer, or set PYTHON to one"
    if ! [ -x .venv/bin/pip ]; then
        rm -rf .venv
        if ! "$python" -m venv .venv >/dev/null 2>&1; then
            rm -rf .venv
            apt_install python3-venv || die "Python's venv module is missing: install python3-venv"
            "$python" -m venv .venv
        fi
    fi
    # A group is installed again when its requirements have changed.
    local stamp=.venv/setup.stamp want
    want=$(cat pyproject.toml constraints.txt | sha256sum | cut -c1-64)
    for group in "$@"; do
        grep -qsx "$group $want" "$stamp" && continue
        say "installing Python packages ($group)"
        .venv/bin/python - "$group" <<'PY' > .venv/requirements.txt
import sys
try:
    import tomllib
except ModuleNotFoundError:
    from pip._vendor import tomli as tomllib
project = tomllib.load(open("pyproject.toml", "rb"))
group = sys.argv[1]
print("\n".join(project["project"]["dependencies"] if group == "run" else project["dependency-groups"][group]))
PY
        install_packages -r .venv/requirements.txt
        printf '%s %s\n' "$group" "$want" >> "$stamp"
    done
}

rust_toolchain() {
    command -v cargo >/dev/null || die "no cargo found: install Rust from https://rustup.rs"
    local need have pinned=${RUSTUP_TOOLCHAIN:-}
    # A distribution's cargo does not read rust-toolchain.toml, and needs only the minimum version.
    if [ -z "$pinned" ] && command -v rustup >/dev/null; then
        pinned=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
        if ! rustup toolchain list | grep -q "^$pinned-"; then
            say "installing Rust $pinned, which rust-toolchain.toml names"
            RUST_BACKTRACE=0 rustup toolchain install "$pinned" --profile minimal -c rustfmt -c clippy --no-self-update >&2 \
                || die "rustup cannot install Rust $pinned: connect to the network once, or set" \
                    "RUSTUP_TOOLCHAIN=stable to build with the installed toolchain"
        fi
    fi
    need=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$need" "${have%%-*}" | sort -V | head -n1)" = "$need" ] \
        || die "rustc $have is too old: version $need or newer is needed (rustup update stable)"
    command -v cc >/dev/null || apt_install gcc libc6-dev || die "no C compiler found: install gcc"
    for part in rustfmt clippy; do
        case $part in rustfmt) probe='cargo fmt --version' ;; clippy) probe='cargo clippy --version' ;; esac
        $probe >/dev/null 2>&1 && continue
        rustup component add "$part" >/dev/null 2>&1 || say "WARNING: no $part here; its checks are skipped"
    done
}

# cargo-deny, for `make lint-deps`. An optimised build takes minutes, and checks no faster.
cargo_deny() {
    local version=0.20.2
    [ "$(cargo deny --version 2>/dev/null)" = "cargo-deny $version" ] && return
    say "compiling cargo-deny, once"
    cargo install -q cargo-deny --version "$version" --locked --profile dev --config profile.dev.debug=false \
        || die "cargo-deny could not be installed"
}

# Prints the reason if live programs cannot run here, as crates/live/src/locate.rs does.
qemu_problem() {
    local qemu=${PAGEWALK_QEMU:-qemu-x86_64} version
    command -v "$qemu" >/dev/null || { echo "$qemu is not installed"; return; }
    version=$("$qemu" --version 2>/dev/null | sed -n 's/.* version \([0-9]*\.[0-9]*\).*/\1/p' | head -n1)
    case $version in
        7.[01] | [0-6].* | 1[1-9].* | [2-9][0-9]*.*)
            echo "$qemu is version $version; 7.2 to 10.x is needed"
            return ;;
    esac
    "$qemu" --help 2>/dev/null | grep -q -e -plugin \
        || echo "$qemu was built without plugins, as Debian 13's is (scripts/setup.sh qemu10 builds one with them)"
}

qemu_user() {
    [ -n "${PAGEWALK_QEMU:-}" ] || command -v qemu-x86_64 >/dev/null || apt_install qemu-user || true
    local problem
    problem=$(qemu_problem)
    [ -z "$problem" ] || say "WARNING: $problem, so programs of your own cannot run (on Debian 12: apt-get install qemu-user; on Debian 13: scripts/setup.sh qemu10; elsewhere: docs/how-to/install.md)"
}

# QEMU 10 with plugins, beside the installed one: Debian 13's binary is static and loads none,
# so it is built from Debian's source, only the emulator of x86-64 programs. It stays in the
# cache; tests/live.py finds it there.
qemu10() {
    local into=${XDG_CACHE_HOME:-$HOME/.cache}/pagewalk/qemu10 constraints=$PWD/constraints.txt site work options
    [ -x "$into/qemu-x86_64" ] && return
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg
    command -v apt-get >/dev/null && [ -e "$keys" ] || { say "no QEMU 10: its source comes with Debian's apt-get"; return 1; }
    site=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null \
        | sed -n '/security/d; s/^[a-z-]* \(.*\/debian\/*\)$/\1/p' | head -n1)
    [ -n "$site" ] || { say "no QEMU 10: apt-get knows no archive of Debian"; return 1; }
    for pair in ninja:ninja-build pkg-config:pkg-config xz:xz-utils; do
        command -v "${pair%:*}" >/dev/null || apt_install "${pair#*:}" || return 1
    done
    pkg-config --exists glib-2.0 gmodule-export-2.0 || apt_install libglib2.0-dev || return 1
    say "building QEMU 10 with plugins, once"
    work=$(mktemp -d)
    mkdir -p "$work/lists/partial" "$work/source"
    echo "deb-src [signed-by=$keys] $site trixie main" > "$work/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o APT::Sandbox::User=root)
    if (cd "$work" && apt-get "${options[@]}" update && apt-get "${options[@]}" source --download-only qemu \
        && tar xf qemu_10.*.orig.tar.xz -C source --strip-components=1 \
        && "${PYTHON:-python3}" -m venv venv && venv/bin/pip install -q -c "$constraints" meson pycotap \
        && mkdir build && cd build \
        && PATH=$work/venv/bin:$PATH ../source/configure --python="$work/venv/bin/python" \
            --target-list=x86_64-linux-user --without-default-features --enable-plugins --enable-attr \
            --disable-system --disable-tools --disable-docs --disable-werror --disable-install-blobs \
        && ninja qemu-x86_64 && strip qemu-x86_64) >"$work/log" 2>&1
    then
        install -D -m 755 "$work/build/qemu-x86_64" "$into/qemu-x86_64.new"
        mv -f "$into/qemu-x86_64.new" "$into/qemu-x86_64"
        rm -rf "$work"
    else
        say "no QEMU 10: it could not be built; $work/log says why"
        return 1
    fi
}

# Programs and headers that tests use, each with its Debian package.
TEST_PROGRAMS=(cc:gcc g++:g++ make:make qemu-x86_64:qemu-user redis-server:redis-server
    redis-benchmark:redis-tools sqlite3:sqlite3 chromium:chromium)
TEST_HEADERS=(xxhash.h:libxxhash-dev sparsehash/dense_hash_map:libsparsehash-dev
    absl/container/btree_map.h:libabsl-dev)

# Debian packages of the programs and headers that are not there.
missing_for_tests() {
    local pair
    for pair in "${TEST_PROGRAMS[@]}"; do
        [ "${pair%:*}" = qemu-x86_64 ] && [ -n "${PAGEWALK_QEMU:-}" ] && continue
        command -v "${pair%:*}" >/dev/null || echo "${pair#*:}"
    done
    for pair in "${TEST_HEADERS[@]}"; do
        [ -e "/usr/include/${pair%:*}" ] || echo "${pair#*:}"
    done
}

# Tests start the servers themselves. Debian's packages ask policy-rc.d before they start one.
install_stopped() {
    local policy=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ -d "${policy%/*}" ] && ! [ -e "$policy" ]; then
        trap 'rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod 755 "$policy"
    fi
    apt_install "$@" || return 1
    # Nor does the server start with the host.
    [[ " $* " != *" redis-server "* ]] || update-rc.d redis-server disable >/dev/null 2>&1 || true
}

# SLURM for tests/test_slurm.py, which starts and ends the daemons itself.
slurm() {
    command -v slurmctld >/dev/null && command -v munged >/dev/null && return
    install_stopped slurm-wlm munge \
        || { say "tests of SLURM are SKIPPED (on Debian, as root: apt-get install slurm-wlm munge)"; return 1; }
}

# Tools of rtl/ that are no Python packages, each with its Debian package.
rtl_tools() {
    local pair missing=()
    for pair in cc:gcc g++:g++ verilator:verilator iverilog:iverilog sta:opensta; do
        command -v "${pair%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ "${#missing[@]}" = 0 ] && return
    apt_install --no-install-recommends "${missing[@]}" \
        || say "what needs these packages is SKIPPED: ${missing[*]} (on Debian, as root: apt-get install ${missing[*]})"
}

# With PAGEWALK_REQUIRE_LIVE a missing package is an error, as a skipped test then is.
test_deps() {
    local missing problem
    mapfile -t missing < <(missing_for_tests)
    [ "${#missing[@]}" = 0 ] || install_stopped "${missing[@]}" || true
    mapfile -t missing < <(missing_for_tests)
    if [ "${#missing[@]}" != 0 ]; then
        say "the tests that need these packages are SKIPPED: ${missing[*]}" \
            "(on Debian, as root: apt-get install ${missing[*]})"
    fi
    problem=$(qemu_problem)
    [ -z "$problem" ] || say "tests of live programs are SKIPPED: $problem"
    [ "${#missing[@]}$problem" != 0 ] || say "every system package that tests need is installed"
    [ -z "${PAGEWALK_REQUIRE_LIVE:-}" ] || [ "${#missing[@]}$problem" = 0 ] \
        || die "PAGEWALK_REQUIRE_LIVE is set, and test dependencies are missing"
}

what=$1
shift
case $what in
    python) python_environment "$@" ;;
    rust) rust_toolchain ;;
    cargo-deny) cargo_deny ;;
    qemu) qemu_user ;;
    test-deps) test_deps ;;
    qemu10) qemu10 ;;
    slurm) slurm ;;
    rtl) rtl_tools ;;
    *) die "unknown part '$what'" ;;
esac
