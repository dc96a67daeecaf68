"""Figure 13: the share of entries that an upsize moves."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, BIG_MACHINE, FOUR_KB


class Figure13(Figure):
    title = "Share of the entries that an in-place upsize of the 4 KB table moves"
    place = "figure 13, section VII-E3"
    about = (
        "The text says 'close to the expected 0.5' and no number. GUPS and SysBench with THP have "
        "no upsizes of the 4 KB table, as in the paper. " + BIG_MACHINE
    )
    panels = (Panel(Bars("share moved")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows = []
        shares: dict[str, list[float | None]] = {}
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            moved = outcome.since_boot(f"{FOUR_KB}.moved")
            stayed = outcome.since_boot(f"{FOUR_KB}.stayed")
            share = None
            if moved is not None and stayed is not None and moved + stayed > 0:
                share = moved / (moved + stayed)
            shares.setdefault(design, []).append(share)
            rows.append(Row(app, design, share, failed=outcome.why))
        return rows + [
            Row("mean", design, mean(column), 0.5, "", "section VII-E3", average=True)
            for design, column in shares.items()
        ]
