"""Speedup of a whole GET and of the lookup alone, by the number of keys."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Lines, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import EARLIER, KEYS, Case, Found, runs

PROGRAMS = ("Redis", "umap", "map")
FEWER = (32, 8, 1)
WHOLE, LOOKUP, ALL = "whole GET", "lookup alone", "lookup alone, all records in the table"
SERIES = (WHOLE, LOOKUP, ALL)
MORE = 8
"""Times the warm-up, of `ALL`."""


def case(program: str, series: str, fewer: int) -> Case:
    """Zipf, values of 64 bytes, an STLT of 53.7 bytes a key."""
    params = [] if series == WHOLE else [("reply", "none")]
    if series == ALL:
        params.append(("earlier", str(MORE * EARLIER // fewer)))
    return Case(program, "STLT", params=tuple(params), fewer=fewer)


class Keys(Figure):
    title = "Speedup by the number of keys"
    place = "ours"
    about = (
        "Zipf, values of 64 bytes, STLT of 53.7 bytes a key and eight requests before a key: the "
        "last point is the paper's size at every scale. Lookup alone: the value is not read. All "
        "records: eight times the warm-up."
    )
    timing = True
    panels = tuple(
        Panel(Lines("thousand keys", "speedup", log_x=True), program, program)
        for program in PROGRAMS
    )

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, (case(p, s, f) for p in PROGRAMS for s in SERIES for f in FEWER))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for program in PROGRAMS:
            for series in SERIES:
                for fewer in FEWER:
                    one = case(program, series, fewer)
                    group = str(KEYS // fewer // 1000)
                    rows.append(
                        Row(group, series, found.speedup(one), panel=program,
                            failed=found.why(one))
                    )  # fmt: skip
                    cycles = found.cycles(one)
                    rows.append(
                        Row(f"{program}, {group} thousand", f"STLT, {series}", cycles,
                            unit="cycles", panel="cycles")
                    )  # fmt: skip
        return rows
