"""Figure 11: speedups over radix page tables under low and high fragmentation."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from . import kernel
from .common import APPLICATIONS, SCENARIOS, Compared, denied, ordered, over, speedups
from .counts import placed
from .printed import (
    BEHIND_PERFECT_TLB,
    OVER_SPECTLB,
    PRESSURE_HIGH,
    PRESSURE_LOW,
    SPEEDUP_HIGH,
    SPEEDUP_LOW,
    WRONG_GUESSES,
)

ONLY_RIGHT = "right guesses only"
# Panel, title, designs, the paper's means, its share of pages that the hash may take.
LEVELS = (
    (
        "low", "Low fragmentation, low memory pressure",
        (
            "THP low", "SpecTLB-Large low", "Revelator low", f"Revelator low, {ONLY_RIGHT}",
            "Revelator, 75 % placed", "Perfect-TLB",
        ),
        SPEEDUP_LOW, PRESSURE_LOW,
    ),
    (
        "high", "High fragmentation, high memory pressure",
        (
            "THP high", "SpecTLB-Large high", "Revelator high", f"Revelator high, {ONLY_RIGHT}",
            "Revelator, 15 % placed", "Perfect-TLB",
        ),
        SPEEDUP_HIGH, PRESSURE_HIGH,
    ),
)  # fmt: skip
IN_KERNELS = ", on the frames of kernels"
CHOSEN = "the share of frames that the hash may not take is the paper's"


class Figure11(Figure):
    title = "Speedup over radix page tables"
    place = "figure 11, section 7.1"
    about = (
        SCENARIOS
        + "With six hashes that places nearly all pages, or 62 %. If the paper means that 75 % (15 "
        "%) of the program's pages are placed, five sixths of the frames or more are denied: '75 % "
        "placed'. 'Right guesses only' takes away what wrong guesses cost. With --kernel there "
        "are two more panels, of five programs of 1 GB. They compare Revelator's speedups on the "
        "frames that a booted Linux gave with those on the frames of the simulated kernel."
    )
    kernel_file = "figure11.json"
    timing = True
    sampled = True
    panels = (
        *(Panel(Bars("speedup"), name, title) for name, title, *_ in LEVELS),
        *(
            Panel(
                Bars("speedup"),
                f"{name}{IN_KERNELS}",
                f"Revelator {name}{IN_KERNELS}, programs of 1 GB",
            )
            for name, *_ in LEVELS
        ),
    )

    def runs(self, paper: Paper) -> Runs:
        designs = dict.fromkeys(name for _, _, names, *_ in LEVELS for name in names)
        return paper.cross(APPLICATIONS, ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        folder = paper.kernel_results
        booted = kernel.speedups(folder / self.kernel_file) if folder is not None else {}
        rows, text = [], []
        for panel, _, designs, said, level in LEVELS:
            more, means = speedups(found, designs, said, panel=panel)
            rows += more
            rows += [
                Row(app, name, of[placement], panel=f"{panel}{IN_KERNELS}")
                for (app, pressure), of in booted.items()
                if pressure == panel
                for placement, name in kernel.PLACEMENTS.items()
            ]
            thp, spectlb, ours = designs[:3]
            text += [
                over(found, ours, thp, None),
                over(found, ours, spectlb, OVER_SPECTLB if panel == "low" else None),
                ordered(
                    means,
                    (thp, spectlb, ours, "Perfect-TLB") if panel == "low" else (thp, ours),
                    "figure 11",
                    WRONG_GUESSES,
                ),
                level.row(
                    f"frames that the hash may take, {ours}", "",
                    100 * (1 - denied(paper.designs[ours])), "%",
                    average=True, panel="text", by_construction=CHOSEN,
                ),
                *(
                    Row(
                        f"pages that a hash places, {design}", "",
                        mean(found.value(app, design, self._hashed) for app in APPLICATIONS),
                        unit="%", average=True, panel="text",
                    )
                    for design in (ours, designs[4])
                ),
            ]  # fmt: skip
        text.append(over(found, "Perfect-TLB", "Revelator low", BEHIND_PERFECT_TLB))
        return rows + text

    @staticmethod
    def _hashed(outcome: object) -> float | None:
        found = placed(outcome)  # type: ignore[arg-type]
        return found.hashed if found else None
