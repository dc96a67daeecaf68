# make demo    build, then compare six designs on a built-in program
# make test    set up and run every check and every test
# make bench   measure the simulator's own speed
# make redis-stlt    build Debian's redis-server with STLT, and check its answers (some minutes)
# make lost-comparisons    look for bools that optimised code reads unset, a fault of rustc 1.95
# make docs    write the generated reference pages and build the web site
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

.PHONY: demo test bench docs types build plugin native python-env test-env rust-env qemu live-tools \
	lint-rust test-rust lint-python test-python redis-stlt lost-comparisons wheel clean

demo: build
	$(PYTHON_ENV)/pagewalk compare --workload kv-dense --instructions 60M \
	    --designs radix,radix5,thp,thp-reservation,l2tlb-128k,perfect-tlb

build: qemu native

# The order puts what fails fastest first.
test: rust-env test-env live-tools lint-python lint-rust test-rust test-python
	@echo "make test: everything passed"

rust-env:
	@scripts/setup.sh rust

python-env:
	@scripts/setup.sh python run build

test-env: python-env
	@scripts/setup.sh python test

qemu:
	@scripts/setup.sh qemu

live-tools: qemu
	@scripts/setup.sh live-tools

plugin: rust-env
	cargo build --quiet --profile $(PROFILE) --locked -p pagewalk-qemu-plugin
	# Replaced, not overwritten: a running simulation may have it mapped.
	install -D -m 755 $(CARGO_TARGET_DIR)/$(PROFILE)/libpagewalk_qemu_plugin.so $(PLUGIN).new
	mv -f $(PLUGIN).new $(PLUGIN)

native: rust-env python-env plugin
	PIP_QUIET=1 VIRTUAL_ENV=$(CURDIR)/.venv $(PYTHON_ENV)/maturin develop --quiet --profile $(PROFILE) --locked

lint-rust: rust-env
	if cargo fmt --version >/dev/null 2>&1; then cargo fmt --all --check
	else echo "SKIPPED: cargo fmt (component rustfmt is not installed)"; fi
	if cargo clippy --version >/dev/null 2>&1; then
	    cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
	else echo "SKIPPED: cargo clippy (component clippy is not installed)"; fi

test-rust: rust-env
	cargo test --locked

lint-python: test-env
	$(PYTHON_ENV)/ruff format --check python tests scripts validation papers
	$(PYTHON_ENV)/ruff check python tests scripts validation papers
	$(PYTHON_ENV)/mypy

test-python: native test-env
	$(PYTHON_ENV)/pytest -n auto --maxprocesses 4 --dist worksteal

redis-stlt: build test-env
	scripts/redis_stlt.sh $(CARGO_TARGET_DIR)/redis-stlt
	$(PYTHON_ENV)/pytest tests/test_redis_stlt.py

# Some minutes: everything is built once more, for what the compiler makes of it.
lost-comparisons: rust-env python-env
	$(PYTHON_ENV)/python scripts/lost_comparisons.py

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

wheel bench: PROFILE := release

wheel: rust-env python-env plugin
	$(PYTHON_ENV)/maturin build --release --locked --out dist

clean:
	cargo clean
	rm -rf .venv site dist $(PLUGIN)
