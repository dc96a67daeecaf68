"""Huge pages in fragmented memory over each page table, with and without guesses."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    DENIED,
    PRESSURES,
    SERVED,
    TABLES,
    Compared,
    fragmented,
    numbers,
    speedups,
)

KINDS = {
    "THP": "huge pages at the first touch",
    "khugepaged": "and by khugepaged, settled",
    "Reserve": "reservations by hash, data guessed ('all': entries, too)",
}
ALL = "Reserve all Radix"
"""The design that also guesses page-table entries."""
FULL = PRESSURES[-1]


class Huge(Figure):
    title = "Huge pages in fragmented memory"
    place = "native, 2 MB and 4 KB pages"
    about = (
        "So many per cent of the requests for 2 MB are served. "
        + "; ".join(f"{name}: {what}" for name, what in KINDS.items())
        + f". 'Full' denies {FULL} % of the frames and blocks to the hash beside."
    )
    timing = True
    panels = tuple(
        Panel(Bars("speedup over radix"), str(served), f"{served} % served") for served in SERVED
    )

    def _designs(self, paper: Paper, served: int) -> dict[str, Design]:
        found = {
            f"{kind} {table}": fragmented(paper, f"{kind} {table}", served)
            for kind in KINDS
            for table in TABLES
        }
        found[ALL] = fragmented(paper, ALL, served)
        if served == SERVED[-1]:
            for name in (*(f"Reserve {table}" for table in TABLES), ALL):
                few = found[name]
                found[f"{name}, full"] = few.changed(f"{few.label}, full", {DENIED: FULL / 100})
        return found

    def runs(self, paper: Paper) -> Runs:
        designs = [d for served in SERVED for d in self._designs(paper, served).values()]
        return paper.cross(APPLICATIONS, ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, "Radix")
        rows = []
        for served in SERVED:
            labels = {name: d.label for name, d in self._designs(paper, served).items()}
            rows += speedups(found, labels, str(served))
            rows += numbers(found, labels, f"numbers {served}")
        return rows
