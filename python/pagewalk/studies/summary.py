"""Means over seeds of a study's runs, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import polars as pl

from pagewalk.studies.layout import COMPLETE
from pagewalk.studies.point import SEED

CONFIDENCE = 0.95
SPEEDUP = "speedup"


def grouped(
    frame: pl.DataFrame, columns: Sequence[str], numbers: Sequence[str], axes: Sequence[str]
) -> pl.DataFrame:
    """One row for each combination of values of `columns`, in order of appearance.

    `frame` is a study's (`Study.frame`), `axes` are all its axes, and `numbers` the numbers to
    average. Each number has the mean over seeds and, in ``NUMBER_low`` and ``NUMBER_high``, the
    ends of its 95 % confidence interval by Student's t. With one seed, the interval is that of
    samples, if the run has them. Speedups pair two runs of one seed, and are averaged as
    logarithms. ``distinguishable`` is true if the interval excludes 1, and null without one.
    ``seeds`` is the largest number of seeds in a mean, ``runs`` the number of runs, and ``failed``
    the number of runs without numbers.

    If a group contains further axes, a seed's number is its mean over them (the geometric mean of
    speedups). A seed that lacks one of their combinations in `frame` is left out of the group, so
    that all means are over the same combinations.
    """
    groups = [name for name in columns if name != SEED]
    rest = [name for name in axes if name not in (*groups, SEED)]
    # A constant column, so that group_by has a column even if all runs are one group.
    frame = frame.with_columns(pl.lit(value=True).alias("_all"))
    names = ["_all", *groups]
    failed = pl.col("status") != COMPLETE
    cells = frame.group_by([*names, SEED], maintain_order=True).agg(
        pl.len().alias("_runs"),
        *(one for name in numbers for one in _of_seed(name, frame)),
    )
    wanted = frame.group_by(names, maintain_order=True).agg(
        pl.len().alias("runs"),
        failed.sum().cast(pl.Int64()).alias("failed"),
    )
    of_all = frame.select(pl.struct(rest).n_unique()).item() if rest else 1
    made = (
        cells.filter(pl.col("_runs") == of_all)
        .group_by(names, maintain_order=True)
        .agg(
            *(pl.col(name) for name in numbers),
            *(pl.col(end) for name in numbers for end in _ends(name)),
        )
    )
    found = dict(zip(_keys(made, names), made.iter_rows(named=True), strict=True))
    columns_made: dict[str, list[float | None]] = {
        name: [] for number in numbers for name in (number, *_ends(number))
    }
    seeds: list[int] = []
    for key in _keys(wanted, names):
        row = found.get(key, {})
        most = 0
        for number in numbers:
            values = [row.get(name) or [] for name in (number, *_ends(number))]
            mean, low, high, count = _together(*values, logarithms=number == SPEEDUP)
            most = max(most, count)
            for name, value in zip((number, *_ends(number)), (mean, low, high), strict=True):
                columns_made[name].append(value)
        seeds.append(most)
    table = wanted.with_columns(
        pl.Series("seeds", seeds, dtype=pl.Int64()),
        *(pl.Series(name, values, dtype=pl.Float64()) for name, values in columns_made.items()),
    )
    if SPEEDUP in numbers:
        least, most_of_it = (pl.col(end) for end in _ends(SPEEDUP))
        table = table.with_columns(((least > 1) | (most_of_it < 1)).alias("distinguishable"))
    return table.drop("_all")


def _ends(name: str) -> tuple[str, str]:
    return f"{name}_low", f"{name}_high"


def _keys(table: pl.DataFrame, names: Sequence[str]) -> list[tuple[object, ...]]:
    return list(table.select(names).iter_rows())


def _of_seed(name: str, frame: pl.DataFrame) -> list[pl.Expr]:
    """A seed's number, none where a run lacks it; with samples' ends where it is of one run."""
    number = pl.col(name)
    mean = number.log().mean().exp() if name == SPEEDUP else number.mean()
    ends = [
        pl.when(pl.len() == 1).then(pl.col(end).first()) if end in frame.columns else pl.lit(None)
        for end in _ends(name)
    ]
    return [
        pl.when(number.is_not_null().all()).then(mean).alias(name),
        *(
            value.cast(pl.Float64()).alias(end)
            for value, end in zip(ends, _ends(name), strict=True)
        ),
    ]


def _together(
    values: Sequence[float | None],
    lows: Sequence[float | None],
    highs: Sequence[float | None],
    *,
    logarithms: bool,
) -> tuple[float | None, float | None, float | None, int]:
    """The mean of a number's values by seed, the ends of its interval, and their count."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None, None, 0
    if len(known) == 1:
        at = values.index(known[0])
        low, high = (ends[at] if ends else None for ends in (lows, highs))
        return known[0], low, high, 1
    if logarithms:
        mean, low, high = interval([math.log(value) for value in known])
        return math.exp(mean), math.exp(low), math.exp(high), len(known)
    return *interval(known), len(known)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of two values or more, and between which ends it lies with `CONFIDENCE`."""
    count = len(values)
    mean = math.fsum(values) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = student(count - 1) * deviation / math.sqrt(count)
    return mean, mean - half, mean + half


@cache
def student(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Between this and its negative Student's t lies with that confidence.

    The inverse of `within`, by bisection of the angle.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def within(angle: float, freedom: int) -> float:
    """Probability that Student's t lies within ±sqrt(freedom) * tan(angle).

    The finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
    26.7.4.
    """
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = freedom % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (step - 1) / step
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
