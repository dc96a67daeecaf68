"""Repeated string instructions of live programs: one instruction that moves through lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import live
import pagewalk
from invoking import Cli

pytestmark = [live.needs_qemu, live.needs("cc")]

PROGRAM = r"""
#include <stdlib.h>
#include <string.h>
#include "pagewalk.h"
static char from[4 << 20] __attribute__((aligned(4096)));
static char to[4 << 20] __attribute__((aligned(4096)));
static void *movs(void *d, const void *s, size_t n) {
    __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    return d;
}
static void stos(void *d, long v, size_t n) {
    __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(v) : "memory");
}
static size_t scas(const char *s, size_t n) {
    __asm__ volatile("repne scasb" : "+D"(s), "+c"(n) : "a"(0) : "memory", "cc");
    return n;
}
static size_t cmps(const char *a, const char *b, size_t n) {
    __asm__ volatile("repe cmpsb" : "+D"(a), "+S"(b), "+c"(n)::"memory", "cc");
    return n;
}
static void lods(const char *s, size_t n) {
    __asm__ volatile("rep lodsb" : "+S"(s), "+c"(n)::"memory", "rax");
}
int main(int count, char **argument) {
    memset(from, 1, sizeof from);
    memset(to, 2, sizeof to);
    long n = atol(argument[2]), times = atol(argument[3]);
    char kind = argument[1][0];
    size_t left = 0;
    for (int warm = 0; warm < 2; warm++) {
        if (warm) pagewalk_roi_begin();
        for (long i = 0; i < times; i++) {
            if (kind == 'm') movs(to + 3, from, n);
            if (kind == 'n') movs(to, from, n);
            if (kind == 's') stos(to, i, n / 8);
            if (kind == 'a') left += scas(from, n);
            if (kind == 'c') left += cmps(from, from + (1 << 20), n);
            if (kind == 'l') lods(from, n);
        }
        if (warm) pagewalk_roi_end();
    }
    if (kind == 'm' && memcmp(to + 3, from, n)) return 1;
    return left != 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strings")
    (folder / "program.c").write_text(PROGRAM)
    command = ["cc", "-O2", "-I", pagewalk.get_include(), "program.c", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def _run(
    program: Path, kind: str, n: int, times: int, settings: dict[str, int] | None = None
) -> dict[str, float]:
    command = [str(program), kind, str(n), str(times)]
    design = pagewalk.run(program=command, roi=True, settings=settings or {}).designs[0]
    counted = {s.name: s.value for s in design.statistics if s.path == "core.0"}
    # The loop and what it costs without the string instruction.
    return {name: counted[name] / times for name in ("instructions", "cycles", "loads", "stores")}


@pytest.mark.parametrize(
    ("kind", "loads", "stores", "cycles"),
    [
        # 4 KB: lines, and the start-up and cycles of each in `crates/trace/src/x86/repeat.rs`.
        ("m", 64, 65, 35 + 128),
        ("s", 0, 64, 35 + 128),
        ("a", 64, 0, 15 + 4096 * 5 / 2),
        ("c", 128, 0, 16 + 4096 * 10 / 3),
        ("l", 64, 0, 15 + 2 * 4096),
    ],
)
def test_a_string_instruction_is_one_instruction_a_line_at_a_time(
    program: Path, kind: str, loads: int, stores: int, cycles: float
) -> None:
    each = _run(program, kind, 4096, 200)
    assert each["instructions"] < 25
    assert loads <= each["loads"] <= loads + 6
    assert stores <= each["stores"] <= stores + 6
    assert cycles * 0.97 < each["cycles"] < cycles * 1.25 + 10


@pytest.mark.parametrize(("n", "native"), [(1024, 74), (8192, 314), (16384, 592)])
def test_copies_within_the_l1d_take_what_they_take_on_a_zen_4(
    program: Path, n: int, native: float
) -> None:
    # Measured on an EPYC of family 25, model 17, without the cycles of the measurement.
    assert 0.7 < _run(program, "n", n, 200)["cycles"] / native < 1.3


def test_copies_from_the_l2_are_bound_by_the_path_to_the_l1d(program: Path) -> None:
    settings = {"caches.l1d_fill_bytes": 32}
    cycles = _run(program, "n", 65536, 20, settings)["cycles"]
    # The same processor.
    assert 0.7 < cycles / 4144 < 1.3


def test_a_short_and_an_empty_one_cost_their_start(program: Path) -> None:
    assert _run(program, "m", 1, 200)["cycles"] < 60
    none = _run(program, "m", 0, 200)
    assert none["instructions"] < 25
    assert none["loads"] < 6


def test_a_long_one_is_recorded_and_replayed(program: Path, cli: Cli, tmp_path: Path) -> None:
    command = [str(program), "s", str(4 << 20), "2"]
    live_ = pagewalk.run(program=command, roi=True).designs[0]
    trace = tmp_path / "strings.pwt"
    done = cli("record", "-o", trace, "--", *command)
    assert done.returncode == 0, done.stderr
    again = pagewalk.run(trace=trace, roi=True).designs[0]
    assert again.get("cycles") == live_.get("cycles")
    # 2 MB at a time are an instruction of their own.
    assert (live_.get("instructions") or 0) < 60
    stores = {s.name: s.value for s in live_.statistics if s.path == "core.0"}["stores"]
    assert 2 * 65536 <= stores < 2 * 65536 + 50
