"""Figure 2: where page-table entries and data of loads that walk come from."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS
from .counts import total
from .printed import DATA_FROM_DRAM, TRANSLATION_FROM_DRAM_ALONE

PARTS = {
    "entries cached, data cached": "entries_cached_data_cached",
    "entries cached, data from DRAM": "entries_cached_data_memory",
    "entries from DRAM, data cached": "entries_memory_data_cached",
    "entries from DRAM, data from DRAM": "entries_memory_data_memory",
}
DRAM_DATA = ("entries cached, data from DRAM", "entries from DRAM, data from DRAM")


def shares(outcome: Outcome) -> dict[str, float]:
    """Per cent of the loads that walk; empty without any."""
    counts = {part: total(outcome, f"walked_loads.{name}") or 0.0 for part, name in PARTS.items()}
    whole = sum(counts.values())
    if outcome.failed or not whole:
        return {}
    return {part: 100 * count / whole for part, count in counts.items()}


class Figure2(Figure):
    title = "Where translation and data come from"
    place = "figure 2, section 3.1"
    about = (
        "Of the loads that no TLB translates: whether their walk, own or waited for, read a "
        "page-table entry from DRAM, and whether DRAM had the data. The paper speaks of memory "
        "requests."
    )
    timing = True
    panels = (Panel(Bars("% of the loads that walk", stacked=True, averages=False)),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix"], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows = []
        found = []
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            of = shares(outcome)
            found.append(of)
            rows += [
                Row(app, design, of.get(part), unit="%", failed=outcome.why, part=part)
                for part in PARTS
            ]
        known = [of for of in found if of]
        means = {part: mean(of[part] for of in known) for part in PARTS}
        from_dram = [means[part] for part in DRAM_DATA]
        alone = means["entries from DRAM, data cached"]
        data = sum(from_dram) if None not in from_dram else None  # type: ignore[arg-type]
        return [
            *rows,
            DATA_FROM_DRAM.row("mean", "data from DRAM", data, "%", average=True, panel="text"),
            TRANSLATION_FROM_DRAM_ALONE.row(
                "mean", "entries from DRAM, data cached", alone, "%", average=True, panel="text"
            ),
        ]
