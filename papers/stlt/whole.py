"""Averages with all of the paper's keys, and what recovers the gaps."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import DISTRIBUTIONS, EARLIER, HASHED, KERNELS, TREES, Case, Found, mean_row, run
from .common import VALUES as REDIS_VALUES
from .fig13 import label
from .printed import (
    FIGURE_11,
    HASH_BY_DISTRIBUTION,
    HASH_TABLES,
    LARGEST,
    NEAR,
    REDIS,
    REDIS_MEAN,
    TREE_TABLES,
)  # fmt: skip

VALUE = 128
STLT, AT_ONCE, ALL = "STLT", "reply before the row", "and all records in the table"
SERIES: dict[str, Case] = {
    STLT: Case("", "STLT", fewer=1, value=VALUE),
    AT_ONCE: Case(
        "", "STLT", fewer=1, value=VALUE, keys=(("shortcut.stlt.waits_for_set", False),)
    ),
    ALL: Case(
        "", "STLT", fewer=1, value=VALUE, keys=(("shortcut.stlt.waits_for_set", False),),
        params=(("earlier", str(8 * EARLIER)),),
    ),
}  # fmt: skip
"""The table as it is; `loadVA` that replies before its row has come; and eight times as many
requests before, so that hardly a record is asked for the first time."""


def redis() -> list[Case]:
    """The nine workloads of figure 11."""
    return [
        Case("Redis", "STLT", distribution, value, fewer=1)
        for distribution in DISTRIBUTIONS
        for value in REDIS_VALUES
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


def base(case: Case) -> Case:
    """Without a table: what requests before leave does not matter then."""
    return case.base.of(keys=(), params=())


class Whole(Figure):
    title = "The averages of figures 11 and 13 with 10 million keys"
    place = "figures 11 and 13, and ours"
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
    )

    def runs(self, paper: Paper) -> Runs:
        both = [c for case in (*redis(), *containers().values()) for c in (base(case), case)]
        return Runs({(c.program, repr(c)): run(paper, c) for c in dict.fromkeys(both)})

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)

        def row(case: Case, group: str, series: str, panel: str) -> Row:
            why = found.outcome(case).why or found.outcome(base(case)).why
            return Row(group, series, found.over(case, base(case)), panel=panel, failed=why)

        of_redis = []
        for case in redis():
            printed = FIGURE_11[case.distribution, "STLT"][REDIS_VALUES.index(case.value)]
            value = found.over(case, base(case))
            of_redis.append(
                Row(f"{case.distribution} {case.value}B", STLT, value, printed, "", "figure 11",
                    panel="Redis", tolerance=NEAR, deviation=REDIS,
                    failed=found.outcome(case).why or found.outcome(base(case)).why)
            )  # fmt: skip
        by_case = {
            key: row(case, label(case), key[0], str(VALUE)) for key, case in containers().items()
        }
        text = [mean_row(of_redis, STLT, REDIS_MEAN, "Redis", "text")]
        kinds = (("hash tables", HASHED, HASH_TABLES[STLT]), ("trees", TREES, TREE_TABLES[STLT]))
        for name, programs, said in kinds:
            # Without `latest`, which has no row for all records, by the side.
            means: dict[str, float | None] = {}
            for series in SERIES:
                of_kind = [r for (_, p, _), r in by_case.items() if p in programs]
                printed_too = None if series == ALL else said
                text.append(mean_row(of_kind, series, printed_too, name, "text"))
                means[series] = text[-1].value
            own, other = means[STLT], means[AT_ONCE]
            known = own is not None and other is not None
            part = 100 * (other - own) / (said.value - own) if known else None  # type: ignore[operator]
            text.append(
                Row(name, f"of the gap, {AT_ONCE}", part, unit="%", panel="text", average=True)
            )
            for distribution in DISTRIBUTIONS:
                for series in SERIES:
                    value = mean(
                        r.value for (s, p, d), r in by_case.items()
                        if (s, d) == (series, distribution) and p in programs
                    )  # fmt: skip
                    group = f"{name}, {distribution}"
                    if name == "hash tables":
                        text.append(
                            HASH_BY_DISTRIBUTION[distribution].row(
                                group, series, value, panel="text", average=True
                            )
                        )
                    elif value is not None:
                        text.append(Row(group, series, value, panel="text", average=True))
        for program in KERNELS:
            for series in SERIES:
                one = [r for (_, p, _), r in by_case.items() if p == program]
                text.append(mean_row(one, series, None, program, "text"))
        most = [r.value for r in by_case.values() if r.series == STLT and r.value is not None]
        text.append(
            LARGEST.row("largest", STLT, max(most, default=None), panel="text", average=True)
        )
        return [*of_redis, *by_case.values(), *text]
