"""The micro-benchmarks on the simulated machine: the same operations, in cycles for one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pagewalk.calibrate.benchmarks import BASE, Benchmark, instructions, program
from pagewalk.errors import Failure

MEASURED = 20_000
"""Operations that are measured. Ours: beyond them, simulated times hardly change."""
MOST_WARMUP = 600_000
"""Most operations before them: two passes over the lines, where they may fit a cache.

The second pass finds what stays of the first, as on the host.
"""


def design_for(benchmark: Benchmark, *, hypervisor: bool) -> str:
    """The shipped design that translates as this host does.

    Page faults are those of the guest alone: its host has given it the memory before.
    """
    virtual = hypervisor and benchmark.kind != "touch"
    return ("thp" if benchmark.huge else "radix") + ("-virtual" if virtual else "")


def cycles(benchmark: Benchmark, machine: Path, design: str, *, most: int = MOST_WARMUP) -> float:
    """Cycles for an operation on the simulated machine."""
    import pagewalk

    touch = benchmark.kind == "touch"
    each = instructions(benchmark)
    lines = benchmark.bytes // 4096 * (1 if touch else benchmark.lines_per_page)
    warmup = 0 if touch else round(min(2 * lines + 1000, most) * each)
    measured = round((lines if touch else MEASURED) * each)
    mappings = [pagewalk.Mapping(BASE, benchmark.bytes, populate=not touch)]
    if benchmark.kind == "gather":
        mappings.append(pagewalk.Mapping(BASE + (1 << 40), 64 << 20, populate=True))
    result = pagewalk.run(
        design,
        machine=machine,
        workload=program(benchmark),
        mappings=mappings,
        warmup=warmup,
        instructions=measured,
        progress=False,
    )
    found = result.designs[0]
    if found.failed or not found["instructions"]:
        raise Failure(f"{design} on {machine}: the micro-benchmark was not simulated")
    return float(found["cycles"]) / float(found["instructions"]) * each


def all_cycles(
    benchmarks: Iterable[Benchmark], machine: Path, *, hypervisor: bool, jobs: int, most: int
) -> Iterator[float]:
    """Cycles of each benchmark, several at a time."""

    def one(benchmark: Benchmark) -> float:
        design = design_for(benchmark, hypervisor=hypervisor)
        return cycles(benchmark, machine, design, most=most)

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        yield from pool.map(one, benchmarks)
