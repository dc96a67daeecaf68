"""Figure 9: speedup over radix without THP."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from . import timing
from .common import APPLICATIONS

DESIGNS = ("Radix", "Radix+THP", "ECPT", "ECPT+THP", "ME-HPT", "ME-HPT+THP")
# Panel, title, what comes on top of the measured window.
ASSUMPTIONS = (
    ("window", "The measured window alone: memory is populated, no way grows", timing.nothing),
    ("growth", "With the resizes that the paper observes in steady state", timing.growth),
    ("tables", "With page tables' memory of the populating phase", timing.table_memory),
    ("populating", "With all kernel time of the populating phase", timing.populating),
)
# Section VII-B.
AVERAGES = (
    ("ECPT", "ME-HPT", 1.09),
    ("ECPT+THP", "ME-HPT+THP", 1.06),
    ("Radix", "ME-HPT", 1.23),
    ("Radix+THP", "ME-HPT+THP", 1.28),
    ("Radix", "ME-HPT+THP", 1.28),
)


class Figure9(Figure):
    title = "Speedup over radix page tables without THP"
    place = "figure 9, section VII-B"
    about = (
        "The window is 550 million instructions a thread at the measured speed. The paper charges "
        "the allocations that happen in its window, and says that most upsizes happened before. "
        "What the allocations add is shown four times: not at all; for the paper's upsizes in "
        "steady state (ECPT's last one, 1.8 ways of ME-HPT, 1.6 with THP); for all that populating "
        "costs in page-table memory; and for all its kernel time. The paper's averages stand "
        "beside each; its 1.28 may be over radix with THP or, as its bars are, without: both are "
        "given."
    )
    timing = True
    panels = tuple(Panel(Bars("speedup"), name, title) for name, title, _ in ASSUMPTIONS)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, DESIGNS, timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = {key: (run, results(run)) for key, run in self.runs(paper).items()}
        rows: list[Row] = []
        averages: list[Row] = []
        for panel, words, cost in ASSUMPTIONS:
            bars, times = timing.speedups(found, DESIGNS, cost, panel)
            rows += bars
            for slower, faster, printed in AVERAGES:
                averages.append(
                    Row(
                        f"{faster} over {slower}", words, timing.ratio(times, slower, faster),
                        printed, "", "section VII-B", panel="text", average=True,
                    )
                )  # fmt: skip
            order = [
                times[app, "ME-HPT"] <= times[app, "ECPT"]  # type: ignore[operator]
                for app in APPLICATIONS
                if times[app, "ME-HPT"] and times[app, "ECPT"]
            ]
            averages.append(
                Row(
                    "applications where ME-HPT is at least as fast as ECPT", words,
                    float(sum(order)) if order else None, None, f"of {len(order)}",
                    "section VII-B: in practically all the cases", panel="text", average=True,
                )
            )  # fmt: skip
        return rows + averages
