"""Charts of latency histograms: distributions, or percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl

from pagewalk.measurements import histograms
from pagewalk.view import charts, palette

if TYPE_CHECKING:
    from pagewalk.result import Result

Json = dict[str, Any]

_PER_OCTAVE = 4
"""Steps of a histogram's drawing in a doubling of the value."""
_FEW = 4
"""Most designs whose distributions a reader can distinguish in one drawing."""
_MARKS = 6
"""Marks of an axis of magnitudes, at most about."""
_ZERO = 0.5
"""The position of 0 on a logarithmic axis."""


def about_times(result: Result) -> str:
    """A caption of `times`."""
    if len(result.designs) <= _FEW:
        return "The share of the values at each length; both axes favour what is small and rare."
    return (
        "The dot is the median: half of the values are at most as long. 90 % are at most as long "
        "as the mark behind it says, and 99 % as the line's end."
    )


def times(result: Result, look: charts.Look = charts.WIDE) -> Json | None:
    """A small drawing a histogram: the share of the values over their magnitude.

    Of more than a few designs, whose lines would hide each other, a row each with the
    percentiles. Histograms of nothing but zeros are left out.
    """
    drawn: dict[str, list[tuple[str, histograms.Histogram]]] = {}
    for d in result.designs:
        for h in histograms.reported(d.histograms):
            drawn.setdefault(histograms.label(h), []).append((d.name, h))
    drawn = {name: of for name, of in drawn.items() if any(h.largest for _, h in of)}
    if not drawn:
        return None
    order = [d.name for d in result.designs]
    columns = 2 if look.width > 500 else 1
    each = charts.Look(round((look.width - 1.5 * look.font) / columns), look.font)
    single = _distribution if len(order) <= _FEW else _percentiles
    drawings = [single(name, of, order, each) for name, of in drawn.items()]
    return charts.whole(alt.concat(*drawings, columns=columns), look)


def _magnitude(title: str, values: Sequence[float]) -> alt.X:
    """A logarithmic axis over all of them, with a place for 0."""
    low, high = min(values), max(values)
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / _MARKS))
    marks = [2.0**power for power in range(last, first - 1, -step)]
    if low <= _ZERO:
        marks = [*(mark for mark in marks if mark > _ZERO * 2 ** (step / 2)), _ZERO]
    return alt.X(
        "value:Q",
        title=title,
        scale=alt.Scale(type="log", base=2, nice=False, domain=[low, high]),
        axis=alt.Axis(values=marks, labelExpr="datum.value < 1 ? '0' : format(datum.value, ',~r')"),
    )


def _distribution(
    name: str, of: list[tuple[str, histograms.Histogram]], order: list[str], look: charts.Look
) -> alt.Chart:
    rows = [(design, at, share) for design, h in of for at, share in _steps(h)]
    drawn: alt.Chart = (
        alt.Chart(pl.DataFrame(rows, schema=["design", "value", "share"], orient="row"))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=_magnitude(of[0][1].unit, [row[1] for row in rows]),
            y=alt.Y(
                "share:Q",
                title="share",
                scale=alt.Scale(type="sqrt"),
                axis=alt.Axis(format="~p", tickCount=5),
            ),
            strokeDash=charts.dashes(order),
            **charts.of_designs(order, look),
        )
        .properties(width=round(look.width - 5 * look.font), height=130, title=name)
    )
    return drawn


def _percentiles(
    name: str, of: list[tuple[str, histograms.Histogram]], _order: list[str], look: charts.Look
) -> alt.LayerChart:
    place = charts.Rows([design for design, _ in of], look)
    parts = ("p50", "p90", "p99")
    rows = [
        (design, part, max(_ZERO, float(getattr(h, part) or 0)))
        for design, h in of
        for part in parts
    ]
    ends = [(d, *(value for one, _, value in rows if one == d)) for d in place.names]
    values = [row[2] for row in rows]
    x = _magnitude(of[0][1].unit, [min(values) / 1.3, *values, 1.5 * max(values)])
    colour = palette.designs(1)[0]
    spans = (
        alt.Chart(pl.DataFrame(ends, schema=["design", "value", "p90", "p99"], orient="row"))
        .mark_rule(color=colour, strokeWidth=2, yOffset=place.shift)
        .encode(x=x, x2="p99:Q", y=place.y)
    )
    base = alt.Chart(pl.DataFrame(rows, schema=["design", "part", "value"], orient="row"))
    at: Json = {"x": x, "y": place.y}
    dots = base.transform_filter("datum.part == 'p50'").mark_point(
        filled=True, color=colour, opacity=1, size=55, yOffset=place.shift
    )
    marks = base.transform_filter("datum.part == 'p90'").mark_tick(
        color=colour, thickness=2, size=0.7 * place.bar, yOffset=place.shift
    )
    drawn: alt.LayerChart = alt.layer(
        spans, dots.encode(**at), marks.encode(**at), *place.layers()
    ).properties(**place.size, title=name)
    return drawn


def _steps(histogram: histograms.Histogram) -> list[tuple[float, float]]:
    """The lower end of each step of the drawing, and the share of the values in it."""
    shares: dict[int, float] = {}
    for low, _, count in histogram.buckets:
        step = -_PER_OCTAVE if low == 0 else math.floor(math.log2(low) * _PER_OCTAVE + 1e-9)
        shares[step] = shares.get(step, 0.0) + count / histogram.count
    # 0 fills its whole octave, and is none of it below.
    zeros = shares.get(-_PER_OCTAVE, 0.0)
    first = -_PER_OCTAVE if zeros else min(shares) - 1
    # An empty step before and after, so that the first and the last have two sides.
    return [
        (2 ** (step / _PER_OCTAVE), zeros if step < 0 else shares.get(step, 0.0))
        for step in range(first, max(shares) + 2)
    ]
