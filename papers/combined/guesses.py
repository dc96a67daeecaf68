"""Guesses over each page table under memory pressure, native, with 4 KB pages."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Lines, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    PRESSURES,
    TABLES,
    Compared,
    numbers,
    pressed,
    pressure_lines,
    speedups,
)

KINDS = {
    **{f"{table}, data": f"Guess {table}" for table in TABLES},
    "Radix, data and entries": "Revelator",
}
"""Designs with guesses, by the page table and the guessed lines."""


def unguessed(paper: Paper, table: str) -> Design:
    """The design with pages placed by the hash and without an engine."""
    base = paper.designs[table]
    changes = {"placement": {"tiered_hash": {"contiguous_mb": 0 if table == "Radix" else 1024}}}
    return base.changed(f"{table}, placed", changes)


class Guesses(Figure):
    title = "Guesses over each page table under memory pressure"
    place = "native, 4 KB pages"
    about = (
        "Pressure is the share of the frames that the hash may not take. 'Placed' has pages where "
        "the hash says, and no engine."
    )
    timing = True
    panels = (
        Panel(Bars("speedup over radix"), "", "No pressure"),
        Panel(Lines("frames denied, %", "speedup over radix"), "pressure", "Mean of the programs"),
    )

    def _designs(self, paper: Paper) -> dict[str, Design]:
        found = {table: paper.designs[table] for table in TABLES}
        found |= {f"{table}, placed": unguessed(paper, table) for table in TABLES}
        for kind, base in KINDS.items():
            found |= {f"{kind}, {p} %": pressed(paper, base, p) for p in PRESSURES}
        return found

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, self._designs(paper).values(), timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, "Radix")
        labels = {name: design.label for name, design in self._designs(paper).items()}
        free = {name: label for name, label in labels.items() if not name.endswith(" %")}
        free |= {kind: labels[f"{kind}, 0 %"] for kind in KINDS}
        full = {kind: labels[f"{kind}, {PRESSURES[-1]} %"] for kind in KINDS}
        table = numbers(found, labels)
        return (
            speedups(found, free)
            + pressure_lines(table, KINDS)
            + speedups(found, full, "full")
            + table
        )
