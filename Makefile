# make demo    build, then compare six designs on a built-in program
# make test    set up and run every check and every test but the longest
# make test-long    run the longest tests, also under a newer QEMU and on SLURM
# make test-deps    bring the system packages that tests need, or name the command that does
# make bench   measure the simulator's own speed
# make redis-stlt    build Debian's redis-server with STLT, and check its answers (some minutes)
# make lookaside-redis-test    run Redis' own tests with lookaside (45 minutes)
# make linux-test    build User Mode Linux with hash placement, and run its tests (10 minutes)
# make linux-figures    measure hash placement in Linux, also in QEMU (45 minutes)
# make linux-figure11    compare figure 11 on Linux's placements with the model (2 hours, 14 GB of memory)
# make linux-smp    run the tests of hash placement with two processors in QEMU (25 minutes)
# make linux-churn    measure where pages lie after other activity (70 minutes)
# make rtl-test    compare the hardware with the simulator, and check it (10 minutes)
# make rtl    synthesise the hardware (40 minutes), with the cells of PAGEWALK_LIBERTY if it is set, and measure its power
# make lost-comparisons    look for bools that optimised code reads unset, a fault of rustc 1.95
# make msrv    compile with the minimum version of Rust (Cargo.toml's rust-version)
# make fuzz    fuzz the parsers and page tables, a minute for each target
# make lock    write constraints.txt anew: the newest version of every Python package
# make docs    write the generated reference pages and build the web site
# make wheel   the wheel for every Linux with glibc 2.28, in dist (URL=... for its links)
# make clean-roots    install the wheel in new Debian and Ubuntu systems, and use it there
# make types   generate Python's types of results from the engine's
# make build   the command line in .venv/bin/pagewalk, for everyday use
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:

CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
PYTHON_ENV := .venv/bin
# The Cargo profile of the engine in .venv: `dev-fast` builds quickly, `release` runs fastest,
# `ci` checks arithmetic and assertions.
PROFILE ?= dev-fast
PLUGIN := python/pagewalk/_data/libpagewalk_qemu.so
# Tests wait for processes that they start: one worker more than processors.
PYTEST := $(PYTHON_ENV)/pytest -n $(shell echo $$(($$(nproc) < 3 ? $$(nproc) + 1 : 4))) --dist worksteal

.PHONY: demo test test-long test-deps bench docs types build plugin native python-env test-env rust-env qemu \
	lint lint-rust lint-python lint-deps test-rust test-python redis-stlt lookaside-redis-test lost-comparisons out-of-tree msrv lock \
	linux-test linux-figures linux-figure11 linux-smp linux-churn rtl rtl-test rtl-env fuzz wheel clean-roots clean

demo: build
	$(PYTHON_ENV)/pagewalk compare --workload kv-dense --instructions 60M \
	    --designs radix,radix5,thp,thp-reservation,l2tlb-128k,perfect-tlb

build: qemu native

# The order puts what fails fastest first.
test: test-deps rust-env test-env lint test-rust test-python
	@$(PYTHON_ENV)/python scripts/slowest.py $(CARGO_TARGET_DIR)
	echo "make test: everything passed"

# The longest tests, those of a newer QEMU, which is built from Debian's source, and of SLURM.
test-long: test-deps native test-env
	@scripts/setup.sh qemu10 || true
	scripts/setup.sh slurm || true
	$(PYTEST) -m long

test-deps:
	@scripts/setup.sh test-deps

rust-env:
	@scripts/setup.sh rust

python-env:
	@scripts/setup.sh python run build

test-env: python-env
	@scripts/setup.sh python test

qemu:
	@scripts/setup.sh qemu

plugin: rust-env
	@cargo build --quiet --profile $(PROFILE) --locked -p pagewalk-qemu-plugin
	# Replaced, not overwritten: a running simulation may have it mapped.
	install -D -m 755 $(CARGO_TARGET_DIR)/$(PROFILE)/libpagewalk_qemu_plugin.so $(PLUGIN).new
	mv -f $(PLUGIN).new $(PLUGIN)

native: rust-env python-env plugin
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/.venv $(PYTHON_ENV)/maturin develop --quiet --profile $(PROFILE) --locked

lint: lint-python lint-rust lint-deps

lint-rust: rust-env
	@if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check
	else echo "SKIPPED: cargo fmt (component rustfmt is not installed)"; fi
	if cargo clippy --version >/dev/null 2>&1; then
	    cargo clippy --quiet --profile ci --workspace --all-targets --locked -- -D warnings
	else echo "SKIPPED: cargo clippy (component clippy is not installed)"; fi
	# A dependency of a crate here changes the lock files of the workspaces that use the crate.
	git ls-files '*Cargo.lock' | xargs -n 1 dirname | while read -r workspace; do
	    cargo metadata --locked --format-version 1 \
	        --manifest-path "$$workspace/Cargo.toml" >/dev/null; done

# Vulnerabilities come from a database on the network: the nightly workflow looks them up.
lint-deps: rust-env
	@if cargo deny --version >/dev/null 2>&1; then
	    cargo deny --locked --log-level error check licenses bans sources
	else echo "SKIPPED: cargo deny (cargo-deny is not installed: scripts/setup.sh cargo-deny)"; fi

# Times of single tests need unstable options of the test harness, which the environment allows
# to the test binaries alone.
test-rust: rust-env
	cargo test --quiet --profile ci --workspace --locked --no-run
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env RUSTC_BOOTSTRAP=1" \
	    cargo test --profile ci --workspace --locked --tests --no-fail-fast \
	    -- -Z unstable-options --report-time 2>&1 | tee $(CARGO_TARGET_DIR)/test-rust.log
	cargo test --quiet --profile ci --workspace --locked --doc

lint-python: test-env
	$(PYTHON_ENV)/ruff format --check python tests scripts validation papers linux rtl elastic lookaside
	$(PYTHON_ENV)/ruff check python tests scripts validation papers linux rtl elastic lookaside
	$(PYTHON_ENV)/mypy
	$(PYTHON_ENV)/python scripts/prose.py

test-python test-long: PROFILE := ci
test-python: native test-env
	$(PYTEST) --junit-xml $(CARGO_TARGET_DIR)/test-python.xml

linux-test:
	python3 linux/driver.py test

linux-figures:
	python3 linux/driver.py figures

linux-figure11: native
	$(PYTHON_ENV)/python linux/figure11.py

linux-smp:
	python3 linux/driver.py smp

linux-churn:
	python3 linux/driver.py churn

rtl-env: rust-env python-env
	@scripts/setup.sh rtl
	scripts/setup.sh python rtl

rtl-test: rtl-env
	cargo test --profile ci --locked -p pagewalk-rtl -- --include-ignored --skip write_headers
	$(PYTHON_ENV)/python rtl/hardware_tools.py lint
	$(PYTHON_ENV)/python rtl/hardware_tools.py formal

rtl: rtl-env
	$(PYTHON_ENV)/python rtl/hardware_tools.py synthesis
	$(PYTHON_ENV)/python rtl/hardware_tools.py power
	if [ -n "$${PAGEWALK_LIBERTY:-}" ]; then $(PYTHON_ENV)/python rtl/page.py; fi

redis-stlt: build test-env
	scripts/redis_stlt.sh $(CARGO_TARGET_DIR)/redis-stlt
	$(PYTHON_ENV)/pytest -m '' tests/test_redis_stlt.py

lookaside-redis-test: rust-env
	python3 lookaside/redis/test.py $(CARGO_TARGET_DIR)/lookaside-redis lookaside/redis/test-results.txt

# Some minutes: the engine is built once more, in the workspace of the example.
out-of-tree: PROFILE := ci
out-of-tree: native test-env
	$(PYTHON_ENV)/pytest -m '' tests/test_out_of_tree.py \
	    tests/test_documentation.py::test_the_page_table_of_the_worked_example_can_be_shipped

# Some minutes: everything is built once more, for what the compiler makes of it.
lost-comparisons: rust-env python-env
	$(PYTHON_ENV)/python scripts/lost_comparisons.py

msrv:
	@scripts/msrv.sh

fuzz:
	@scripts/fuzz.sh

lock: python-env
	@scripts/setup.sh python lock
	$(PYTHON_ENV)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --all-extras \
	    $(addprefix --group ,build test docs lock qemu release rtl) --no-annotate --no-header \
	    --output-file constraints.txt pyproject.toml

bench: build
	cargo bench --locked
	$(PYTHON_ENV)/python scripts/bench.py

docs: build
	@scripts/setup.sh python docs
	$(PYTHON_ENV)/python scripts/reference.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON_ENV)/mkdocs build --strict --quiet
	@echo "open site/index.html"

types: native test-env
	$(PYTHON_ENV)/python scripts/result_types.py

bench: PROFILE := release

# URL is the repository's web address, if it has one.
wheel: rust-env
	@scripts/setup.sh python run build release
	$(PYTHON_ENV)/python scripts/release.py --wheel $(if $(URL),--url '$(URL)')

# As root, for debootstrap: some minutes for each system.
clean-roots: wheel
	$(PYTHON_ENV)/python scripts/clean_root.py --all

clean:
	cargo clean
	rm -rf .venv site dist $(PLUGIN)
