"""Beyond the paper: an STLT over other page tables, placements and huge pages."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, geometric
from pagewalk.reproduce.figure import Results

from .common import SCALED, Case, Found, runs

PROGRAMS = ("Redis", "umap", "map", "btree")
OVER = ("THP", "khugepaged", "ECPT", "ME-HPT", "Revelator")
WITH = "STLT"


def cases() -> dict[tuple[str, str], Case]:
    """Zipf, values of 64 bytes: each design alone, and with an STLT."""
    found: dict[tuple[str, str], Case] = {}
    for program in PROGRAMS:
        found[program, "radix"] = Case(program, "Original")
        found[program, f"radix, {WITH}"] = Case(program, "STLT")
        for name in OVER:
            found[program, name] = Case(program, "Original", design=name)
            found[program, f"{name}, {WITH}"] = Case(program, "STLT", design=f"{name}, {WITH}")
    return found


class Beyond(Figure):
    title = "An STLT over other designs"
    place = "beyond the paper; huge pages: section V"
    about = (
        SCALED + "Zipf, values of 64 bytes, speedup over radix with 4 KB pages. THP: huge pages "
        "at the first touch in memory that is not fragmented; khugepaged: and what it has "
        "collapsed since. The paper leaves huge pages out since they are costly to make, which is "
        "not charged here."
    )
    timing = True
    panels = (Panel(Bars("speedup over radix")),)

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, cases().values())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = [
            Row(program, name, found.over(case, case.base), failed=found.why(case))
            for (program, name), case in cases().items()
        ]
        names = dict.fromkeys(name for _, name in cases())
        means = {name: geometric(row.value for row in rows if row.series == name) for name in names}
        rows += [Row("GMean", name, value, average=True) for name, value in means.items()]
        for name in ("radix", *OVER):
            alone, both = means[name], means[f"{name}, {WITH}"]
            gain = both / alone if alone and both else None
            rows.append(Row(f"STLT over {name} alone", "", gain, panel="text", average=True))
        return rows
