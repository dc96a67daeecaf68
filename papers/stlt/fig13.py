"""Figure 13: speedups on the four containers."""

from __future__ import annotations

from collections.abc import Mapping

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, HASHED, KERNELS, SCALED, TREES, Case, Found, mean_row, runs
from .printed import HASH_BY_DISTRIBUTION, HASH_TABLES, LARGEST, OVER_SLB, TREE_TABLES, Said

SERIES = ("SLB", "STLT")
VALUES = (128, 256)


def cases() -> list[Case]:
    """Four containers with each distribution, value size and table."""
    return [
        Case(program, table, name, value)
        for value in VALUES
        for program in KERNELS
        for name in DISTRIBUTIONS
        for table in SERIES
    ]


def label(case: Case) -> str:
    """The paper's label: Z for zipf, L for latest, U for uniform."""
    return f"{case.program} {case.distribution[0].upper()}"


class Figure13(Figure):
    title = "Speedups on the containers"
    place = "figure 13, section IV-C"
    about = (
        SCALED + "Z: zipf, L: latest, U: uniform. Hash tables: umap (std::unordered_map), dhash "
        "(google::dense_hash_map); trees: map (std::map), btree (absl::btree_map)."
    )
    timing = True
    panels = tuple(
        Panel(Bars("speedup"), str(value), f"values of {value} bytes") for value in VALUES
    )

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, cases())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        by_case = {
            case: Row(
                label(case), case.table, found.speedup(case), panel=str(case.value),
                failed=found.why(case),
            )
            for case in cases()
        }  # fmt: skip
        rows = list(by_case.values())
        both: tuple[tuple[str, tuple[str, ...], Mapping[str, Said]], ...] = (
            ("hash tables", HASHED, HASH_TABLES),
            ("trees", TREES, TREE_TABLES),
        )
        text = []
        for name, programs, said in both:
            of_kind = [row for case, row in by_case.items() if case.program in programs]
            text += [mean_row(of_kind, s, said[s], name, "text") for s in SERIES]
        for program in KERNELS:
            one = [row for case, row in by_case.items() if case.program == program]
            text += [mean_row(one, series, None, program, "text") for series in SERIES]
        for name, printed in HASH_BY_DISTRIBUTION.items():
            one = [
                row for case, row in by_case.items()
                if case.program in HASHED and case.distribution == name
            ]  # fmt: skip
            text.append(mean_row(one, "STLT", printed, f"hash tables, {name}", "text"))
        stlt = [row.value for row in rows if row.series == "STLT" and row.value is not None]
        text.append(
            LARGEST.row("largest", "STLT", max(stlt, default=None), panel="text", average=True)
        )
        over = [found.over(c, c.of(table="SLB")) for c in cases() if c.table == "STLT"]
        known = [value for value in over if value is not None]
        gain = 100 * (sum(known) / len(known) - 1) if known else None
        text.append(
            OVER_SLB.row("STLT over SLB, mean gain", "", gain, "%", panel="text", average=True)
        )
        return rows + text
