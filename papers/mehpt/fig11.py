"""Figure 11: upsizes of each way of the 4 KB table."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import (
    ALL_SIZES,
    APPLICATIONS,
    BIG_MACHINE,
    CHOSEN_SIZES,
    FOUR_KB,
    TABLE_1,
    VARIANTS,
    WAYS,
    way_statistic,
)

MEANS = (10.6, 10.5, 9.9)
PRINTED = {"": {"GUPS": 13.0, "SysBench": 13.0}, "+THP": {"GUPS": 0.0, "SysBench": 0.0}}


class Figure11(Figure):
    title = "Upsizes of each way of the 4 KB table"
    place = "figure 11, section VII-E1"
    about = (
        "From 8 KB to 64 MB a way doubles 13 times. 64 GB of data are above the threshold of three "
        "such ways (see 'printed'), so that here GUPS and SysBench double them once more. "
        + BIG_MACHINE
    )
    deviation = TABLE_1
    panels = (
        Panel(Bars("upsizes"), "", "Without THP"),
        Panel(Bars("upsizes"), "+THP", "With THP"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(ALL_SIZES, ["ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for suffix in ("", "+THP"):
            upsizes = {}
            for app in ALL_SIZES:
                outcome = results(runs[app, f"ME-HPT{suffix}"])
                ways = way_statistic(outcome, FOUR_KB, "upsizes")
                upsizes[app] = [*ways] if ways else [None] * WAYS
                if app not in APPLICATIONS:
                    continue
                for way, value in enumerate(upsizes[app]):
                    rows.append(
                        Row(
                            app, f"way {way}", value, PRINTED[suffix].get(app), "upsizes",
                            "section VII-E1", failed=outcome.why, panel=suffix,
                        )
                    )  # fmt: skip
            for variant, other in VARIANTS:
                for way in range(WAYS):
                    rows.append(
                        Row(
                            f"mean{variant}", f"way {way}",
                            mean(upsizes[other.get(app, app)][way] for app in APPLICATIONS),
                            MEANS[way] if not suffix else None, "upsizes", "section VII-E1",
                            panel=f"text{suffix}" if variant else suffix, average=True,
                            by_construction=CHOSEN_SIZES if variant else "",
                        )
                    )  # fmt: skip
        return rows
