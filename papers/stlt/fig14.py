"""Figure 14: speedup by the table's size."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import PROGRAMS, SCALED, Found, runs
from .printed import DENSE, MISSES, PLATEAU, TLB_SAVED
from .sizes import by_size, sizes, swept

SERIES = ("SLB", "STLT")


class Figure14(Figure):
    title = "Speedup by the table's size"
    place = "figure 14, section IV-D1"
    about = (
        SCALED + "Zipf, values of 64 bytes. MB of the STLT; an SLB of as many entries takes 2.5 "
        "times as much."
    )
    timing = True
    panels = by_size("speedup", PROGRAMS)

    def runs(self, paper: Paper) -> Runs:
        return runs(
            paper,
            (c for p in PROGRAMS for s in SERIES for c in swept(paper, p, s).values()),
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for program in PROGRAMS:
            for series in SERIES:
                rows += [
                    Row(
                        str(size), series, found.speedup(case), panel=program,
                        failed=found.why(case),
                    )
                    for size, case in swept(paper, program, series).items()
                ]  # fmt: skip
        text = []
        largest = str(max(sizes(paper)))
        for program, said in PLATEAU.items():
            (value,) = [
                row.value for row in rows
                if (row.panel, row.group, row.series) == (program, largest, "STLT")
            ]  # fmt: skip
            text.append(
                said.row(f"{program}, {largest} MB", "STLT", value, panel="text", average=True)
            )
        bound = 1 / (1 - (TLB_SAVED["STLT"].up_to or 0.0) / 100)
        text.append(
            Row(
                "dense_hash_map by the TLB misses that the paper saves", "at most", bound,
                PLATEAU["dhash"].value, place="sections IV-B and IV-D1", panel="text",
                deviation=DENSE,
                note="1 / (1 - 31 %): figure 16 saves fewer misses than on Redis",
            )
        )  # fmt: skip
        points = [
            (found.cycles(a), found.cycles(b))
            for program in PROGRAMS
            for a, b in zip(
                swept(paper, program, "STLT").values(), swept(paper, program, "SLB").values(),
                strict=True,
            )
        ]  # fmt: skip
        ahead = sum(a < b for a, b in points if a is not None and b is not None)
        known = all(a is not None and b is not None for a, b in points)
        text.append(
            Row(
                "points at which STLT is ahead of SLB", "", float(ahead) if known else None,
                float(len(points)), "", "section IV-D1: consistently across all applications",
                panel="text", average=True, tolerance=0.0, deviation=MISSES,
            )
        )  # fmt: skip
        return rows + text
