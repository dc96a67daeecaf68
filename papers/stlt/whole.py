"""Averages with all of the paper's keys, and what recovers the gaps."""

from __future__ import annotations

from collections.abc import Mapping

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, EARLIER, HASHED, KERNELS, TREES, Case, Found, mean_row, runs
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
    REDIS_MEAN,
    TABLE_5,
    TREE_TABLES,
    UNIFORM,
    Said,
)  # fmt: skip

VALUE = 128
SLB, STLT = "SLB", "STLT"
AT_ONCE, ALL = "reply before the row", "and all records in the table"
SERIES: dict[str, Case] = {
    SLB: Case("", "SLB", fewer=1, value=VALUE),
    STLT: Case("", "STLT", fewer=1, value=VALUE),
    AT_ONCE: Case(
        "", "STLT", fewer=1, value=VALUE, keys=(("shortcut.stlt.waits_for_set", False),)
    ),
    ALL: Case(
        "", "STLT", fewer=1, value=VALUE, keys=(("shortcut.stlt.waits_for_set", False),),
        params=(("earlier", str(8 * EARLIER)),),
    ),
}  # fmt: skip
"""The tables as they are; with `loadVA` that replies before its row arrives; and with more earlier
requests, so that few records have no row."""
PARTS = {case: case.of(fewer=1) for case in FIGURE_19.values()}
"""The cases of figure 19, with all keys."""


def redis() -> list[Case]:
    """The nine workloads of figure 11 with each table."""
    return [
        Case("Redis", table, distribution, value, fewer=1)
        for distribution in DISTRIBUTIONS
        for value in REDIS_VALUES
        for table in (SLB, STLT)
    ]


def containers() -> dict[tuple[str, str, str], Case]:
    """Four containers and three distributions with each series; new keys have to be missed."""
    return {
        (series, program, name): case.of(program=program, distribution=name)
        for series, case in SERIES.items()
        for program in KERNELS
        for name in DISTRIBUTIONS
        if (series, name) != (ALL, "latest")
    }


class Whole(Figure):
    title = "Figures 11, 13 and 19 (left) with 10 million keys"
    place = "figures 11, 13 and 19 (left), table V, and ours"
    about = (
        "10 million keys and 80 million requests before, as in the paper, at every scale; "
        "containers with values of 128 bytes. Reply before the row: loadVA answers after its "
        "six cycles, and its row is fetched beside, as in a simulator that is given the load but "
        "not what depends on it. All records: 640 million requests before."
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
        text = [mean_row(of_redis, STLT, REDIS_MEAN, "Redis", "text")]
        text.append(mean_row(of_redis, SLB, None, "Redis", "text"))
        text += _of_kind(bars, "hash tables", HASHED, HASH_TABLES, HASH_BY_DISTRIBUTION)
        text += _of_kind(bars, "trees", TREES, TREE_TABLES, {})
        for program in KERNELS:
            for series in SERIES:
                one = [row for (_, p, _), row in bars.items() if p == program]
                text.append(mean_row(one, series, None, program, "text"))
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
    """Means of hash tables or trees, and which part of the gap the reply before the row closes."""
    of_kind = [row for (_, p, _), row in bars.items() if p in programs]
    # All records have no `latest`: the paper's mean is of three distributions.
    said = tables[STLT]
    means = {SLB: tables[SLB], STLT: said, AT_ONCE: said, ALL: None}
    text = [mean_row(of_kind, s, means[s], name, "text") for s in SERIES]
    own, other = (text[list(SERIES).index(series)].value for series in (STLT, AT_ONCE))
    part = None
    if own is not None and other is not None:
        part = 100 * (other - own) / (said.value - own)
    text.append(Row(name, f"of the gap, {AT_ONCE}", part, unit="%", panel="text", average=True))
    for distribution in DISTRIBUTIONS:
        one = [row for (_, p, d), row in bars.items() if p in programs and d == distribution]
        printed = by_distribution.get(distribution)
        text += [
            mean_row(
                one, series, None if series == SLB else printed, f"{name}, {distribution}", "text"
            )
            for series in SERIES
            if (series, distribution) != (ALL, "latest")
        ]
    return text
