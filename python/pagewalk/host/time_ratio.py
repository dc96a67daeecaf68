"""Validation by the clock: what huge pages gain here, and on a simulated machine.

Time without huge pages over time with them needs no hardware counter. Host frequency and machine
frequency cancel out in it.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import TYPE_CHECKING, Any, TextIO

from pagewalk.errors import Failure
from pagewalk.host import files, perf_counters, timing
from pagewalk.view.quantities import significant
from pagewalk.view.terminal import console, grid, line, numbers, words

if TYPE_CHECKING:
    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

LEVEL = 0.95
"""Least coverage of the interval on which a verdict rests."""
TOLERANCE = 1.2
"""Factor between two ratios that agree. Ours."""
ALIKE = 0.2
"""Difference of the shares of memory in huge pages up to which two runs compare. Ours."""
NEGLIGIBLE = 1.02
"""Ratio below which a gain or loss has no sign. Ours."""
SHORT = 0.05
"""CPU seconds below which a run is called short. Ours: some time slices."""

AGREES, SIZE, SIGN, WIDE, APART = (
    "agrees",
    "size differs",
    "sign differs",
    "interval too wide",
    "not comparable",
)
"""Verdicts, as the JSON has them."""


def designs_of(processor: perf_counters.Processor) -> list[str]:
    """The shipped designs without huge pages and with them, as this host translates.

    The mode of huge pages is the host's.
    """
    suffix = "-virtual" if processor.hypervisor else ""
    asked = "[placement.thp.mode=madvise]" if timing.mode() == "madvise" else ""
    return [f"radix{suffix}", f"thp{suffix}{asked}"]


def in_order(designs: Sequence[str]) -> list[str]:
    """The pair as it is simulated, the design with huge pages first.

    A live program reads the first design's mode of huge pages, and its allocator follows that.
    """
    return list(reversed(designs))


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a median, from order statistics."""

    middle: float
    low: float
    high: float
    coverage: float
    """Probability that such an interval contains the median, for any distribution."""


def interval(values: Sequence[float]) -> Interval:
    """The narrowest symmetric interval of order statistics that covers `LEVEL`, or the widest."""
    ordered, n = sorted(values), len(values)
    rank = max((k for k in range(1, n // 2 + 1) if coverage(n, k) >= LEVEL), default=1)
    low, high = ordered[rank - 1], ordered[n - rank]
    return Interval(statistics.median(ordered), low, high, coverage(n, rank))


def coverage(n: int, rank: int) -> float:
    """Probability that the median of a distribution is between two of n values.

    They are the values with this rank from below and from above. Each value is below the median
    with probability 1/2, so the number below it is binomial.
    """
    outside = 2 * sum(comb(n, below) for below in range(rank)) / (1 << n)
    return max(0.0, 1.0 - outside)


@dataclass(frozen=True)
class Simulated:
    """One of the two designs."""

    design: str
    cycles: float
    """Cycles that the cores were busy; those of the kernel included, as in CPU time."""
    instructions: float
    frequency_ghz: float | None
    huge: float
    """Share of the mapped memory in huge pages at the end."""

    @classmethod
    def of(cls, design: DesignResult) -> Simulated:
        """The numbers of a result."""
        busy = sum(
            one.value
            for one in design.statistics
            if one.path.startswith("core.") and one.path.endswith(".cycles") and one.name != "idle"
        )
        sizes = [design.get(f"mapped_{size}") or 0.0 for size in ("4kb", "2mb", "1gb")]
        return cls(
            design.name,
            busy or design["cycles"],
            design["instructions"],
            design.config.get("frequency_ghz"),
            sum(sizes[1:]) / (sum(sizes) or 1),
        )

    @property
    def seconds(self) -> float | None:
        """Time at the machine's frequency."""
        return self.cycles / (self.frequency_ghz * 1e9) if self.frequency_ghz else None


def simulated_ratio(small: Simulated, huge: Simulated) -> float:
    """Time without huge pages over time with them, for the same instructions."""
    return (small.cycles / small.instructions) / (huge.cycles / huge.instructions)


def verdict(measured: Interval, simulated: float) -> str:
    """The relation of a simulated ratio to the interval of the measured one."""
    if measured.coverage < LEVEL:
        return WIDE
    opposite = (measured.low > 1 > simulated) or (measured.high < 1 < simulated)
    if opposite and not (_is_negligible(measured.middle) and _is_negligible(simulated)):
        return SIGN
    least, most = simulated / TOLERANCE, simulated * TOLERANCE
    if least <= measured.low and measured.high <= most:
        return AGREES
    return SIZE if measured.high < least or most < measured.low else WIDE


def _is_negligible(ratio: float) -> bool:
    return 1 / NEGLIGIBLE < ratio < NEGLIGIBLE


@dataclass(frozen=True)
class Host:
    """Where and under which conditions was measured."""

    processor: perf_counters.Processor
    kernel: str
    huge_pages: str
    """The mode of transparent huge pages."""
    load: float
    """Runnable processes a core in the last minute, before the first run."""

    @classmethod
    def here(cls) -> Host:
        """The conditions now."""
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        processor = perf_counters.Processor.of_this_host()
        return cls(processor, platform.release(), timing.mode(), load)


@dataclass(frozen=True)
class Validation:
    """Measured times beside those of a simulation."""

    host: Host
    timing: timing.Timing
    ratio: Interval
    small: Simulated
    huge: Simulated
    verdict: str
    notes: list[str]
    result: Result

    @property
    def simulated(self) -> float:
        """The simulated ratio."""
        return simulated_ratio(self.small, self.huge)

    def rows(self) -> list[tuple[str, Interval, float | None]]:
        """Quantities with what is measured and simulated."""
        ratio = ("time with 4 KB : with 2 MB pages", self.ratio, self.simulated)
        each = [
            (
                f"CPU seconds, {pages} pages",
                interval([getattr(pair, kind) for pair in self.timing.pairs]),
                # A window of the run takes another time than the run.
                None if _is_window(self.result) else getattr(self, kind).seconds,
            )
            for kind, pages in (("small", "4 KB"), ("huge", "2 MB"))
        ]
        return [ratio, *each]

    @property
    def answer(self) -> str:
        """The verdict in a sentence for someone who has never read the statistics."""
        low, high = significant(self.ratio.low), significant(self.ratio.high)
        here, there = significant(self.ratio.middle), significant(self.simulated)
        if self.verdict == AGREES:
            return (
                "Yes, for what huge pages change: measured and simulated ratio agree within "
                f"{100 * (TOLERANCE - 1):.0f} % ({here} and {there})."
            )
        if self.verdict == SIGN:
            which = ("cost", "gain") if self.simulated > 1 else ("gain", "cost")
            return (
                f"No: on this host huge pages {which[0]} time (ratio {here}), and on the simulated "
                f"machine they {which[1]} time ({there})."
            )
        if self.verdict == SIZE:
            return (
                f"Only the sign: huge pages change the time by the ratio {here} on this host, and "
                f"{there} on the simulated machine."
                if (self.ratio.middle - 1) * (self.simulated - 1) > 0
                else f"No: the ratio is {here} on this host and {there} on the simulated machine."
            )
        if self.verdict == APART:
            return (
                "Not known: the program has "
                f"{_percent(self.timing.huge.share if self.timing.huge else 0)} of its memory in "
                f"huge pages on this host, and {_percent(self.huge.huge)} on the simulated "
                "machine, so the ratios compare different things."
            )
        if self.ratio.coverage < LEVEL:
            return (
                f"Not known: --runs {len(self.timing.pairs)} gives no interval of "
                f"{100 * LEVEL:.0f} %; take 6 or more."
            )
        return (
            f"Not known: the measured ratio is between {low} and {high}, which does not decide; "
            f"take more --runs than {len(self.timing.pairs)}, a longer run, or a time when the "
            "host is idle."
        )

    def to_json(self) -> str:
        """The comparison and the whole result of the simulation, as JSON."""
        return json.dumps({**self.summary(), "simulation": json.loads(self.result.to_json())},
                          indent=2, ensure_ascii=False)  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """The comparison alone."""
        return {
            "by": "clock",
            "host": asdict(self.host),
            "pairs": [{**asdict(pair), "ratio": pair.ratio} for pair in self.timing.pairs],
            "memory": {
                kind: asdict(seen) if (seen := getattr(self.timing, kind)) else None
                for kind in ("small", "huge")
            },
            "ratio": {**asdict(self.ratio), "simulated": self.simulated},
            "simulated": {
                kind: {**asdict(getattr(self, kind)), "seconds": getattr(self, kind).seconds}
                for kind in ("small", "huge")
            },
            "window": _is_window(self.result),
            "verdict": self.verdict,
            "answer": self.answer,
            "notes": self.notes,
        }

    def write_json(self, path: str) -> None:
        """Writes the JSON to a file atomically."""
        files.write(path, (self.to_json() + "\n").encode())


def compare(
    host: Host, timed: timing.Timing, result: Result, *, region: bool, at: int = 0
) -> Validation:
    """Puts the times beside a result, whose designs from `at` on are the pair of `in_order`.

    Raises `Failure` for a design that measured nothing.
    """
    pair = result.designs[at : at + 2]
    for design in pair:
        if not (design.get("instructions") and design.get("cycles")):
            why = design.message or (
                "the program ended before an instruction was measured; take less --skip or --warmup"
            )
            raise Failure(f"{design.name}: {why}")
    huge, small = map(Simulated.of, pair)
    ratio = interval([pair.ratio for pair in timed.pairs])
    found = verdict(ratio, simulated_ratio(small, huge))
    if timed.huge is not None and abs(timed.huge.share - huge.huge) > ALIKE:
        found = APART
    notes = _notes(host, timed, ratio, small, huge, _is_window(result), region=region)
    return Validation(host, timed, ratio, small, huge, found, notes, result)


def _is_window(result: Result) -> bool:
    """True if the simulation measured a part of what the clock measured."""
    limits = result.data["limits"]
    return any(limits.get(name) for name in ("skip", "warmup", "instructions", "sample"))


def _notes(
    host: Host,
    timed: timing.Timing,
    ratio: Interval,
    small: Simulated,
    huge: Simulated,
    window: bool,
    *,
    region: bool,
) -> list[str]:
    """Caveats of the numbers."""
    notes = [
        f"{len(timed.pairs)} pairs of runs; the interval of their median ratio covers it with "
        f"{100 * ratio.coverage:.1f} % (order statistics)"
    ]
    if host.load > 0.3:
        notes.append(
            f"{host.load:.1f} processes a core were runnable before the first run; they share "
            "caches and memory with the program"
        )
    if min(pair.huge for pair in timed.pairs) < SHORT:
        notes.append(f"runs take less than {SHORT} s of CPU time; longer ones are more certain")
    if timed.huge is None:
        notes.append("the runs were too short to see how much memory was in huge pages")
    else:
        notes.append(
            f"in huge pages were {_percent(timed.huge.share)} of the program's anonymous memory "
            f"here, and {_percent(huge.huge)} of its mapped memory with {huge.design}"
        )
        if timed.huge.share < huge.huge - ALIKE:
            notes.append(
                f"this host's mode of huge pages is {host.huge_pages}: memory for which glibc "
                "2.35, jemalloc or the program does not ask stays in 4 KB pages; as root: echo "
                f"always > {perf_counters.HUGE_PAGES}"
            )
    if timed.small is not None and timed.small.huge:
        notes.append("without huge pages, the program had some: it reserves its own")
    if ratio.low > 1 / 1.05 and ratio.high < 1.05:
        notes.append(
            "huge pages change less than 5 % here, so this program says little about translation"
        )
    if window:
        notes.append(
            "a part of the program was simulated, so ratios compare, and absolute times do not"
        )
    elif small.frequency_ghz:
        notes.append(
            f"simulated seconds are cycles at the machine's {significant(small.frequency_ghz)} GHz"
        )
    if host.processor.hypervisor:
        notes.append(
            "this is a virtual machine: which pages its host uses and how much of the L3 it has "
            "cannot be seen from inside; --design and --set say what is simulated"
        )
    if not region:
        notes.append(
            "the whole process is timed on both sides, with the loader and first touches; "
            "--roi takes the region between the marks of pagewalk.h"
        )
    return notes


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def show(validation: Validation, machine: str, stream: TextIO) -> None:
    """The report on the terminal."""
    out = console(stream)
    pair = f"{validation.small.design} and {validation.huge.design}"
    out.print(line(("measured   ", "dim"), f"{validation.host.processor.name}, by the clock"))
    out.print(line(("simulated  ", "dim"), f"{machine}, {pair}"))
    table = grid()
    words(table)
    numbers(table, "measured", "bold")
    numbers(table, "from")
    numbers(table, "to")
    numbers(table, "simulated", "bold")
    numbers(table, "simulated/measured")
    table.show_header = True
    for meaning, seen, simulated in validation.rows():
        ratio = None if simulated is None else simulated / seen.middle
        cells = (seen.middle, seen.low, seen.high, simulated, ratio)
        shown = ["–" if value is None else significant(value) for value in cells]
        table.add_row(meaning, *shown)
    out.print(table)
    out.print(line("Can this simulation be trusted for this program here?"))
    out.print(line((validation.answer, "bold")))
    for note in validation.notes:
        out.print(line(("note: ", "dim"), note))
