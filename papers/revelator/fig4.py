"""Figure 4: SpecTLB against huge pages, perfect speculation and perfect TLBs."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, Compared, ordered, over, speedups
from .printed import PERFECT_SPECULATION, SPECTLB_BEHIND_PERFECT, SPECTLB_LIKE_THP

DESIGNS = ("THP low", "SpecTLB-Large low", "Perfect Speculation", "Perfect-TLB")


class Figure4(Figure):
    title = "SpecTLB of 1024 entries, huge pages, perfect speculation, perfect TLBs"
    place = "figure 4, sections 1 and 3.3"
    about = (
        "Low fragmentation: 75 % of the requests for 2 MB blocks are served. Perfect speculation "
        "fetches data and page-table entries on small pages. The paper's introduction gives it 20 "
        "%, less than the 27 % of Revelator in figure 11; both numbers are the paper's."
    )
    timing = True
    sampled = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        designs = ("Radix", *DESIGNS, "Perfect Speculation of data")
        return paper.cross(APPLICATIONS, designs, timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, means = speedups(found, DESIGNS, {"Perfect Speculation": PERFECT_SPECULATION})
        return [
            *rows,
            over(found, "Perfect Speculation of data", "Radix", PERFECT_SPECULATION),
            over(found, "Perfect Speculation", "SpecTLB-Large low", SPECTLB_BEHIND_PERFECT),
            over(found, "SpecTLB-Large low", "THP low", SPECTLB_LIKE_THP),
            ordered(means, ("SpecTLB-Large low", "Perfect Speculation", "Perfect-TLB"), "figure 4"),
        ]
