"""Redis with one part of its request after the other around the search."""

from __future__ import annotations

from itertools import accumulate

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import VALUES, Case, Found, runs
from .printed import FIGURE_11, NEAR, REDIS, TLB_SAVED, Said

PARTS = ("key", "reply", "call", "checks", "table", "reset", "arguments")
"""In the order in which the rows add them, nearest to the search first."""
READINGS = {
    "lookup, as in the figures": "lookup",
    "search alone": "search",
    **{
        f"and {request.rpartition('+')[2]}": request
        for request in accumulate(PARTS, "{}+{}".format, initial="search")
        if request != "search"
    },
}
"""The program's `request` by row; the last one executes what `whole` does."""


def case(request: str, value: int) -> Case:
    """Zipf, an STLT of 512 MB."""
    return Case("Redis", "STLT", "zipf", value, params=(("request", request),))


class Requests(Figure):
    title = "Redis by the parts of a request"
    place = "ours; the paper's numbers: figures 11 and 12, section IV-B"
    about = (
        "Each row adds a part of a whole GET to the rows above it. Zipf. Speedups agree within "
        "15 %, saved walks within the paper's range; the paper gives it for values of 128 bytes. "
        "The last column counts the six numbers of a row that agree."
    )
    timing = True

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, (case(r, value) for r in READINGS.values() for value in VALUES))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for title, request in READINGS.items():
            of = []
            for value, printed in zip(VALUES, FIGURE_11["zipf", "STLT"], strict=True):
                one = case(request, value)
                speedup = Said(printed, "figure 11", tolerance=NEAR, deviation=REDIS)
                saved = TLB_SAVED["STLT"]
                failed = found.why(one)
                of += [
                    speedup.row(title, f"{value}B", found.speedup(one), failed=failed),
                    saved.row(
                        title, f"{value}B, saved", found.saved(one, "walks"), "%", failed=failed
                    ),
                ]
            known = all(row.value is not None for row in of)
            fits = sum(row.status.startswith("agrees") for row in of)
            rows += [*of, Row(title, "fits", float(fits) if known else None, note="of 6")]
        return rows
