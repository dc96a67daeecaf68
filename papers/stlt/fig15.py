"""Figure 15: misses of the tables by their size."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import SCALED, Found, runs
from .printed import MISSES, NEARLY_NO_MISS
from .sizes import by_size, sizes, swept


class Figure15(Figure):
    title = "Misses of SLB and STLT by their size"
    place = "figure 15, section IV-D1"
    about = (
        SCALED + "All programs have the same requests. Of an SLB the misses come from the "
        "instructions of two programs, as in table V."
    )
    timing = True
    deviation = MISSES
    panels = by_size("% of the lookups")

    def runs(self, paper: Paper) -> Runs:
        return runs(
            paper,
            (
                c for p in ("umap", "map") for s in ("STLT", "SLB")
                for c in swept(paper, p, s).values()
            ),
        )  # fmt: skip

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for size, case in swept(paper, "map", "STLT").items():
            rows.append(
                Row(str(size), "STLT", found.missed(case), unit="%", failed=found.why(case))
            )
        for size, case in swept(paper, "map", "SLB").items():
            rows.append(
                Row(
                    str(size), "SLB", found.missed_in_software(case), unit="%",
                    failed=found.why(case),
                )
            )  # fmt: skip
        largest = str(max(sizes(paper)))
        last = [row for row in rows if row.group == largest]
        return rows + [
            NEARLY_NO_MISS.row(
                f"{largest} MB", row.series, row.value, "%", panel="text", average=True
            )
            for row in last
        ]
