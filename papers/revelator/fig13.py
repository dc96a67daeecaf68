"""Figure 13: one to six hash functions under memory pressure, without a filter."""

from __future__ import annotations

from pagewalk.reproduce import Design, Figure, Means, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    DEGREE,
    DENIED,
    FILTER,
    HASHES,
    PRESSURE,
    PRESSURES,
    TIERS,
    Compared,
    mean_row,
    pressure_panels,
    revelator,
    swept,
)
from .printed import AT_80, BEST_HASHES, V2_BEST

NUMBERS = range(1, HASHES + 1)
UNPLACED = 0.8
"""Share of the pages that no hash places, the other reading of 80 %."""


def design(paper: Paper, hashes: int, denied: float) -> Design:
    """Revelator with so many hashes and without a filter."""
    label = f"Revelator N={hashes}, p={denied:.4g}, no filter"
    keys = {TIERS: hashes, DENIED: denied, DEGREE: hashes, FILTER: "off"}
    return revelator(paper, label, keys)


def denied(hashes: int) -> float:
    """The share of frames to deny for so many hashes to fail on `UNPLACED` of the pages."""
    return round(float(UNPLACED ** (1 / hashes)), 4)


class Figure13(Figure):
    title = "Speedup with one to six hash functions under memory pressure"
    place = "figure 13, section 7.1"
    about = (
        PRESSURE
        + "The text reads its own 80 % as pages that cannot be allocated by a hash, which is "
        "another pressure for each N, 0.8^(1/N); it has a row, too. The filter is off, as in the "
        "paper. The text names no N for its 7 %: the table's default of 6, and the best."
    )
    timing = True
    sampled = True
    panels = pressure_panels("speedup over radix", "speedup")

    def runs(self, paper: Paper) -> Runs:
        designs = {
            d.label: d
            for n in NUMBERS
            for d in (*(design(paper, n, p / 100) for p in PRESSURES), design(paper, n, denied(n)))
        }
        return paper.cross(swept(paper), ["Radix", *designs.values()], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, swept(paper))
        means: dict[tuple[int, int], Means] = {}
        rows, each = [], []
        for n in NUMBERS:
            for pressure in PRESSURES:
                label = design(paper, n, pressure / 100).label
                means[n, pressure] = found.speedup(label, "Radix")
                rows.append(mean_row(f"N={n}", means[n, pressure], group=str(pressure)))
                each += [
                    Row(
                        str(pressure), f"N={n}", found.ratio(app, label, "Radix"),
                        failed=found.why(app, label, "Radix"), panel=app,
                    )
                    for app in found.apps
                ]  # fmt: skip
        best = {pressure: self._best(means, pressure) for pressure in PRESSURES}
        unplaced = {n: found.speedup(design(paper, n, denied(n)).label, "Radix") for n in NUMBERS}
        fastest = max(unplaced, key=lambda n: unplaced[n].geometric or 0.0)
        at_80, alike = "80 % of the frames denied", "80 % of the pages without a hash"
        text = [
            mean_row("N=6", means[HASHES, 80], AT_80, group=at_80, panel="text"),
            mean_row("best N", means[best[80] or HASHES, 80], AT_80, group=at_80, panel="text"),
            mean_row("N=6", unplaced[HASHES], AT_80, group=alike, panel="text"),
            mean_row("best N", unplaced[fastest], AT_80, group=alike, panel="text"),
        ]
        for pressure, said in BEST_HASHES.items():
            text.append(
                said.row(
                    f"N of the highest mean at {pressure} %", "", best[pressure], average=True,
                    panel="text", tolerance=0.0,
                )
            )  # fmt: skip
        for pressure, said in V2_BEST.items():
            text.append(
                said.row(
                    f"N of the highest mean at {pressure} %", "second version", best[pressure],
                    average=True, panel="text", tolerance=0.0,
                )
            )  # fmt: skip
        return rows + text + each

    @staticmethod
    def _best(means: dict[tuple[int, int], Means], pressure: int) -> int | None:
        """The fewest hashes with the highest mean."""
        values = {n: means[n, pressure].geometric for n in NUMBERS}
        known = {n: value for n, value in values.items() if value is not None}
        return max(known, key=lambda n: (known[n], -n)) if len(known) == len(values) else None
