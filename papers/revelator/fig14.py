"""Figure 14: guessing page-table entries, data, or both."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    DEGREE,
    DENIED,
    TIERS,
    WHAT,
    Compared,
    ordered,
    revelator,
    speedups,
)
from .printed import MODES

MODE = {"Revelator-OnlyPT": "entries", "Revelator-OnlyData": "data", "Revelator-PT+Data": "both"}


def designs(paper: Paper) -> list[Design]:
    """The three modes with three hash functions and no pressure."""
    return [
        revelator(paper, label, {TIERS: 3, DENIED: 0.0, DEGREE: 3, WHAT: what})
        for label, what in MODE.items()
    ]


def unguessed(paper: Paper) -> Design:
    """The same frames without an engine, for the cost of the placement."""
    return paper.designs["Radix"].changed("Radix, frames by hash", {TIERS: 3})


class Figure14(Figure):
    title = "Guesses of page-table entries, of data, and of both"
    place = "figure 14, section 7.1"
    about = (
        "Three hash functions, and no frame is denied. 'Frames by hash' has the frames of these "
        "designs and no engine: pages that lie everywhere share no rows of the DRAM."
    )
    timing = True
    sampled = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix", unguessed(paper), *designs(paper)], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, means = speedups(found, (unguessed(paper).label, *MODE), MODES)
        return [*rows, ordered(means, tuple(MODE), "figure 14")]
