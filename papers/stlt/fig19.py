"""Figure 19, left: what each part of an STLT is worth, over SLB."""

from __future__ import annotations

from collections.abc import Sequence

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import PROGRAMS, SCALED, Case, Found, mean_row, runs
from .printed import SPEEDUP

SERIES = ("STLT-SW", "STLT-VA", "STLT")
CASES = {(p, s): Case(p, s) for p in PROGRAMS for s in SERIES}


class Figure19(Figure):
    title = "Parts of an STLT over SLB"
    place = "figure 19 (left), section IV-E"
    about = (
        SCALED + "Zipf, values of 64 bytes. STLT-SW: the table in software; STLT-VA: two "
        "instructions, but no translations. The order that the text gives is STLT-SW < SLB < "
        "STLT-VA < STLT."
    )
    timing = True
    deviation = SPEEDUP
    panels = (Panel(Bars("speedup over SLB")),)

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, [*CASES.values(), *(c.of(table="SLB") for c in CASES.values())])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = [
            Row(
                program, series, found.over(case, case.of(table="SLB")),
                failed=found.why(case) or found.why(case.of(table="SLB")),
            )
            for (program, series), case in CASES.items()
        ]  # fmt: skip
        means = [mean_row(rows, series, None) for series in SERIES]
        return [*rows, *means, order_of_parts(rows)]


def order_of_parts(rows: Sequence[Row]) -> Row:
    """The number of pairs of neighbours whose order is the paper's, of rows over SLB."""
    right = 0
    for program in PROGRAMS:
        of = {r.series: r.value for r in rows if r.group == program}
        software, addresses, whole = (of[series] or 0.0 for series in SERIES)
        right += (software < 1) + (addresses > 1) + (whole > addresses)
    known = all(row.value is not None for row in rows)
    return Row(
        "pairs of neighbours in the paper's order", "", float(right) if known else None,
        float(3 * len(PROGRAMS)), "", "section IV-E", panel="text", average=True, tolerance=0.0,
        deviation=SPEEDUP,
    )  # fmt: skip
