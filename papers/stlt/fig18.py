"""Figure 18: fast hashes on Redis."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import SCALED, Case, Found, runs
from .printed import HASHES, VARIATION

FAST = ("xxh3", "xxh64", "murmur", "djb2", "siphash")
CASES = {name: Case("Redis", "STLT", fast_hash=name) for name in FAST}


class Figure18(Figure):
    title = "Speedup and misses on Redis by the fast hash"
    place = "figure 18, section IV-D3"
    about = SCALED + "Zipf, values of 64 bytes. The dictionary keeps SipHash."
    timing = True
    deviation = HASHES
    panels = (
        Panel(Bars("speedup"), "speedup", "Speedup"),
        Panel(Bars("% of the lookups"), "misses", "Misses of the STLT"),
    )

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, CASES.values())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        speed = {name: found.speedup(case) for name, case in CASES.items()}
        misses = {name: found.missed(case) for name, case in CASES.items()}
        rows = [
            Row(name, "STLT", value, panel=panel, unit=unit, failed=found.why(CASES[name]))
            for panel, unit, values in (("speedup", "", speed), ("misses", "%", misses))
            for name, value in values.items()
        ]
        fast = [value for value in speed.values() if value is not None]
        whole = len(fast) == len(FAST)
        varies = 100 * (max(fast) / min(fast) - 1) if whole else None
        rows.append(
            VARIATION.row("fastest over slowest", "", varies, "%", panel="text", average=True)
        )
        lost = [value for value in misses.values() if value is not None]
        stated = (
            ("siphash is the slowest", speed["siphash"] == min(fast, default=None)),
            ("siphash misses least", misses["siphash"] == min(lost, default=None)),
            ("murmur misses most", misses["murmur"] == max(lost, default=None)),
            (
                "murmur is faster than siphash",
                (speed["murmur"] or 0) > (speed["siphash"] or 0),
            ),
        )  # fmt: skip
        return rows + [
            Row(
                name, "", float(holds) if whole else None, 1.0, "", "section IV-D3",
                panel="text", average=True, tolerance=0.0,
            )
            for name, holds in stated
        ]  # fmt: skip
