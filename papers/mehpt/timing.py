"""Speedups from timed runs, for the figures that show them under several assumptions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from pagewalk.reproduce import Outcome, Row, Run, geometric

from .common import APPLICATIONS, FOUR_KB, TWO_MB, WAYS, way_statistic

WINDOW = 550e6
"""Instructions a thread (section VI)."""
GROWTH = {"": 1.8, "+THP": 1.6}
"""Upsizes of ME-HPT's ways in steady state (section VII-E1)."""

Cost = Callable[[Outcome, str], float]
"""Cycles that are added to the window, from a run and its design's name."""


def elapsed(outcome: Outcome, run: Run, cost: Cost) -> float | None:
    """Cycles of the paper's window at the measured speed, and what comes on top."""
    cycles, instructions = outcome.get("cycles"), outcome.get("instructions")
    if outcome.failed or not cycles or not instructions:
        return None
    window = WINDOW * run.program.threads
    return cycles * window / instructions + cost(outcome, run.design.label)


def nothing(_outcome: Outcome, _design: str) -> float:
    """The window as it is: no way grows in it."""
    return 0.0


def table_memory(outcome: Outcome, _design: str) -> float:
    """What page tables' blocks and moved entries cost while memory was populated."""
    return outcome.since_boot("os.populate_table_cycles") or 0.0


def populating(outcome: Outcome, _design: str) -> float:
    """All kernel time of populating memory: traps, zeroing, page tables."""
    return outcome.since_boot("os.populate_cycles") or 0.0


def growth(outcome: Outcome, design: str) -> float:
    """What the resizes cost that the paper observes in steady state.

    ECPT: its last upsize, which allocates all ways anew. ME-HPT: 1.8 upsizes of
    a way (1.6 with THP), each of which adds half of the final way in chunks.
    """
    if outcome.data is None or design.startswith("Radix"):
        return 0.0
    config = outcome.data["design"]["config"]
    table = max((FOUR_KB, TWO_MB), key=lambda t: sum(way_statistic(outcome, t, "bytes")))
    ways = way_statistic(outcome, table, "bytes")
    block = outcome.since_boot(f"{table}.largest_contiguous_bytes")
    if not ways or not block:
        return 0.0
    price = block_cycles(config, block)
    if design.startswith("ECPT"):
        return WAYS * price
    upsizes = GROWTH["+THP" if design.endswith("+THP") else ""]
    return upsizes * max(1.0, max(ways) / 2 / block) * price


def block_cycles(config: dict[str, object], size: float) -> float:
    """The price of a contiguous block at the index of the prices, as the engine has it.

    Log-log between the points, and along the last two beyond them.
    """
    prices = config["os"]["prices"]["allocation_ns"]  # type: ignore[index]
    points = [(math.log(b), math.log(ns)) for b, ns in prices]
    x = math.log(size)
    pairs = list(itertools.pairwise(points))
    (x0, y0), (x1, y1) = next((pair for pair in pairs if x <= pair[1][0]), pairs[-1])
    ns = math.exp(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return ns * float(config["frequency_ghz"])  # type: ignore[arg-type]


def speedups(
    found: dict[tuple[str, str], tuple[Run, Outcome]],
    designs: tuple[str, ...],
    cost: Cost,
    panel: str,
    base: str = "Radix",
) -> tuple[list[Row], dict[tuple[str, str], float | None]]:
    """A row an application and design, and the times behind them."""
    times = {key: elapsed(outcome, run, cost) for key, (run, outcome) in found.items()}
    rows = []
    for app in APPLICATIONS:
        for design in designs:
            mine, base_time = times[app, design], times[app, base]
            value = base_time / mine if mine and base_time else None
            why = found[app, design][1].why
            rows.append(Row(app, design, value, failed=why, panel=panel))
    for design in designs:
        ratios = [row.value for row in rows if row.series == design]
        rows.append(Row("GeoMean", design, geometric(ratios), panel=panel, average=True))
    return rows, times


def ratio(times: dict[tuple[str, str], float | None], slower: str, faster: str) -> float | None:
    """The geometric mean of one design's speedup over another."""
    return geometric(
        a / b if (a := times[app, slower]) and (b := times[app, faster]) else None
        for app in APPLICATIONS
    )
