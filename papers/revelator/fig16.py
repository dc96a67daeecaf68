"""Figure 16: the degree filter against a perfect one, with slow and with fast memory."""

from __future__ import annotations

from pagewalk.reproduce import Design, Figure, Lines, Means, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    DEGREE,
    DENIED,
    FILTER,
    HASHES,
    PRESSURE,
    TIERS,
    Compared,
    mean_row,
    revelator,
    swept,
)
from .printed import FILTER_BEHIND, SLOW_MEMORY, Said

RATE = "memory.dram.ddr.data_rate_mts"
RATES = (400, 3200)
FILTERS = {"filter": "adaptive", "perfect filter": "perfect", "no filter": "off"}
NUMBERS = range(1, HASHES + 1)
HALF = 0.5


def radix(paper: Paper, rate: int) -> Design:
    """The baseline with memory of this rate."""
    return paper.designs["Radix"].changed(f"Radix, {rate} MTPS", {RATE: rate})


def design(paper: Paper, filtered: str, hashes: int, rate: int) -> Design:
    """Revelator at a pressure of 50 %."""
    label = f"Revelator N={hashes}, {filtered}, {rate} MTPS"
    keys = {TIERS: hashes, DENIED: HALF, DEGREE: hashes, FILTER: FILTERS[filtered], RATE: rate}
    return revelator(paper, label, keys)


class Figure16(Figure):
    title = "The degree filter, a perfect one and none"
    place = "figure 16, section 7.1"
    about = (
        PRESSURE
        + "Here p is 0.5. A perfect filter lets through the right guess alone. The paper says, but "
        "does not show, that speed would fall without a filter; that has a line of its own."
    )
    timing = True
    sampled = True
    panels = tuple(
        Panel(Lines("hash functions", "speedup over radix"), f"{rate}", f"{rate} MT/s")
        for rate in RATES
    )

    def runs(self, paper: Paper) -> Runs:
        designs = [
            design(paper, filtered, n, rate)
            for rate in RATES
            for filtered in FILTERS
            for n in NUMBERS
        ]
        return paper.cross(
            swept(paper), [*(radix(paper, rate) for rate in RATES), *designs], timing=True
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, swept(paper))
        means: dict[tuple[int, str, int], Means] = {}
        rows = []
        for rate in RATES:
            for filtered in FILTERS:
                for n in NUMBERS:
                    label, base = design(paper, filtered, n, rate).label, radix(paper, rate).label
                    of = found.speedup(label, base)
                    means[rate, filtered, n] = of
                    slow = (rate, filtered, n) == (RATES[0], "filter", HASHES)
                    said: Said | None = SLOW_MEMORY if slow else None
                    row = mean_row(filtered, of, said, group=str(n), panel=str(rate))
                    rows.append(row)
        return [*rows, *(self._behind(means, rate) for rate in RATES)]

    @staticmethod
    def _behind(means: dict[tuple[int, str, int], Means], rate: int) -> Row:
        """The largest loss of the filter against a perfect one."""
        gaps = [
            perfect / own
            for n in NUMBERS
            if (own := means[rate, "filter", n].geometric)
            and (perfect := means[rate, "perfect filter", n].geometric)
        ]
        value = max(gaps) if len(gaps) == len(NUMBERS) else None
        name = f"perfect filter over filter at {rate} MT/s, the largest of all N"
        if rate != RATES[-1]:
            return Row(name, "", value, average=True, panel="text")
        return FILTER_BEHIND.row(name, "", value, average=True, panel="text")
