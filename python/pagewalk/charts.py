"""Charts of a result, as SVG texts that need nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl
import vl_convert

from pagewalk import colours, histograms
from pagewalk.energy import GROUPS
from pagewalk.quantities import significant
from pagewalk.visible import visible, visible_lines

if TYPE_CHECKING:
    from pagewalk.result import Result

INK, FAINT = "#343a40", "#868e96"
FONT = "Inter, 'Helvetica Neue', Arial, sans-serif"
_WIDTH = 780
_STEP = 30
_MINIMUM_SHARE = 0.002

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": FAINT,
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 12,
        "labelLimit": 260,
        "gridColor": "#e9ecef",
        "domain": False,
        "ticks": False,
        "labelPadding": 6,
        "tickCount": 7,
    },
    "legend": {
        "labelColor": INK,
        "labelFontSize": 12,
        "orient": "bottom",
        "columns": 8,
        "title": None,
        "symbolType": "square",
        "symbolStrokeWidth": 3,
        "labelLimit": 400,
    },
    "range": {"category": colours.DESIGNS},
}
"""How every chart looks."""


def svg(chart: alt.TopLevelMixin) -> str:
    """Draws a chart without a browser and without the network."""
    configured: dict[str, Any] = chart.to_dict()
    configured["config"] = CONFIG
    return drawn(configured)


def drawn(specification: dict[str, Any]) -> str:
    """The SVG of a Vega-Lite specification."""
    # Vega-Lite reads a backslash in a title as an escape: it may make a control of one again.
    return visible_lines(vl_convert.vegalite_to_svg(harmless(specification)))


def harmless(specification: Any) -> Any:
    """The same without control characters: Vega has no way to write all of them, SVG none."""
    if isinstance(specification, dict):
        return {harmless(key): harmless(value) for key, value in specification.items()}
    if isinstance(specification, list):
        return [harmless(value) for value in specification]
    return visible(specification) if isinstance(specification, str) else specification


def speedups(result: Result, *, in_time: bool = False) -> str | None:
    """A bar a design: its speed against the first design's, or of several machines in seconds."""
    speeds = [(d.name, d.speedup_in_time if in_time else d.speedup) for d in result.designs]
    rows = [(name, speed) for name, speed in speeds if speed is not None]
    if len(rows) < 2:
        return None
    frame = pl.DataFrame(rows, schema=["design", "speedup"], orient="row")
    kind = f", {result.speedup_kind}" if result.speedup_kind else ""
    over = f"in time over {result.designs[0].name}" if in_time else f"over {result.reference}"
    base = alt.Chart(frame).encode(
        y=alt.Y("design:N", sort=None, title=None),
        x=alt.X("speedup:Q", title=f"speedup {over}{kind}"),
    )
    bars = base.mark_bar(cornerRadiusEnd=3, height={"band": 0.66}).encode(
        color=alt.condition(
            "datum.speedup < 0.9995", alt.value("#e03131"), alt.value(colours.DESIGNS[0])
        )
    )
    labels = base.mark_text(align="left", dx=5, fontSize=12, color=INK).encode(
        text=alt.Text("speedup:Q", format=".3f")
    )
    one = (
        alt.Chart(pl.DataFrame({"x": [1.0]}))
        .mark_rule(color=FAINT, strokeDash=[4, 3])
        .encode(x="x:Q")
    )
    return svg((bars + one + labels).properties(width=_WIDTH, height=alt.Step(_STEP)))


def cycles(result: Result) -> str | None:
    """A stacked bar a design: cycles an instruction, or a request, by cause."""
    shown = dict.fromkeys(
        s.cause for d in result.designs for s in d.cycle_stack if s.share >= _MINIMUM_SHARE
    )
    order = list(shown)
    rows = [
        (d.name, colours.words(s.cause), s.cycles / work, order.index(s.cause))
        for d in result.designs
        if (work := d.get(f"{result.speedup_by}s"))
        for s in d.cycle_stack
        if s.cause in shown
    ]
    if not rows:
        return None
    palette = {colours.words(cause): colour for cause, colour in colours.causes(order).items()}
    return _stacked(rows, palette, f"cycles {result.per}")


def energies(result: Result) -> str | None:
    """A stacked bar a design: energy for an instruction, or a request, by kind of part."""
    rows = [
        (d.name, GROUPS[group], nanojoules / work, order)
        for d in result.designs
        if d.energy and (work := d.get(f"{result.speedup_by}s"))
        for order, (group, nanojoules) in enumerate(d.energy.groups.items())
    ]
    if not rows:
        return None
    there = {row[1] for row in rows}
    palette = {name: colours.ENERGY[group] for group, name in GROUPS.items() if name in there}
    return _stacked(rows, palette, f"nJ {result.per}")


def _stacked(rows: list[tuple[str, str, float, int]], palette: dict[str, str], title: str) -> str:
    """A stacked bar a design: of design, part, amount and place in the stack."""
    frame = pl.DataFrame(rows, schema=["design", "part", "amount", "order"], orient="row")
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    chart = (
        alt.Chart(frame)
        .mark_bar(height={"band": 0.66})
        .encode(
            y=alt.Y("design:N", sort=None, title=None),
            x=alt.X("amount:Q", title=title),
            color=alt.Color("part:N", sort=None, scale=scale),
            order="order:Q",
        )
        .properties(width=_WIDTH, height=alt.Step(_STEP))
    )
    return svg(chart)


def bars(result: Result, name: str, title: str) -> str | None:
    """A bar a design of one number of the summary."""
    rows = [(d.name, value) for d in result.designs if (value := d.get(name)) is not None]
    if len(rows) < 2 or not any(value for _, value in rows):
        return None
    frame = pl.DataFrame(rows, schema=["design", "value"], orient="row")
    frame = frame.with_columns(
        label=pl.Series([significant(value) for _, value in rows], dtype=pl.String)
    )
    base = alt.Chart(frame).encode(
        y=alt.Y("design:N", sort=None, title=None), x=alt.X("value:Q", title=title)
    )
    drawn = base.mark_bar(cornerRadiusEnd=3, color=colours.DESIGNS[5], height={"band": 0.66})
    labels = base.mark_text(align="left", dx=5, fontSize=12, color=INK).encode(text="label:N")
    return svg((drawn + labels).properties(width=_WIDTH, height=alt.Step(_STEP)))


def interval_lines(result: Result, name: str, title: str) -> str | None:
    """A line a design over the instructions, of one number in each interval.

    Each value is as wide as its interval. One that the end of the measured part cut is drawn
    faintly and has no say in the axis: a ratio over a few instructions may be anything.
    """
    rows: list[tuple[str, float, float, bool, int]] = []
    for d in result.designs:
        # Intervals that were cut stand between those that were not.
        piece, before = 0, True
        for i in d.intervals:
            if name not in i.values or not i.instructions:
                continue
            piece += not (i.complete and before)
            before = i.complete
            ends = (i.first_instruction, i.first_instruction + i.instructions)
            rows += [(d.name, end / 1e6, i.values[name], i.complete, piece) for end in ends]
    if not rows:
        return None
    schema = ["design", "instructions", "value", "complete", "piece"]
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    most = max((r[2] for r in rows if r[3]), default=max(r[2] for r in rows)) or 1.0
    base = alt.Chart(frame).encode(
        x=alt.X("instructions:Q", title="million instructions", scale=alt.Scale(nice=False)),
        y=alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, most], nice=True)),
        color=alt.Color("design:N", sort=None, legend=alt.Legend(symbolOpacity=1)),
        detail="piece:N",
    )
    lines = base.transform_filter("datum.complete").mark_line(strokeWidth=1.8)
    cut = base.transform_filter("!datum.complete").mark_line(
        strokeWidth=1.8, opacity=0.35, clip=True
    )
    return svg((lines + cut).properties(width=_WIDTH + 40, height=200))


_PER_OCTAVE = 4
"""Steps of a histogram's drawing in a doubling of the value."""


def times(result: Result) -> str | None:
    """A small drawing a histogram: the share of the values over their magnitude."""
    drawn: dict[str, list[tuple[str, float, float]]] = {}
    for d in result.designs:
        for h in histograms.told(d.histograms):
            drawn.setdefault(histograms.label(h), []).extend(
                (d.name, at, share) for at, share in _steps(h)
            )
    if not drawn:
        return None
    order = [d.name for d in result.designs]
    colour = alt.Scale(domain=order, range=colours.designs(len(order)))
    charts = [
        alt.Chart(pl.DataFrame(rows, schema=["design", "value", "share"], orient="row"))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x=alt.X(
                "value:Q",
                title="cycles",
                scale=alt.Scale(type="log", base=2, nice=False),
                axis=alt.Axis(
                    tickCount=8,
                    labelOverlap=True,
                    labelExpr="datum.value < 1 ? '0' : format(datum.value, ',~r')",
                ),
            ),
            y=alt.Y(
                "share:Q",
                title="share",
                scale=alt.Scale(type="sqrt"),
                axis=alt.Axis(format="~p", tickCount=5),
            ),
            color=alt.Color("design:N", sort=None, scale=colour),
        )
        .properties(width=(_WIDTH - 90) // 2, height=130, title=name)
        for name, rows in drawn.items()
    ]
    return svg(alt.concat(*charts, columns=2))


def _steps(histogram: histograms.Histogram) -> list[tuple[float, float]]:
    """Where each step of the drawing begins, and the share of the values in it."""
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
