"""Speedups from timed runs, for the figures that show them under several assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pagewalk.reproduce import Design, Outcome, Paper, Row, Runs, geometric
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, TIMED_FITTING, TIMED_VARIANTS

WINDOW = 550e6
"""Instructions a thread (section VI)."""
GROWING = ", growing"


@dataclass(frozen=True)
class Timed:
    """The outcomes of an application with a design.

    `window` is the program after all memory was populated. `growing` is the last three tenths of
    its initialisation, in which each page is touched in simulated time.
    """

    threads: int
    window: Outcome
    growing: Outcome | None = None

    @property
    def why(self) -> str:
        """The reason if there are no numbers; else empty."""
        return self.window.why or (self.growing.why if self.growing else "")


Timings = dict[tuple[str, str], Timed]
"""Timed outcomes by application and design."""
Cost = Callable[[Timed], tuple[float, float]]
"""Costs in the window beside the program: cycles, and instructions of the program's threads."""
Times = dict[tuple[str, str], float | None]
ALL_SIZES = (*APPLICATIONS, *TIMED_FITTING.values())


def runs(
    paper: Paper,
    designs: Iterable[str | Design],
    applications: Iterable[str] = APPLICATIONS,
    *,
    growing: bool = True,
) -> Runs:
    """Every application with every design, and its growth."""
    chosen, names = list(designs), list(applications)
    found = paper.cross(names, chosen, timing=True)
    if not growing:
        return found
    grown = paper.cross(names, chosen, growing=True)
    return found | Runs({(app, d + GROWING): run for (app, d), run in grown.items()})


def timings(runs: Runs, results: Results) -> Timings:
    """The outcomes of the runs, by application and design."""
    found = {key: (run, results(run)) for key, run in runs.items()}
    return {
        (app, design): Timed(
            run.program.threads, outcome, found.get((app, design + GROWING), (run, None))[1]
        )
        for (app, design), (run, outcome) in found.items()
        if not design.endswith(GROWING)
    }


def nothing(_timed: Timed) -> tuple[float, float]:
    """The window as it is: no way grows in it."""
    return 0.0, 0.0


def resizes(timed: Timed) -> tuple[float, float]:
    """Cycles for page tables' blocks and moved entries in the window in which they grow."""
    assert timed.growing is not None
    parts = ("os.table_allocation_cycles", "os.table_move_cycles")
    return sum(timed.growing.get(part) or 0.0 for part in parts), 0.0


def resizes_at(price_ns: float) -> Cost:
    """Cycles of resizes at another price of a moved entry; the shipped price is ours."""

    def cost(timed: Timed) -> tuple[float, float]:
        cycles, _ = resizes(timed)
        assert timed.growing is not None
        config = timed.growing.result.config
        cheaper = config["os"]["prices"]["moved_entry_ns"] - price_ns
        moved = timed.growing.get("os.table_entries_moved") or 0.0
        return cycles - moved * cheaper * config["frequency_ghz"], 0.0

    return cost


def growth(timed: Timed) -> tuple[float, float]:
    """Costs of that whole window: first touches with traps, zeroing, walks and resizes."""
    assert timed.growing is not None
    return timed.growing.get("cycles") or 0.0, timed.growing.get("instructions") or 0.0


def table_memory(timed: Timed) -> tuple[float, float]:
    """Cycles for page tables' blocks and moved entries while all memory was populated."""
    return timed.window.since_boot("os.populate_table_cycles") or 0.0, 0.0


def populating(timed: Timed) -> tuple[float, float]:
    """All kernel time of populating memory: traps, zeroing, page tables."""
    return timed.window.since_boot("os.populate_cycles") or 0.0, 0.0


def elapsed(timed: Timed, cost: Cost) -> float | None:
    """Cycles of the paper's window: the program at its measured speed, and what is beside it."""
    cycles, instructions = timed.window.get("cycles"), timed.window.get("instructions")
    if timed.why or not cycles or not instructions:
        return None
    beside, done = cost(timed)
    return cycles * (WINDOW * timed.threads - done) / instructions + beside


def speedups(
    found: Timings,
    designs: Iterable[str],
    cost: Cost,
    panel: str,
    base: str = "Radix",
    means: Mapping[str, float] | None = None,
) -> tuple[list[Row], Times]:
    """A row an application and design, and the times behind them; `means` are the paper's."""
    times = {key: elapsed(timed, cost) for key, timed in found.items()}
    chosen = list(designs)
    rows = []
    for app in APPLICATIONS:
        for design in chosen:
            mine, base_time = times[app, design], times[app, base]
            value = base_time / mine if mine and base_time else None
            why = found[app, design].why or found[app, base].why
            rows.append(Row(app, design, value, failed=why, panel=panel))
    for design in chosen:
        ratios = [row.value for row in rows if row.series == design]
        printed = (means or {}).get(design)
        place = "section VII-B" if printed else ""
        value = geometric(ratios)
        rows.append(Row("GeoMean", design, value, printed, "", place, panel=panel, average=True))
    return rows, times


def replaced(times: Times, instead: Mapping[str, str]) -> Times:
    """The times of the paper's applications, of which some have others in their place."""
    return {
        (app, design): times[instead.get(app, app), design]
        for app, design in times
        if app in APPLICATIONS and (instead.get(app, app), design) in times
    }


def known(times: Times, *designs: str) -> bool:
    """True if these designs were simulated with every application."""
    return all((app, design) in times for app in APPLICATIONS for design in designs)


def ratio(times: Times, slower: str, faster: str) -> float | None:
    """The geometric mean of one design's speedup over another."""
    return geometric(
        a / b if (a := times[app, slower]) and (b := times[app, faster]) else None
        for app in APPLICATIONS
    )


def ordered(times: Times, slower: str, faster: str, words: str, place: str) -> Row:
    """The number of applications with the second design at least as fast as the first."""
    pairs = [
        (a, b)
        for app in APPLICATIONS
        if (a := times[app, slower]) is not None and (b := times[app, faster]) is not None
    ]
    return Row(
        f"applications where {faster} is at least as fast as {slower}",
        words,
        float(sum(b <= a for a, b in pairs)) if pairs else None,
        unit=f"of {len(pairs)}",
        place=place,
        panel="text",
        average=True,
    )


Account = tuple[str, str, Cost]
"""Panel, title, and what is in the window beside the program."""
GROWING_WINDOW: tuple[Account, ...] = (
    ("window", "The program alone: what it initialises is populated before", nothing),
    ("resizes", "With what the tables' growth takes in the window", resizes),
    ("growth", "With the first touches that make the tables grow", growth),
)
# Section VII-B.
AVERAGES = (
    ("ECPT", "ME-HPT", 1.09),
    ("ECPT+THP", "ME-HPT+THP", 1.06),
    ("Radix", "ME-HPT", 1.23),
    ("Radix+THP", "ME-HPT+THP", 1.28),
    ("Radix", "ME-HPT+THP", 1.28),
)
# The speedups over radix without THP, which figure 9's bars are.
MEANS = {"ME-HPT": 1.23, "ME-HPT+THP": 1.28}
# Slower and faster.
ORDER = (
    ("ECPT", "ME-HPT", "section VII-B: in practically all the cases"),
    ("Radix", "ME-HPT", "figure 9"),
    ("Radix", "ECPT", "figure 9"),
    ("ECPT+THP", "ME-HPT+THP", "section VII-B: in practically all the cases"),
    ("Radix+THP", "ME-HPT+THP", "figure 9"),
)


def averages(times: Times, words: str) -> list[Row]:
    """The averages of section VII-B and the order of figure 9, for the designs that are there."""
    gains = [
        Row(
            f"{faster} over {slower}", words, ratio(times, slower, faster), printed, "",
            "section VII-B", panel="text", average=True,
        )
        for slower, faster, printed in AVERAGES
        if known(times, slower, faster)
    ]  # fmt: skip
    return gains + [
        ordered(times, slower, faster, words, place)
        for slower, faster, place in ORDER
        if known(times, slower, faster)
    ]


def accounted(
    found: Timings, designs: Iterable[str], accounts: Sequence[Account]
) -> tuple[list[Row], list[Row]]:
    """The bars of each account, and their averages with both sizes of data."""
    chosen = list(designs)
    bars: list[Row] = []
    means: list[Row] = []
    for panel, words, cost in accounts:
        rows, times = speedups(found, chosen, cost, panel, means=MEANS)
        bars += rows
        for variant, instead in TIMED_VARIANTS:
            means += averages(replaced(times, instead), words + variant)
    return bars, means


SHARED = " from L3 on"
BARE = " without walk caches"


def from_l3(design: Design) -> Design:
    """Page tables' lines in no private cache."""
    return design.changed(design.label + SHARED, {"caches": {"walks_enter": "l3"}})


def bare(design: Design) -> Design:
    """A walk reads all levels."""
    return design.changed(design.label + BARE, {"mmu.walk_caches.entries": 0})
