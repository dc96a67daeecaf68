"""Figure 12: the final size of each way of the 4 KB table."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    BIG_MACHINE,
    CHOSEN,
    FOUR_KB,
    KB,
    LINE,
    TABLE_1,
    WAYS,
    scaled,
    way_statistic,
)

# Section VII-E2: "64MB per way"; "0.5MB for most of the ways in MUMmer"; 8KB with THP.
PRINTED: dict[str, dict[str, list[float | None]]] = {
    "": {
        "GUPS": [65536.0] * 3, "SysBench": [65536.0] * 3, "SysBench 46 GB": [65536.0] * 3,
        "MUMmer": [512.0, 512.0, None], "MUMmer 0.45 GB": [512.0, 512.0, None],
    },
    "+THP": {"GUPS": [8.0] * 3, "SysBench": [8.0] * 3},
}  # fmt: skip
SMALLER = ("SysBench 46 GB", "MUMmer 0.45 GB")
"""Applications with as much data as the printed ways hold, without THP."""


class Figure12(Figure):
    title = "Final size of each way of ME-HPT's 4 KB table"
    place = "figure 12, section VII-E2"
    about = (
        "'0.5MB for most of the ways in MUMmer' is taken as two of the three, as section VII-D "
        "says of its chunks. Ways are numbered by the paper's order of sizes: it does not say "
        "which is which, so the printed sizes stand beside ours in ascending order. The "
        "last two without THP have as much data as those ways hold. " + BIG_MACHINE
    )
    deviation = TABLE_1
    panels = (
        Panel(Bars("size", log=True, sizes=KB), "", "Without THP"),
        Panel(Bars("size", log=True, sizes=KB), "+THP", "With THP"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ME-HPT", "ME-HPT+THP"]) | paper.cross(
            SMALLER, ["ME-HPT"]
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for suffix, printed in PRINTED.items():
            for app in APPLICATIONS if suffix else (*APPLICATIONS, *SMALLER):
                outcome = results(runs[app, f"ME-HPT{suffix}"])
                found = sorted(slots * LINE for slots in way_statistic(outcome, FOUR_KB, "slots"))
                ways: list[float | None] = [*found] if found else [None] * WAYS
                names = ("smallest way", "middle way", "largest way")
                paper_ways = printed.get(app, [None] * WAYS)
                for name, value, theirs in zip(names, ways, paper_ways, strict=True):
                    rows.append(
                        Row(
                            app, name, scaled(value, KB), theirs, "KB",
                            "section VII-E2" if theirs else "", failed=outcome.why, panel=suffix,
                            by_construction=CHOSEN if app in SMALLER else "",
                        )
                    )  # fmt: skip
        return rows
