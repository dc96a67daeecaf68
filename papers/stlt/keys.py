"""How the speedup grows with the keys, of a whole GET and of the lookup alone."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Lines, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import KEYS, Case, Found, runs

PROGRAMS = ("Redis", "umap", "dhash", "map")
FEWER = (32, 8, 1)
SERIES = {"whole GET": (), "lookup alone": (("reply", "none"),)}


def case(program: str, series: str, fewer: int) -> Case:
    """Zipf, values of 64 bytes, an STLT of 53.7 bytes a key."""
    return Case(program, "STLT", params=SERIES[series], fewer=fewer)


class Keys(Figure):
    title = "Speedup by the number of keys"
    place = "ours"
    about = (
        "Zipf, values of 64 bytes, STLT of 53.7 bytes a key and eight requests before a key: the "
        "last point is the paper's size at every scale. Lookup alone: the value is not read."
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
