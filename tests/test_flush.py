"""Flushes and non-temporal stores of live programs, of their recordings and of Python programs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import live
import pagewalk
from invoking import Cli

FOLDER = """
#include <immintrin.h>
#include <sys/mman.h>
#include "pagewalk.h"
"""

# One line in each page, so that no prefetcher brings the next one.
RELOAD = (
    FOLDER
    + r"""
#define LINE(i) (p + (i) * 4160L)
int main(void) {
    char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 1 << 20; i += 4096) p[i] = 1;
    long sum = 0;
    for (long i = 0; i < 100; i++) sum += *(volatile char *)LINE(i);
    pagewalk_roi_begin();
    for (int round = 0; round < 10; round++) {
        for (long i = 0; i < 100; i++) _mm_clflush(LINE(i));
        _mm_mfence();
        for (long i = 0; i < 100; i++) sum += *(volatile char *)LINE(i);
        _mm_mfence();
    }
    pagewalk_roi_end();
    return sum == 0;
}
"""
)

# The first round maps the pages and leaves no line in a cache.
STREAM = (
    FOLDER
    + r"""
#define BYTES (4L << 20)
static void fill(char *p) {
    __m128i v = _mm_set1_epi8(1);
    for (long i = 0; i < BYTES; i += 16) _mm_stream_si128((__m128i *)(p + i), v);
    _mm_sfence();
}
static void copy(char *to, const char *from) {
    for (long i = 0; i < BYTES; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
    _mm_sfence();
}
int main(int count, char **argument) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *p = mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *q = mmap(0, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    fill(p);
    fill(q);
    pagewalk_roi_begin();
    if (argument[1][0] == 'f') fill(p); else copy(p, q);
    pagewalk_roi_end();
    return 0;
}
"""
)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    def build(source: str) -> str:
        folder = tmp_path_factory.mktemp("flush")
        (folder / "program.c").write_text(source)
        command = ["cc", "-O2", "-I", pagewalk.get_include(), "program.c", "-o", "program"]
        subprocess.run(command, cwd=folder, check=True)
        return str(folder / "program")

    return build


def _sum(design: pagewalk.DesignResult, path: str, name: str) -> int:
    """The counter, of all channels of the memory."""
    found = [s.value for s in design.statistics if s.path.startswith(path) and s.name == name]
    assert found, (path, name)
    return int(sum(found))


@live.needs_qemu
@live.needs("cc")
def test_ten_rounds_of_flush_and_reload_of_100_lines_miss_1000_times(
    build: Callable[[str], str], cli: Cli, tmp_path: Path
) -> None:
    program = build(RELOAD)
    result = pagewalk.run(program=[program], roi=True)
    design = result.designs[0]
    assert _sum(design, "core.0.flush", "instructions") == 1000
    # The caches are empty where the measured part begins.
    assert _sum(design, "core.0.flush", "present") == 900
    assert _sum(design, "core.0.flush", "dropped_unknown") == 0
    # The loop itself stays in the cache; a few lines of stack and code are new.
    assert 1000 <= _sum(design, "core.0.l1d", "load_misses") <= 1010
    assert 1000 <= _sum(design, "dram", "reads") <= 1100
    assert not [w for w in result.warnings if "clflush" in w]

    trace = tmp_path / "reload.pwt"
    recorded = cli("record", "-o", trace, "--", program)
    assert recorded.returncode == 0, recorded.stderr
    again = pagewalk.run(trace=trace, roi=True).designs[0]
    assert again.get("cycles") == design.get("cycles")
    assert _sum(again, "core.0.flush", "present") == 900


@live.needs_qemu
@live.needs("cc")
def test_non_temporal_stores_read_nothing(build: Callable[[str], str]) -> None:
    program, lines = build(STREAM), (4 << 20) // 64
    for what, read in (("fill", 0), ("copy", lines)):
        design = pagewalk.run(program=[program, what], roi=True).designs[0]
        assert _sum(design, "core.0.write_combining", "stores") == 4 * lines
        assert _sum(design, "core.0.write_combining", "full") == lines
        assert _sum(design, "core.0.write_combining", "partial") == 0
        # Page tables are read, and prefetches go beyond the end.
        assert read <= _sum(design, "dram", "reads") <= read + lines // 50
        assert lines <= _sum(design, "dram", "writes") <= lines + lines // 50


def test_python_programs_flush_and_store_past_the_caches() -> None:
    at, lines = 0x10_0000_0000, 100
    address = at + 4160 * np.arange(lines, dtype=np.uint64)
    mapping = [pagewalk.Mapping(at, 1 << 20, populate=True)]

    def reload() -> Iterator[pagewalk.Block]:
        for _ in range(10):
            yield pagewalk.Block(address, flush=True)
            yield pagewalk.Block(address, flush=False, distance=1)

    design = pagewalk.run(workload=reload(), mappings=mapping).designs[0]
    assert _sum(design, "core.0.l1d", "load_misses") == 1000
    assert _sum(design, "core.0.flush", "instructions") == 1000

    def fill(past: bool) -> Iterator[pagewalk.Block]:
        whole = at + 16 * np.arange((1 << 20) // 16, dtype=np.uint64)
        yield pagewalk.Block(whole, store=True, size=16, non_temporal=past)

    ordinary, past = (
        pagewalk.run(workload=fill(p), mappings=mapping).designs[0] for p in (False, True)
    )
    of_a_megabyte = (1 << 20) // 64
    assert _sum(ordinary, "dram", "reads") >= of_a_megabyte
    assert _sum(past, "dram", "reads") < of_a_megabyte // 50
    assert _sum(past, "core.0.write_combining", "full") == of_a_megabyte

    for wrong, said in (
        (
            {"non_temporal": True},
            "non_temporal: an operation is a load, too; expected it of a store only",
        ),
        ({"flush": True, "store": True}, "flush: an operation is a store, too"),
        ({"flush": True, "prefetch": True}, "flush: an operation is a prefetch, too"),
    ):
        with pytest.raises(pagewalk.WorkloadError, match=said):
            pagewalk.run(workload=iter([pagewalk.Block(address, **wrong)]), mappings=mapping)
