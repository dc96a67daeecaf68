"""Figure 15: the latency of walks when only page-table entries are guessed."""

from __future__ import annotations

from pagewalk.reproduce import Design, Figure, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import (
    DENIED,
    PRESSURE,
    PRESSURES,
    TABLES,
    TIERS,
    WHAT,
    Compared,
    pressure_panels,
    revelator,
    swept,
)
from .fig12 import walk
from .printed import WALK_SAVED

# Number of hashes, and the hashes that are tried for frames of page tables.
TRIES = {
    "three hashes": (3, "all"),
    "six hashes": (6, "all"),
    "the first hash": (6, "first"),
}


def design(paper: Paper, tries: str, pressure: int) -> Design:
    """Revelator that guesses entries alone, with so many tries for frames of page tables."""
    label = f"Revelator-OnlyPT, {tries}, {pressure}%"
    hashes, tables = TRIES[tries]
    keys = {TIERS: hashes, TABLES: tables, DENIED: pressure / 100, WHAT: "entries"}
    return revelator(paper, label, keys)


class Figure15(Figure):
    title = "Latency of walks saved by guessing page-table entries"
    place = "figure 15, section 7.1"
    about = (
        PRESSURE
        + "Frames of page tables are tried with all hash functions, as the paper's introduction "
        "says (three, as in its figure 14, or six, as in its table 1), or with one, as its section "
        "5.2 says. A walk's latency is from a walker's start to its end."
    )
    timing = True
    panels = pressure_panels("% saved", "% saved")

    def runs(self, paper: Paper) -> Runs:
        designs = [design(paper, tries, pressure) for tries in TRIES for pressure in PRESSURES]
        return paper.cross(swept(paper), ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, swept(paper))
        rows, each = [], []
        for tries in TRIES:
            for pressure in PRESSURES:
                label = design(paper, tries, pressure).label
                values = {app: found.saved(app, label, "Radix", walk) for app in found.apps}
                group, value = str(pressure), mean(values.values())
                said = WALK_SAVED.get(pressure)
                rows.append(
                    said.row(group, tries, value, "%", average=True, saved=True)
                    if said
                    else Row(group, tries, value, unit="%", average=True, saved=True)
                )
                each += [
                    Row(
                        group, tries, value, unit="%", failed=found.why(app, label, "Radix"),
                        panel=app, saved=True,
                    )
                    for app, value in values.items()
                ]  # fmt: skip
        return rows + each
