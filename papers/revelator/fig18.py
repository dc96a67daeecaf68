"""Figure 18: elastic cuckoo page tables, POM-TLB, a large L2 TLB."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, SCENARIOS, Compared, ordered, over, speedups
from .printed import OVER_OTHERS, WRONG_GUESSES

ONLY_RIGHT = "Revelator low, right guesses only"
DESIGNS = ("ECH", "POM-TLB", "L2TLB-128K", "Revelator low", ONLY_RIGHT)


class Figure18(Figure):
    title = "Revelator, other page tables and larger TLBs"
    place = "figure 18, section 7.2"
    about = (
        SCENARIOS
        + "All but Revelator are as they are without fragmentation: small pages need no blocks. "
        "POM-TLB and the large L2 TLB have 131,072 entries; the latter at the latency of the "
        "small one. 'Right guesses only' takes away what wrong guesses cost."
    )
    timing = True
    sampled = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix", *DESIGNS], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, means = speedups(found, DESIGNS, {})
        return [
            *rows,
            *(over(found, "Revelator low", other, said) for other, said in OVER_OTHERS.items()),
            *(over(found, ONLY_RIGHT, other, None) for other in OVER_OTHERS),
            ordered(
                means,
                ("POM-TLB", "ECH", "L2TLB-128K", "Revelator low"),
                "section 7.2",
                WRONG_GUESSES,
            ),
        ]
