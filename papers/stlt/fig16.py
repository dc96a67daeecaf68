"""Figure 16: TLB misses that are saved, by the table's size."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import PROGRAMS, SCALED, Found, runs
from .printed import MISSES, MORE_THAN_DENSE
from .sizes import by_size, sizes, swept


class Figure16(Figure):
    title = "TLB misses saved by the table's size"
    place = "figure 16, section IV-D1"
    about = (
        SCALED + "Walks a request, of the program. The text: what is saved goes with the speedup, "
        "within a program and among programs, but for Redis; the rows of pairs count that."
    )
    timing = True
    deviation = MISSES
    panels = by_size("% saved")

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, (c for p in PROGRAMS for c in swept(paper, p, "STLT").values()))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        pairs = right = 0
        for program in PROGRAMS:
            cases = swept(paper, program, "STLT")
            saved = [found.saved(case, "walks") for case in cases.values()]
            speed = [found.speedup(case) for case in cases.values()]
            rows += [
                Row(str(size), program, value, unit="%", failed=found.why(case))
                for (size, case), value in zip(cases.items(), saved, strict=True)
            ]
            for i in range(len(saved) - 1):
                a, b, c, d = saved[i], saved[i + 1], speed[i], speed[i + 1]
                if a is not None and b is not None and c is not None and d is not None:
                    pairs += 1
                    right += (b > a) == (d > c)
        whole = len(PROGRAMS) * (len(sizes(paper)) - 1)
        rows.append(
            Row(
                "neighbouring sizes between which both go the same way", "",
                float(right) if pairs == whole else None, float(whole), "",
                "section IV-D1: mostly the same", panel="text", average=True, tolerance=0.2,
            )
        )  # fmt: skip
        largest = max(sizes(paper))
        redis, dense = (
            found.saved(swept(paper, program, "STLT")[largest], "walks")
            for program in ("Redis", "dhash")
        )
        more = None if redis is None or dense is None else redis - dense
        rows.append(
            MORE_THAN_DENSE.row(
                "Redis saves more than dense_hash_map", "", more, "points", panel="text",
                average=True,
            )
        )  # fmt: skip
        return rows
