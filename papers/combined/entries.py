"""Bounds on the gain of guessed page-table entries, hashed or radix, and of more walkers."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, TABLES, Compared, numbers, speedups

WALKERS = (4, 16)
KINDS = {
    **{table: table for table in TABLES},
    "Guess Radix": "Radix guessing data",
    "Revelator": "Radix guessing data and entries",
    "Guess ECPT": "ECPT guessing data",
}
PERFECT = {"engine": {"perfect": {"what": "entries"}}}


class Entries(Figure):
    title = "The most that guesses of page-table entries could gain, and more walkers"
    place = "native, 4 KB pages"
    about = (
        "'Entries known': an engine that is always right has the line of the entry fetched as soon "
        "as the TLBs have missed, before a walker is free. 'Guessing' is as in the figure before, "
        "without pressure."
    )
    timing = True
    panels = (Panel(Bars("speedup over radix with 4 walkers")),)

    def _designs(self, paper: Paper) -> dict[str, Design]:
        found = {}
        for base, words in KINDS.items():
            for walkers in WALKERS:
                name = f"{words}, {walkers} walkers"
                # The machine has as many.
                changes = {"mmu.walkers": walkers} if walkers != WALKERS[0] else {}
                found[name] = paper.designs[base].changed(name, changes)
                if base in TABLES:
                    known = f"{name}, entries known"
                    found[known] = found[name].changed(known, PERFECT)
        return found

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, self._designs(paper).values(), timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        names = {name: name for name in self._designs(paper)}
        found = Compared(self.runs(paper), results, f"Radix, {WALKERS[0]} walkers")
        return speedups(found, names) + numbers(found, names)
