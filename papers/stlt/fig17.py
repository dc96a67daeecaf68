"""Figure 17: speedup by associativity and size."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import KERNELS, SCALED, Found, runs
from .printed import ASSOCIATIVITY, EIGHT_MISSES, EIGHT_WAYS, ONE_WAY
from .sizes import by_size, containers, sizes, swept

WAYS = (1, 2, 4, 8)


class Figure17(Figure):
    title = "Speedup of 1-, 2-, 4- and 8-way STLTs"
    place = "figure 17, section IV-D2"
    about = (
        SCALED + "Zipf, values of 64 bytes. Table III's cycles are for 4 ways; each way more takes "
        "one more here (the paper gives no number), and 8 ways are two lines."
    )
    timing = True
    panels = by_size("speedup", KERNELS)

    def runs(self, paper: Paper) -> Runs:
        return runs(
            paper,
            (
                c
                for p in containers(paper)
                for w in WAYS
                for c in swept(paper, p, "STLT", w).values()
            ),
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for program in containers(paper):
            for ways in WAYS:
                rows += [
                    Row(
                        str(size), f"{ways}-way", found.speedup(case), panel=program,
                        failed=found.why(case),
                    )
                    for size, case in swept(paper, program, "STLT", ways).items()
                ]  # fmt: skip
        for ways in WAYS:
            rows += [
                Row(str(size), f"{ways}-way", found.missed(case), unit="%", panel="misses")
                for size, case in swept(paper, "map", "STLT", ways).items()
            ]
        return rows + self._stated(paper, found)

    def _stated(self, paper: Paper, found: Found) -> list[Row]:
        by_ways = {ways: swept(paper, "dhash", "STLT", ways) for ways in WAYS}
        rows = []

        def faster(size: int, ways: int) -> float | None:
            ratio = found.over(by_ways[ways][size], by_ways[4][size])
            return None if ratio is None else 100 * (ratio - 1)

        for size in sizes(paper):
            if size <= 64:
                rows.append(
                    ONE_WAY.row(
                        f"dhash, {size} MB: 1 way over 4", "", faster(size, 1), "%",
                        panel="text", average=True,
                    )
                )  # fmt: skip
            if size == 16:
                rows.append(
                    EIGHT_WAYS.row(
                        "dhash, 16 MB: 8 ways over 4", "", faster(size, 8), "%",
                        panel="text", average=True,
                    )
                )  # fmt: skip
            if size >= 128:
                eight = found.missed(swept(paper, "map", "STLT", 8)[size])
                four = found.missed(swept(paper, "map", "STLT", 4)[size])
                fewer = 100 * (1 - eight / four) if eight is not None and four else None
                rows.append(
                    EIGHT_MISSES.row(
                        f"{size} MB: misses that 8 ways save of 4", "", fewer, "%",
                        panel="text", average=True,
                    )
                )  # fmt: skip
        best = self._best(paper, found)
        rows.append(
            Row(
                "points at which 4 ways are best or second best", "", best,
                float(len(containers(paper)) * len(sizes(paper))), "", "section IV-D2: at all",
                panel="text", average=True, tolerance=0.0, deviation=ASSOCIATIVITY,
            )
        )  # fmt: skip
        return rows

    @staticmethod
    def _best(paper: Paper, found: Found) -> float | None:
        good = 0
        for program in containers(paper):
            for size in sizes(paper):
                cycles = {
                    ways: found.cycles(swept(paper, program, "STLT", ways)[size]) for ways in WAYS
                }
                known = sorted(value for value in cycles.values() if value is not None)
                if len(known) < len(WAYS):
                    return None
                good += known.index(cycles[4]) < 2  # type: ignore[arg-type]
        return float(good)
