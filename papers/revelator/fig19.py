"""Figure 19: virtual machines."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, Compared, speedups
from .printed import BEHIND_ISP, VIRTUAL

DENIED = "virtual.placement.tiered_hash.denied"
"""The host's hash places what the guest's pages are backed with."""
LEVELS = {"Revelator-VM low": 0.794, "Revelator-VM high": 0.973}


def pressed(paper: Paper, base: str = "Revelator-VM") -> list[Design]:
    """Revelator in a virtual machine under low and high pressure of the host's memory."""
    return [
        paper.designs[base].changed(label.replace("Revelator-VM", base), {DENIED: denied})
        for label, denied in LEVELS.items()
    ]


class Figure19(Figure):
    title = "Speedup over nested paging in virtual machines"
    place = "figure 19, section 7.3"
    about = (
        "Small pages and radix tables in guest and host. Ideal shadow paging (ISP) walks one table "
        "from guest-virtual to host-physical addresses and charges nothing for keeping it. Low "
        "(high) pressure: the host's hash places 75 % (15 %) of the pages. Revelator guesses the "
        "data of a guest's address."
    )
    timing = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["NP", *pressed(paper), "ISP"], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, means = speedups(found, (*LEVELS, "ISP"), VIRTUAL, base="NP")
        ideal, ours = means["ISP"], means["Revelator-VM low"]
        gap = None if ideal is None or ours is None else 100 * (ideal - ours)
        return [
            *rows,
            BEHIND_ISP.row(
                "ISP less Revelator, low", "", gap, "points", average=True, panel="text"
            ),
        ]
