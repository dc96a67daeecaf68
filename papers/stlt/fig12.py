"""Figure 12: misses of TLBs and caches that are saved on Redis."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, SCALED, Case, Found, runs
from .printed import CACHE_SAVED, TLB_SAVED, Said

SERIES = ("SLB", "STLT")
READ: dict[str, tuple[str, tuple[str, ...]]] = {
    "TLB": ("walks of the program", ("walks",)),
    "TLB, insertions too": (
        "walks, with those of insertions", ("walks", "core.0.mmu.stlt.walks"),
    ),
    "L1D": ("misses of the L1 data cache", ("l1d_misses",)),
    "DRAM": ("lines from DRAM, misses of the last cache", ("dram_reads",)),
}  # fmt: skip
SAID: dict[str, dict[str, Said]] = {
    "TLB": TLB_SAVED, "TLB, insertions too": TLB_SAVED, "L1D": CACHE_SAVED, "DRAM": CACHE_SAVED,
}  # fmt: skip


def cases() -> list[Case]:
    """Values of 128 bytes."""
    return [Case("Redis", table, name, 128) for name in DISTRIBUTIONS for table in SERIES]


def saved(found: Found, case: Case, kind: str) -> float | None:
    """Per cent fewer than without a table, a request."""
    if kind == "L1D":
        own, other = (
            _product(found.get(c, "l1d_mpki"), found.get(c, "instructions_per_request"))
            for c in (case, case.base)
        )
        return 100 * (1 - own / other) if own is not None and other else None
    return found.saved(case, *READ[kind][1])


def _product(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


class Figure12(Figure):
    title = "Misses saved on Redis, values of 128 bytes"
    place = "figure 12, section IV-B"
    about = (
        SCALED + "Misses a request. A miss of the TLBs is one that walks: what the STB serves is "
        "none. The paper does not say which cache it means: the first and the last are drawn."
    )
    timing = True
    panels = tuple(Panel(Bars("% saved"), kind, title) for kind, (title, _) in READ.items())

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, cases())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for kind in READ:
            for case in cases():
                rows.append(
                    Row(
                        case.distribution, case.table, saved(found, case, kind), unit="%",
                        panel=kind, failed=found.why(case),
                    )
                )  # fmt: skip
            for series in SERIES:
                values = [r.value for r in rows if (r.panel, r.series) == (kind, series)]
                rows.append(
                    SAID[kind][series].row(
                        "Mean", series, mean(values), "%", panel=kind, average=True, saved=True
                    )
                )
        return rows
