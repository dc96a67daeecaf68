"""The micro-benchmarks: their sizes, and the same operations as a simulated program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pagewalk.engine_types import HostProcessor

if TYPE_CHECKING:
    import numpy as np

    from pagewalk.programs.generators import Block

Json = dict[str, Any]

PAGE, LINE = 4096, 64
PER_PAGE = 16
"""Lines of a page that local chases use: far enough apart for prefetchers of neighbouring lines."""
BASE = 0x2000_0000_0000
"""Address of the memory of a simulated benchmark."""
UNROLLED = 16
"""Operations of a round of a native loop; then a count and a branch follow."""
CODE = 0x40_1000


@dataclass(frozen=True)
class Benchmark:
    """A native loop and its simulated twin. `pagewalk_calibrate::Benchmark` has the same fields."""

    kind: str
    """add, chase, gather, read, words, copy or touch."""
    huge: bool = False
    bytes: int = 0
    lines_per_page: int = 64
    local: bool = False
    chains: int = 1

    def to_json(self) -> Json:
        """As the engine reads it."""
        return {
            "kind": self.kind,
            "huge": self.huge,
            "bytes": self.bytes,
            "lines_per_page": self.lines_per_page,
            "local": self.local,
            "chains": self.chains,
        }

    @property
    def footprint(self) -> int:
        """Bytes of the lines that it uses."""
        return self.bytes // PAGE * self.lines_per_page * LINE


def local(footprint: int, kind: str = "chase", chains: int = 1) -> Benchmark:
    """Dependent loads through so many bytes of lines, page after page: TLBs hardly matter."""
    pages = max(1, footprint // (LINE * PER_PAGE))
    return Benchmark(kind, True, pages * PAGE, PER_PAGE, local=True, chains=chains)


def of_pages(pages: int, chains: int = 1) -> Benchmark:
    """Dependent loads of one line in each of so many 4 KB pages."""
    return Benchmark("chase", False, pages * PAGE, 1, chains=chains)


def dense(bytes_: int, *, huge: bool) -> Benchmark:
    """Dependent loads of all lines of so many bytes, in random order."""
    return Benchmark("chase", huge, -(-bytes_ // PAGE) * PAGE)


@dataclass(frozen=True)
class Plan:
    """The benchmarks of a calibration, by the part that each plays."""

    add: Benchmark
    l1: list[Benchmark]
    l2: list[Benchmark]
    l3: list[Benchmark]
    """Footprints beyond the L2, up to twice the L3, in ascending order."""
    dram: Benchmark
    reaches_dram: bool
    """`dram`, `gather` and `chains` are so large that hardly a load finds its line in the L3."""
    gather: Benchmark
    chains: list[Benchmark]
    pages: list[Benchmark]
    """One line a page, in ascending order of pages."""
    lines: list[Benchmark]
    """For each of `pages`, as many lines without TLB misses."""
    walkers: Benchmark
    """Several chains through as many pages as one of `pages`."""
    dense: tuple[Benchmark, Benchmark]
    """All of a large footprint with 4 KB pages and with huge pages."""
    read: Benchmark
    words: Benchmark
    copy: Benchmark
    touch: tuple[Benchmark, Benchmark]

    def all(self) -> list[Benchmark]:
        """All of them, each once."""
        listed = [self.add, *self.l1, *self.l2, *self.l3, self.dram, self.gather]
        listed += [*self.chains, *self.pages, *self.lines, self.walkers, *self.dense]
        listed += [self.read, self.words, self.copy, *self.touch]
        return list(dict.fromkeys(listed))


_PAGES = (16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 128, 192, 256, 512)
_MORE_PAGES = (768, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 3072, 3584, 4096, 6144, 8192, 16384)
ASSUMED_KB = {1: 32, 2: 512, 3: 32768}
"""Sizes of caches where ``cpuid`` states none: those of the base machine."""


def plan(processor: HostProcessor, memory: int) -> Plan:
    """The benchmarks for a processor, which map at most so many bytes at a time."""
    sizes = {level: kb << 10 for level, kb in ASSUMED_KB.items()}
    sizes |= {cache["level"]: cache["size_kb"] << 10 for cache in processor["caches"]}
    l1, l2, l3 = (sizes[level] for level in (1, 2, 3))
    # Half of the memory is for huge pages. A local chase maps four times its footprint.
    most = memory // 2
    largest = min(3 * l3, most // (PAGE // (LINE * PER_PAGE)))
    big = min(8 * l3, 256 << 20, most)

    # Beyond the L2 the steps are fine, as other tenants may leave little of the L3.
    beyond = {int(share * l2) for share in (1.5, 1.75, 2, 2.5, 3, 4, 6)}
    beyond |= {int(share * l3) for share in (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.5, 2)}
    pages = [of_pages(n) for n in (*_PAGES, *_MORE_PAGES) if n * PAGE <= most]
    return Plan(
        add=Benchmark("add"),
        l1=[dense(int(share * l1), huge=True) for share in (0.25, 0.5, 0.75)],
        # Up to 64 pages, which any first-level TLB holds.
        l2=[dense(kb << 10, huge=True) for kb in (96, 128, 192, 256) if 2 * l1 < kb << 10 < l2],
        l3=[local(size) for size in sorted(beyond) if 1.5 * l2 <= size <= largest],
        dram=local(largest),
        reaches_dram=largest >= 2 * l3,
        gather=local(largest, "gather"),
        chains=[local(largest, chains=chains) for chains in (2, 4, 8, 12)],
        pages=pages,
        lines=[dense(one.footprint, huge=True) for one in pages],
        walkers=of_pages(4096, chains=12),
        dense=(dense(big, huge=False), dense(big, huge=True)),
        read=Benchmark("read", True, min(64 << 20, big)),
        words=Benchmark("words", True, min(64 << 20, big)),
        copy=Benchmark("copy", True, min(128 << 20, big)),
        touch=(Benchmark("touch", False, 8 << 20), Benchmark("touch", True, 16 << 20)),
    )


def order(benchmark: Benchmark, numpy: Any) -> np.ndarray[Any, Any]:
    """Byte offsets of the lines in the order of a chase; `chain::order` makes such orders, too."""
    draw = numpy.random.default_rng(1)
    pages, lines = benchmark.bytes // PAGE, benchmark.lines_per_page
    at = numpy.arange(pages, dtype=numpy.uint64)[:, None] * PAGE
    if lines == 1:
        table = at + at // PAGE % 64 * LINE
    else:
        group = 64 // lines
        first = numpy.arange(lines, dtype=numpy.uint64) * group
        table = at + (first + draw.integers(0, group, (pages, lines), dtype=numpy.uint64)) * LINE
    if benchmark.local:
        table = table[draw.permutation(pages)]
        # Lines of the lower and the upper half of a page in turn: no prefetcher finds a direction.
        low, high = table[:, : lines // 2], table[:, lines // 2 :]
        turns = [draw.permuted(half, axis=1) for half in (low, high)]
        found = numpy.stack(turns, axis=2).reshape(-1)
    else:
        found = draw.permutation(table.reshape(-1))
    shuffled: np.ndarray[Any, Any] = found
    return shuffled


def instructions(benchmark: Benchmark) -> float:
    """Instructions for an operation of a native loop: those of the loop itself, too."""
    loads, control = {
        "chase": (1, 2 / (UNROLLED * benchmark.chains)),
        "gather": (2, 3 / UNROLLED),
        "read": (1, 3 / UNROLLED),
        "words": (1, 3 / UNROLLED),
        "copy": (2, 4 / UNROLLED),
        # The compiler's loop: a store, an addition, a comparison and a branch.
        "touch": (1, 3),
    }[benchmark.kind]
    return loads + control


def program(benchmark: Benchmark) -> Iterator[Block]:
    """The operations of a native loop, as often as they are asked for."""
    import numpy

    from pagewalk.programs.generators import Block

    if benchmark.kind in ("read", "words", "copy", "touch"):
        yield from _stream(benchmark, numpy, Block)
        return
    lines = order(benchmark, numpy) + numpy.uint64(BASE)
    chains, gathered = benchmark.chains, benchmark.kind == "gather"
    length = len(lines) // chains
    # Chain c follows its own part of the order; the loads of all chains alternate.
    cycle = lines[: length * chains].reshape(chains, length).T.reshape(-1)
    block = 256 * UNROLLED * chains
    number = numpy.arange(block)
    gap = numpy.where(number % (UNROLLED * chains) == 0, 2, 0)
    pc = CODE + 4 * (number % (UNROLLED * chains))
    place, listed = 0, BASE + (1 << 40)
    while True:
        taken = numpy.arange(place, place + block) % len(cycle)
        if not gathered:
            yield Block(address=cycle[taken], distance=chains, gap=gap, pc=pc)
        else:
            both = numpy.empty(2 * block, numpy.uint64)
            both[0::2] = listed + numpy.arange(place, place + block, dtype=numpy.uint64) * 8
            both[1::2] = cycle[taken]
            yield Block(
                address=both,
                distance=numpy.tile([0, 1], block),
                gap=numpy.where(numpy.arange(2 * block) % (2 * UNROLLED) == 0, 3, 0),
                pc=CODE + 4 * (numpy.arange(2 * block) % (2 * UNROLLED)),
            )
        place += block


def _stream(benchmark: Benchmark, numpy: Any, block: type[Block]) -> Iterator[Block]:
    if benchmark.kind == "touch":
        pages = numpy.arange(benchmark.bytes // PAGE, dtype=numpy.uint64)
        yield block(address=pages * PAGE + BASE, store=True, gap=3)
        return
    half = benchmark.bytes // (2 if benchmark.kind == "copy" else 1)
    stride = 8 if benchmark.kind == "words" else LINE
    lines = numpy.arange(half // stride, dtype=numpy.uint64) * stride + BASE
    number = numpy.arange(len(lines))
    pc = CODE + 4 * (number % UNROLLED)
    first = number % UNROLLED == 0
    while True:
        if benchmark.kind != "copy":
            yield block(address=lines, gap=numpy.where(first, 3, 0), pc=pc)
        else:
            both = numpy.stack([lines, lines + numpy.uint64(half)], axis=1).reshape(-1)
            yield block(
                address=both,
                store=numpy.tile([False, True], len(lines)),
                gap=numpy.stack([numpy.where(first, 4, 0), 0 * number], axis=1).reshape(-1),
                pc=CODE + 4 * (numpy.arange(2 * len(lines)) % (2 * UNROLLED)),
            )
