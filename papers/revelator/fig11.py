"""Figure 11: speedups over radix page tables under low and high fragmentation."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, SCENARIOS, Compared, ordered, over, speedups
from .counts import placed
from .printed import (
    BEHIND_PERFECT_TLB,
    OVER_SPECTLB,
    PRESSURE_HIGH,
    PRESSURE_LOW,
    SPEEDUP_HIGH,
    SPEEDUP_LOW,
)

# Panel, title, designs, the paper's means, the share of pages that hashes place.
LEVELS = (
    (
        "low", "Low fragmentation, low memory pressure",
        ("THP low", "SpecTLB-Large low", "Revelator low", "Revelator p=0.25", "Perfect-TLB"),
        SPEEDUP_LOW, PRESSURE_LOW,
    ),
    (
        "high", "High fragmentation, high memory pressure",
        ("THP high", "SpecTLB-Large high", "Revelator high", "Revelator p=0.85", "Perfect-TLB"),
        SPEEDUP_HIGH, PRESSURE_HIGH,
    ),
)  # fmt: skip
CHOSEN = "the share of frames that the hash may not take was chosen so that it does"


class Figure11(Figure):
    title = "Speedup over radix page tables"
    place = "figure 11, section 7.1"
    about = (
        SCENARIOS
        + "The paper's pressure may also be p itself: 'p=0.25' and 'p=0.85' leave the hash 75 % "
        "and 15 % of the frames, by which it places nearly all pages and 62 %."
    )
    timing = True
    panels = tuple(Panel(Bars("speedup"), name, title) for name, title, *_ in LEVELS)

    def runs(self, paper: Paper) -> Runs:
        designs = dict.fromkeys(name for _, _, names, *_ in LEVELS for name in names)
        return paper.cross(APPLICATIONS, ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, text = [], []
        for panel, _, designs, said, pressure in LEVELS:
            more, means = speedups(found, designs, said, panel=panel)
            rows += more
            thp, spectlb, ours = designs[:3]
            text += [
                over(found, ours, thp, None),
                over(found, ours, spectlb, OVER_SPECTLB if panel == "low" else None),
                ordered(
                    means,
                    (thp, spectlb, ours, "Perfect-TLB") if panel == "low" else (thp, ours),
                    "figure 11",
                ),
                pressure.row(
                    f"pages that a hash places, {ours}", "",
                    mean(found.value(app, ours, self._hashed) for app in APPLICATIONS), "%",
                    average=True, panel="text", by_construction=CHOSEN,
                ),
            ]  # fmt: skip
        text.append(over(found, "Perfect-TLB", "Revelator low", BEHIND_PERFECT_TLB))
        return rows + text

    @staticmethod
    def _hashed(outcome: object) -> float | None:
        found = placed(outcome)  # type: ignore[arg-type]
        return found.hashed if found else None
