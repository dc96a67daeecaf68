"""Page tables, memory pressures, statistics of a run and means that several figures use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pagewalk.reproduce import Design, Outcome, Paper, Row, Runs, geometric, mean
from pagewalk.reproduce.figure import Results

APPLICATIONS = ("BFS", "GUPS", "XSBench", "kmer")
TABLES = ("Radix", "ECPT", "ME-HPT")
PRESSURES = (0, 25, 50, 85)
"""Per cent of the frames that the hash may not take."""
SERVED = (90, 50, 10)
"""Per cent of the requests for 2 MB blocks that are served."""

DENIED = "placement.tiered_hash.denied"
FRAGMENTED = "os.fragmentation.served_2mb"
SERVED_GUEST = "virtual.fragmentation.served_2mb"

Value = Callable[[Outcome], float | None]


def ipc(outcome: Outcome) -> float | None:
    """Instructions a cycle; none of a run that came to an end."""
    return None if outcome.failed else outcome.get("ipc")


def mpki(outcome: Outcome) -> float | None:
    """Misses of the L2 TLB in a thousand instructions."""
    return None if outcome.failed else outcome.get("l2_tlb_mpki")


def walk(outcome: Outcome) -> float | None:
    """Mean cycles of a walk."""
    return None if outcome.failed else outcome.get("walk_cycles_mean")


def reads(outcome: Outcome) -> float | None:
    """Mean reads of page tables in a walk."""
    return None if outcome.failed else outcome.get("walk_reads_per_walk")


def dram(outcome: Outcome) -> float | None:
    """Lines that the DRAM reads and writes in a thousand instructions."""
    instructions = outcome.get("instructions")
    if outcome.failed or not instructions:
        return None
    lines, channel = 0.0, 0
    while (reads := outcome.get(f"dram.{channel}.reads")) is not None:
        lines += reads + (outcome.get(f"dram.{channel}.writes") or 0.0)
        channel += 1
    return 1000 * lines / instructions if channel else None


def energy(outcome: Outcome) -> float | None:
    """Nanojoules an instruction."""
    return None if outcome.failed else outcome.get("energy_per_instruction")


def misses(outcome: Outcome) -> float | None:
    """Misses of all TLBs: those that walk, and those that wait for another's walk."""
    walks, merged = outcome.get("core.0.mmu.walks"), outcome.get("core.0.mmu.walks_merged")
    return None if outcome.failed or walks is None or merged is None else walks + merged


def guesses(outcome: Outcome, name: str, *kinds: str) -> float | None:
    """Guesses of some kinds that were ``right`` or ``wrong``; none without an engine."""
    found = [outcome.get(f"core.0.mmu.engine.{kind}.{name}") for kind in kinds]
    known = [value for value in found if value is not None]
    return sum(known) if known and not outcome.failed else None


def right(outcome: Outcome) -> float | None:
    """Per cent of the misses whose data was guessed right."""
    found, all_of = guesses(outcome, "right", "data"), misses(outcome)
    return 100 * found / all_of if found is not None and all_of else None


def wrong(outcome: Outcome) -> float | None:
    """Wrong guesses, of data and entries, for each miss."""
    found, all_of = guesses(outcome, "wrong", "data", "entries", "steps"), misses(outcome)
    return found / all_of if found is not None and all_of else None


@dataclass(frozen=True)
class Compared:
    """Designs on the programs, each over the base of the same program."""

    runs: Runs
    results: Results
    base: str

    def outcome(self, app: str, design: str) -> Outcome:
        """The outcome of an application's run with a design."""
        return self.results(self.runs[app, design])

    def ratio(self, app: str, design: str, read: Value) -> float | None:
        """A design's number over the base's."""
        own, other = read(self.outcome(app, design)), read(self.outcome(app, self.base))
        return own / other if own is not None and other else None

    def means(self, design: str, read: Value) -> float | None:
        """The geometric mean of the ratios."""
        ratios = [self.ratio(app, design, read) for app in APPLICATIONS]
        return None if None in ratios else geometric(ratios)

    def mean(self, design: str, read: Value) -> float | None:
        """The arithmetic mean of the numbers of the programs that have it."""
        return mean(read(self.outcome(app, design)) for app in APPLICATIONS)


def speedups(found: Compared, designs: Mapping[str, str], panel: str = "") -> list[Row]:
    """A row for each program and design, and of the geometric means.

    `designs` are by what they are called in the figure.
    """
    rows = [
        Row(
            app, name, found.ratio(app, design, ipc), panel=panel,
            failed=found.outcome(app, design).why,
        )
        for app in APPLICATIONS
        for name, design in designs.items()
    ]  # fmt: skip
    rows += [
        Row("GMean", name, found.means(design, ipc), average=True, panel=panel)
        for name, design in designs.items()
    ]
    return rows


def numbers(found: Compared, designs: Mapping[str, str], panel: str = "numbers") -> list[Row]:
    """A line a design: its means over the programs."""
    rows = []
    for name, design in designs.items():
        cells = (
            ("speedup", found.means(design, ipc), ""),
            ("L2 TLB MPKI", found.mean(design, mpki), ""),
            ("walk", found.mean(design, walk), "cycles"),
            ("reads", found.mean(design, reads), "a walk"),
            ("right", found.mean(design, right), "% of misses"),
            ("wrong", found.mean(design, wrong), "a miss"),
            ("DRAM lines", found.means(design, dram), "of the base's"),
            ("energy", found.means(design, energy), "of the base's"),
        )
        rows += [Row(name, column, value, unit=unit, panel=panel) for column, value, unit in cells]
    return rows


def pressed(paper: Paper, design: str, per_cent: int, key: str = DENIED) -> Design:
    """A design whose hash may not take that share of the frames."""
    return paper.designs[design].changed(f"{design}, {per_cent} %", {key: per_cent / 100})


def fragmented(paper: Paper, design: str, per_cent: int, *keys: str) -> Design:
    """A design in memory where that share of the requests for 2 MB is served."""
    changes = dict.fromkeys((FRAGMENTED, *keys), per_cent / 100)
    return paper.designs[design].changed(f"{design}, {per_cent} % served", changes)


def pressure_lines(table: list[Row], kinds: Iterable[str]) -> list[Row]:
    """Speedups of `kinds` over the pressure, from the rows of `numbers`."""
    return [
        Row(str(p), kind, row.value, panel="pressure")
        for kind in kinds
        for p in PRESSURES
        for row in table
        if (row.group, row.series) == (f"{kind}, {p} %", "speedup")
    ]
