"""Figure 9: speedup over radix without THP."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from . import timing
from .common import APPLICATIONS, BIG_MACHINE, FIGURE_9, FOUR_KB, TIMED_FITTING

DESIGNS = ("Radix", "Radix+THP", "ECPT", "ECPT+THP", "ME-HPT", "ME-HPT+THP")
ACCOUNTS = (
    *timing.GROWING_WINDOW,
    ("moves20", "With the tables' growth, 20 ns an entry moved", timing.resizes_at(20)),
    ("moves0", "With the tables' growth, moving entries for nothing", timing.resizes_at(0)),
    ("tables", "With page tables' memory of the whole populating phase", timing.table_memory),
    ("populating", "With all kernel time of the whole populating phase", timing.populating),
)
# Section VII-E1.
WINDOW = "the window was chosen to begin where ways still grow about so often"
STEADY = (("ME-HPT", 1.8), ("ME-HPT+THP", 1.6))


class Figure9(Figure):
    title = "Speedup over radix page tables without THP"
    place = "figure 9, section VII-B"
    about = (
        "The window is 550 million instructions a thread: the program at its measured speed, "
        "after the last three tenths of its initialisation, in which each page's first touch is "
        "simulated in time, with the table as full as it then is, at every scale; it begins where "
        "ME-HPT's ways still grow about twice, as in the paper's steady state. The paper does not "
        "say which part of this time it charged. So the result is shown without that part, with "
        "what page tables' blocks and moved entries take in it, and with all of it; and with what "
        "they, or all kernel work, take from an empty machine on. What moving an entry takes, "
        "100 ns, is our own price: the growth is given with 20 and 0 ns, too. The paper's "
        "averages stand beside each; its 1.28 may be over radix with THP or, as its bars are, "
        "without: both are given. " + BIG_MACHINE
    )
    timing = True
    deviation = FIGURE_9
    panels = tuple(Panel(Bars("speedup"), name, title) for name, title, _ in ACCOUNTS)

    def runs(self, paper: Paper) -> Runs:
        fitting = timing.runs(paper, ("Radix", "ECPT", "ME-HPT"), TIMED_FITTING.values())
        return timing.runs(paper, DESIGNS) | fitting

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = timing.timings(self.runs(paper), results)
        rows, averages = timing.accounted(found, DESIGNS, ACCOUNTS)
        for design, printed in STEADY:
            grown = [found[app, design].growing for app in APPLICATIONS]
            upsizes = [g.get(f"{FOUR_KB}.upsizes") if g else None for g in grown]
            averages.append(
                Row(
                    f"upsizes of {design}'s 4 KB ways in the window", "", mean(upsizes), printed,
                    "", "section VII-E1", panel="text", average=True,
                    by_construction=WINDOW,
                )
            )  # fmt: skip
        return rows + averages
