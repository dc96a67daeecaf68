"""Figure 11: upsizes of each way of the 4 KB table."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FOUR_KB, WAYS, way_statistic

MEANS = (10.6, 10.5, 9.9)
PRINTED = {"": {"GUPS": 13.0, "SysBench": 13.0}, "+THP": {"GUPS": 0.0, "SysBench": 0.0}}


class Figure11(Figure):
    title = "Upsizes of each way of the 4 KB table"
    place = "figure 11, section VII-E1"
    about = (
        "From 8 KB to 64 MB a way doubles 13 times. 64 GB of data are above the threshold of three "
        "such ways (see 'printed'), so that here GUPS and SysBench double them once more."
    )
    panels = (
        Panel(Bars("upsizes"), "", "Without THP"),
        Panel(Bars("upsizes"), "+THP", "With THP"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for suffix in ("", "+THP"):
            columns: list[list[float | None]] = [[] for _ in range(WAYS)]
            for app in APPLICATIONS:
                outcome = results(runs[app, f"ME-HPT{suffix}"])
                ways: list[float | None] = list(way_statistic(outcome, FOUR_KB, "upsizes"))
                for way, value in enumerate(ways or [None] * WAYS):
                    columns[way].append(value)
                    rows.append(
                        Row(
                            app, f"way {way}", value, PRINTED[suffix].get(app), "upsizes",
                            "section VII-E1", failed=outcome.why, panel=suffix,
                        )
                    )  # fmt: skip
            for way, column in enumerate(columns):
                printed = MEANS[way] if not suffix else None
                rows.append(
                    Row(
                        "mean", f"way {way}", mean(column), printed, "upsizes", "section VII-E1",
                        panel=suffix, average=True,
                    )
                )  # fmt: skip
        return rows
