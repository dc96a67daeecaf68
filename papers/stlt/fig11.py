"""Figure 11: speedups on Redis, by distribution and value size."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, SCALED, VALUES, Case, Found, mean_row, runs
from .printed import FIGURE_11, NEAR, REDIS, REDIS_MEAN, SIZE_MATTERS

SERIES = ("SLB", "STLT")


def cases() -> list[Case]:
    """Nine workloads with each table."""
    return [
        Case("Redis", table, distribution, value)
        for distribution in DISTRIBUTIONS
        for value in VALUES
        for table in SERIES
    ]


class Figure11(Figure):
    title = "Speedups on Redis"
    place = "figure 11, section IV-B"
    about = SCALED + "An STLT of 512 MB with 4 ways, an SLB of 10 GB. Bars agree within 15 %."
    timing = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, cases())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for case in cases():
            printed = FIGURE_11[case.distribution, case.table][VALUES.index(case.value)]
            rows.append(
                Row(
                    f"{case.distribution} {case.value}B", case.table, found.speedup(case),
                    printed, "", "figure 11", failed=found.why(case), tolerance=NEAR,
                    deviation=REDIS,
                )
            )  # fmt: skip
        rows += [mean_row(rows, "STLT", REDIS_MEAN), mean_row(rows, "SLB", None)]
        pairs = [(a, b) for a, b in zip(rows[:18:2], rows[1:18:2], strict=True)]
        known = all(a.value and b.value for a, b in pairs)
        ahead = sum((b.value or 0) > (a.value or 0) for a, b in pairs)
        rows.append(
            Row(
                "workloads on which STLT is ahead of SLB", "", float(ahead) if known else None,
                9.0, "", "section IV-B: consistently", panel="text", average=True, tolerance=0.0,
                deviation=REDIS,
            )
        )  # fmt: skip
        for name in DISTRIBUTIONS:
            of_sizes = [r.value for r in rows[:18] if r.series == "STLT" and name in r.group]
            values = [value for value in of_sizes if value]
            differ = 100 * (max(values) / min(values) - 1) if len(values) == len(VALUES) else None
            rows.append(
                SIZE_MATTERS[name].row(
                    f"value sizes differ by, {name}",
                    "STLT",
                    differ,
                    "%",
                    panel="text",
                    average=True,
                )
            )
        return rows
