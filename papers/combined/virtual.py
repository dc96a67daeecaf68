"""Guesses and huge pages in virtual machines, over each pair of page tables."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Lines, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    PRESSURES,
    SERVED,
    SERVED_GUEST,
    TABLES,
    Compared,
    fragmented,
    numbers,
    pressed,
    pressure_lines,
    speedups,
)

HOST_DENIED = "virtual.placement.tiered_hash.denied"
GUESSED = {
    **{f"{table}, data": f"VM Guess {table}" for table in TABLES},
    "Radix, data and entries": "VM nested Radix",
    "ECPT over Radix, data and entries": "VM nested ECPT over Radix",
    "guest's THP, data": "VM guest THP, guess",
}
PLAIN = {
    **{table: f"VM {table}" for table in TABLES},
    "ECPT over Radix": "VM ECPT over Radix",
    "guest's THP": "VM guest THP",
    "ideal shadow paging": "VM shadow",
}


class Virtual(Figure):
    title = "Virtual machines"
    place = "guest and host, speedup over radix in both with 4 KB pages"
    about = (
        "The host places pages by hash; pressure is the share of its frames that the hash may not "
        "take. Huge pages are in guest and host, where so many per cent of the requests for 2 MB "
        "are served in each."
    )
    timing = True
    panels = (
        Panel(Bars("speedup"), "", "No pressure, 4 KB pages"),
        Panel(Lines("frames denied, %", "speedup"), "pressure", "Mean of the programs"),
        Panel(Bars("speedup"), "huge", "Huge pages in guest and host"),
    )

    def _designs(self, paper: Paper) -> dict[str, Design]:
        found = {name: paper.designs[base] for name, base in PLAIN.items()}
        for kind, base in GUESSED.items():
            found |= {f"{kind}, {p} %": pressed(paper, base, p, HOST_DENIED) for p in PRESSURES}
        return found

    def _huge(self, paper: Paper) -> dict[str, Design]:
        return {
            f"THP {table}, {served} % served": fragmented(
                paper, f"VM THP {table}", served, SERVED_GUEST
            )
            for table in TABLES
            for served in SERVED
        }

    def runs(self, paper: Paper) -> Runs:
        designs = self._designs(paper) | self._huge(paper)
        return paper.cross(APPLICATIONS, designs.values(), timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, "VM Radix")
        labels = {name: design.label for name, design in self._designs(paper).items()}
        huge = {name: design.label for name, design in self._huge(paper).items()}
        free = {name: labels[name] for name in PLAIN}
        free |= {kind: labels[f"{kind}, 0 %"] for kind in GUESSED}
        table = numbers(found, labels | huge)
        return (
            speedups(found, free)
            + pressure_lines(table, GUESSED)
            + speedups(found, huge, "huge")
            + table
        )
