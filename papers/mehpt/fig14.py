"""Figure 14: entries of the L2P table in use."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS

PLACE = "section VII-E4"
PRINTED = {("GUPS", "ME-HPT"): 192.0, ("SysBench", "ME-HPT"): 192.0}


class Figure14(Figure):
    title = "Entries of the L2P table in use"
    place = "figure 14, section VII-E4"
    about = (
        "Most entries in use at a time, of 288. The paper gives 11 for TC and 195 for MUMmer and "
        "does not say whether with or without THP; they stand beside both."
    )
    panels = (Panel(Bars("entries")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows = []
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            value = outcome.since_boot("page_table.l2p.entries_peak")
            printed = {"TC": 11.0, "MUMmer": 195.0}.get(app, PRINTED.get((app, design)))
            place = PLACE if app in ("TC", "MUMmer") else "section VII-D" if printed else ""
            rows.append(Row(app, design, value, printed, "entries", place, failed=outcome.why))
        average = mean(row.value for row in rows)
        return [*rows, Row("mean", "all bars", average, 52.5, "entries", PLACE, average=True)]
