"""Figure 15: a way's size for small graphs, with chunks of 1 MB alone and with both sizes."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Run, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import FOUR_KB, GRAPHS, KB, WAYS, way_statistic

SIZES = ((1_000, "1K"), (10_000, "10K"), (100_000, "100K"))
# "about 128KB and 16KB" for 10K and 1K nodes, "nearly 1MB" for 100K; chunks of 1 MB can be no less.
PRINTED = {
    "ME-HPT1MB": {"1K": 1024.0, "10K": 1024.0, "100K": 1024.0},
    "ME-HPT1MB+8KB": {"1K": 16.0, "10K": 128.0, "100K": 1024.0},
}


class Figure15(Figure):
    title = "Size of a way of the 4 KB table for small graphs, mean of the graph programs"
    place = "figure 15, section VII-E5"
    about = (
        "Graphs with the same number of edges a vertex as the one of a million. The paper's 128 KB "
        "and 16 KB are what it says an average way needs; 'nearly 1MB' for 100 thousand nodes."
    )
    deviation = "mehpt-figure-15"
    panels = (Panel(Bars("size", log=True, sizes=KB)),)

    def _run(self, paper: Paper, app: str, vertices: int, design: str) -> Run:
        return paper.run(paper.applications[app].resized(vertices=vertices), design)

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (f"{app} {name}", design): self._run(paper, app, vertices, design)
                for vertices, name in SIZES
                for app in GRAPHS
                for design in PRINTED
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for design, printed in PRINTED.items():
            for _, name in SIZES:
                outcomes = [results(runs[f"{app} {name}", design]) for app in GRAPHS]
                sizes = [
                    sum(ways) / WAYS / KB if (ways := way_statistic(o, FOUR_KB, "bytes")) else None
                    for o in outcomes
                ]
                why = next((o.why for o in outcomes if o.failed), "")
                rows.append(
                    Row(
                        name, design, None if why else mean(sizes), printed[name], "KB",
                        "section VII-E5", failed=why, average=True,
                    )
                )  # fmt: skip
        return rows
