"""Averages with all of the paper's keys."""

from __future__ import annotations

from collections.abc import Mapping

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, HASHED, KERNELS, TREES, Case, Found, mean_row, runs
from .common import VALUES as REDIS_VALUES
from .fig13 import label
from .fig19 import CASES as FIGURE_19
from .fig19 import order_of_parts
from .printed import (
    FIGURE_11,
    HASH_BY_DISTRIBUTION,
    HASH_TABLES,
    LARGEST,
    MISSES,
    NEAR,
    REDIS,
    TABLE_5,
    TREE_TABLES,
    UNIFORM,
    Said,
)  # fmt: skip

VALUE = 64
SLB, STLT = "SLB", "STLT"
TABLES = (SLB, STLT)
PARTS = {case: case.of(fewer=1) for case in FIGURE_19.values()}
"""The cases of figure 19, with all keys."""


def redis() -> list[Case]:
    """Each value size of figure 11 under zipf, and each distribution with the smallest values."""
    workloads = dict.fromkeys(
        [("zipf", value) for value in REDIS_VALUES] + [(name, VALUE) for name in DISTRIBUTIONS]
    )
    return [
        Case("Redis", table, distribution, value, fewer=1)
        for distribution, value in workloads
        for table in TABLES
    ]


def containers() -> dict[tuple[str, str, str], Case]:
    """Four containers and three distributions with each table."""
    return {
        (table, program, name): Case(program, table, name, VALUE, fewer=1)
        for table in TABLES
        for program in KERNELS
        for name in DISTRIBUTIONS
    }


class Whole(Figure):
    title = "Figures 11, 13 and 19 (left) with 10 million keys"
    place = "figures 11, 13 and 19 (left), table V, and ours"
    about = (
        "10 million keys and 80 million requests before, as in the paper, at every scale, on the "
        "paper's machine. Values of 64 bytes; Redis under zipf also with 128 and 256."
    )
    timing = True
    panels = (
        Panel(Bars("speedup"), "Redis", "Redis"),
        Panel(Bars("speedup"), str(VALUE), f"containers, values of {VALUE} bytes"),
        Panel(Bars("speedup over SLB"), "parts", "parts of an STLT over SLB, zipf, 64 bytes"),
    )

    def runs(self, paper: Paper) -> Runs:
        parts = (*PARTS.values(), *(case.of(table=SLB) for case in PARTS.values()))
        return runs(paper, (*redis(), *containers().values(), *parts))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        of_redis = [
            Row(
                f"{case.distribution} {case.value}B", case.table, found.speedup(case),
                FIGURE_11[case.distribution, case.table][REDIS_VALUES.index(case.value)],
                place="figure 11", panel="Redis", tolerance=NEAR, deviation=REDIS,
                failed=found.why(case),
            )
            for case in redis()
        ]  # fmt: skip
        bars = {
            key: Row(
                label(case), key[0], found.speedup(case), panel=str(VALUE), failed=found.why(case)
            )
            for key, case in containers().items()
        }
        text = [
            mean_row(of_redis, table, _mean_of_bars(table), "Redis", "text") for table in TABLES
        ]
        text += _of_kind(bars, "hash tables", HASHED, HASH_TABLES, HASH_BY_DISTRIBUTION)
        text += _of_kind(bars, "trees", TREES, TREE_TABLES, {})
        for program in KERNELS:
            one = [row for (_, p, _), row in bars.items() if p == program]
            text += [mean_row(one, table, None, program, "text") for table in TABLES]
        most = [row.value for row in bars.values() if row.series == STLT and row.value is not None]
        text.append(
            LARGEST.row("largest", STLT, max(most, default=None), panel="text", average=True)
        )
        parts = [
            Row(
                case.program, case.table, found.over(whole, whole.of(table=SLB)), panel="parts",
                failed=found.why(whole) or found.why(whole.of(table=SLB)),
            )
            for case, whole in PARTS.items()
        ]  # fmt: skip
        text.append(order_of_parts(parts))
        return [*of_redis, *bars.values(), *parts, *text, *self._misses(found)]

    @staticmethod
    def _misses(found: Found) -> list[Row]:
        """Table V."""
        rows = []
        for (name, series), printed in TABLE_5.items():
            case = Case("Redis" if series == STLT else "map", series, name, VALUE, fewer=1)
            value = found.missed(case) if series == STLT else found.missed_in_software(case)
            rows.append(
                Row(
                    f"misses, {name}", series, value, printed, "%", "table V", panel="text",
                    average=True, tolerance=0.1, deviation=UNIFORM if name == "uniform" else MISSES,
                )
            )  # fmt: skip
        return rows


def _of_kind(
    bars: Mapping[tuple[str, str, str], Row],
    name: str,
    programs: tuple[str, ...],
    tables: Mapping[str, Said],
    by_distribution: Mapping[str, Said],
) -> list[Row]:
    """Means of hash tables or trees, of all and by distribution."""
    of_kind = [row for (_, p, _), row in bars.items() if p in programs]
    text = [mean_row(of_kind, table, tables[table], name, "text") for table in TABLES]
    for distribution in DISTRIBUTIONS:
        one = [row for (_, p, d), row in bars.items() if p in programs and d == distribution]
        printed = {STLT: by_distribution.get(distribution)}
        text += [
            mean_row(one, table, printed.get(table), f"{name}, {distribution}", "text")
            for table in TABLES
        ]
    return text


def _mean_of_bars(table: str) -> Said:
    """The mean of the paper's bars of the same workloads of Redis."""
    printed = [
        FIGURE_11[case.distribution, table][REDIS_VALUES.index(case.value)]
        for case in redis()
        if case.table == table
    ]
    mean = sum(printed) / len(printed)
    return Said(round(mean, 3), "figure 11, bars of these", tolerance=NEAR, deviation=REDIS)
