"""Software prefetches of live programs and of their recordings."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import live
import pagewalk
from invoking import Cli

pytestmark = [live.needs_qemu, live.needs("cc")]

# A chain of dependent loads of random pages, whose addresses are known ahead. The address of a
# prefetch depends on a load, a shift and sums in its block.
CHAIN = r"""
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "pagewalk.h"
#define PAGES 16384L
#define LOADS 5000L
int main(int count, char **argument) {
    char *p = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < PAGES; i++) p[i * 4096] = 0;
    uint32_t *at = malloc(4 * (LOADS + 64));
    uint64_t x = 88172645463325252ull;
    for (long i = 0; i < LOADS + 64; i++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        at[i] = x % PAGES;
    }
    long sum = 0, prefetches = atoi(argument[1]);
    pagewalk_roi_begin();
    for (long i = 0; i < LOADS; i++) {
        if (prefetches) __builtin_prefetch(p + (long)at[i + 16] * 4096);
        __asm__ volatile("" ::"r"(sum));
        sum += p[((at[i] + (sum & 1)) & (PAGES - 1)) * 4096];
    }
    pagewalk_roi_end();
    return sum;
}
"""

# Each prefetch computes its address by other instructions. Nothing has touched its line.
KINDS = r"""
#include <sys/mman.h>
#include "pagewalk.h"
int main(void) {
    char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < 1 << 20; i += 4096) p[i] = 1;
    char *none = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long n = 3, here = (long)p + 2048;
    pagewalk_roi_begin();
    __asm__ volatile(
        "mov %0, %%rax; prefetcht0 (%%rax)\n"
        "lea 4096(%%rax), %%rcx; prefetcht1 (%%rcx)\n"
        "add $8192, %%rax; prefetcht2 (%%rax)\n"
        "push %%rax; addq $4096, (%%rsp); pop %%rdx; prefetchnta (%%rdx)\n"
        "imul $4096, %1, %%r8; prefetchw 4096(%0, %%r8)\n"
        "movslq %%r8d, %%r9; shr $12, %%r9; inc %%r9; inc %%r9; shl $12, %%r9\n"
        "prefetcht0 (%0, %%r9)\n"
        "xor %%eax, %%eax; sub $-6, %%rax; prefetcht0 (%0, %%rax, 8)\n"
        "prefetcht0 (%2)\n"
        "movq %0, %%xmm0; movq %%xmm0, %%rax; prefetcht0 (%%rax)\n"
        ::"r"(here), "r"(n), "r"(none) : "rax", "rcx", "rdx", "r8", "r9", "xmm0", "memory", "cc");
    pagewalk_roi_end();
    return 0;
}
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def build(source: str) -> Path:
        folder = tmp_path_factory.mktemp("prefetch")
        (folder / "program.c").write_text(source)
        include = ["-I", pagewalk.get_include()]
        command = ["cc", "-O2", "-mno-red-zone", *include, "program.c", "-o", "program"]
        subprocess.run(command, cwd=folder, check=True)
        return folder / "program"

    return build


def _counts(design: pagewalk.DesignResult) -> dict[str, int]:
    path = "core.0.software_prefetch"
    return {s.name: s.value for s in design.statistics if s.path == path}


def test_prefetches_of_a_live_program_hide_its_misses(
    build: Callable[[str], Path], cli: Cli, tmp_path: Path
) -> None:
    program = str(build(CHAIN))
    runs = [pagewalk.run(program=[program, n], roi=True).designs[0] for n in "01"]
    without, with_ = (run.get("cycles") for run in runs)
    assert without is not None and with_ is not None
    # 11 times on an AMD Zen 3.
    assert with_ * 7 < without < with_ * 25
    counts = _counts(runs[1])
    assert counts["instructions"] == 5000
    assert counts["dropped_unknown"] == counts["dropped_faults"] == 0
    assert counts["requested"] > 4900

    trace = tmp_path / "chain.pwt"
    recorded = cli("record", "-o", trace, "--", program, "1")
    assert recorded.returncode == 0, recorded.stderr
    again = pagewalk.run(trace=trace, roi=True).designs[0]
    assert _counts(again) == counts
    assert again.get("cycles") == with_


def test_addresses_are_followed_through_the_instructions_of_a_block(
    build: Callable[[str], Path],
) -> None:
    design = pagewalk.run(program=[str(build(KINDS))], roi=True).designs[0]
    counts = _counts(design)
    assert counts["instructions"] == 9
    # The kernel would end the program at a load of that page.
    assert counts["dropped_faults"] == 1
    # Six lines that nothing has touched. The seventh prefetch names the first line again.
    assert counts["requested"] == 6
    # The last address comes from a vector register. Before 9.0, QEMU does not reveal it.
    assert counts["dropped_unknown"] + counts["present"] == 2


def test_prefetches_of_a_built_in_kernel_overlap_its_misses() -> None:
    """In a small window DLRM's kernel has few misses at a time, except with its prefetches."""

    def dlrm(**form: int | str) -> dict[str, float]:
        result = pagewalk.run(
            "radix",
            workload="dlrm",
            size="1GiB",
            params={"dim": 16, **form},
            settings={"core.rob": 64},
            warmup=0,
            requests=800,
            translation_cost=False,
            progress=False,
        )
        (design,) = result.designs
        names = ("cycles", "requests", "walks")
        found = {name: design.get(name) or 0.0 for name in names}
        found["prefetches"] = _counts(design).get("instructions", 0)
        # Lines from memory in a cycle: those under way at a time are as many times the latency.
        reads = sum(
            s.value for s in design.statistics if s.path[:5] == "dram." and s.name == "reads"
        )
        return found | {"rate": reads / found["cycles"], "reads": reads}

    plain = dlrm(prefetch=0)
    as_loads, hinted = (dlrm(prefetch_as=form) for form in ("load", "prefetcht0"))
    assert plain["requests"] == as_loads["requests"] == hinted["requests"] == 800
    assert plain["prefetches"] == as_loads["prefetches"] == 0 < hinted["prefetches"]
    assert hinted["reads"] == pytest.approx(plain["reads"], rel=0.1)
    assert hinted["rate"] > 1.7 * plain["rate"]
    assert hinted["cycles"] * 1.7 < plain["cycles"]
    # As loads they fill the window themselves.
    assert as_loads["cycles"] > plain["cycles"]
