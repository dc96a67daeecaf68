"""Figures as the paper draws them: our bars, and its numbers where it gives any."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Callable
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from pagewalk.reproduce.figure import Bars, Figure, Lines, Panel, Row
from pagewalk.view import charts, labels, palette

_BAR = 13
_GAP = 10
_NARROWEST, _WIDEST = 460, 1180
_HEIGHT = 260
_LOOK = charts.Look(_WIDEST, 12)
_MARK = "paper's number"
_NOTE_WIDTH = 110
"""Characters of a line below the title."""
_DASHED, _SOLID = [6, 6], [1, 0]
_HIDES = 0.005
"""Lines closer than this share of the values' range cannot be distinguished."""
_MARKS = 9
"""Marks of an axis of sizes, about."""
_LABELS = 0.35
"""Largest share of a drawing's width for names at the ends of its lines."""


def chart(figure: Figure, rows: list[Row], note: str) -> dict[str, Any] | None:
    """The figure as a Vega-Lite specification; None for a table."""
    drawn = [
        picture
        for panel in figure.panels
        if (picture := _panel(panel, [r for r in rows if r.panel == panel.name]))
    ]
    if not drawn:
        return None
    whole = (
        alt.vconcat(*drawn, spacing=34)
        .resolve_scale(
            color="independent",
            xOffset="independent",
            fillOpacity="independent",
            stroke="independent",
            shape="independent",
        )
        .properties(
            title=alt.TitleParams(
                figure.title,
                subtitle=[figure.place, *textwrap.wrap(note, _NOTE_WIDTH)],
                anchor="start",
                fontSize=16,
                color=palette.INK,
                subtitleColor=palette.FAINT,
                subtitleFontSize=12,
                offset=16,
            )
        )
    )
    specification: dict[str, Any] = whole.to_dict()
    specification["config"] = charts.config(_LOOK)
    return specification


def svg(specification: dict[str, Any]) -> str:
    """Drawn without a browser and without the network."""
    return charts.svg(specification)


def png(specification: dict[str, Any]) -> bytes:
    """The chart as a PNG image."""
    white = json.loads(json.dumps(specification))
    white["config"]["background"] = "white"
    data: bytes = vl_convert.vegalite_to_png(charts.harmless(white), scale=2)
    return data


def _panel(panel: Panel, rows: list[Row]) -> alt.LayerChart | None:
    if isinstance(panel.drawing, Bars):
        if not panel.drawing.averages:
            rows = [row for row in rows if not row.average]
        if not any(row.value is not None or row.failed for row in rows):
            return None
        return _bars(panel, panel.drawing, rows)
    if not any(row.value is not None for row in rows):
        return None
    return _lines(panel, panel.drawing, rows)


def _frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "group": row.group,
                "series": row.series,
                "part": row.part,
                "value": row.value,
                "paper": row.paper,
                "low": row.low,
                "high": row.high,
                "failed": row.failed if row.value is None else "",
                "order": i,
            }
            for i, row in enumerate(rows)
        ],
        schema={
            "group": pl.String,
            "series": pl.String,
            "part": pl.String,
            "value": pl.Float64,
            "paper": pl.Float64,
            "low": pl.Float64,
            "high": pl.Float64,
            "failed": pl.String,
            "order": pl.Int64,
        },
    )


def _bars(panel: Panel, drawing: Bars, rows: list[Row]) -> alt.LayerChart:
    frame = _frame(rows)
    groups = list(dict.fromkeys(row.group for row in rows))
    series = list(dict.fromkeys(row.series for row in rows))
    parts = _stacked(rows)
    numbers = [
        v for row in rows for v in (row.value, row.paper, row.high) if v is not None and v > 0
    ]
    y = alt.Y("value:Q", title=drawing.y)
    low = 0.0
    if drawing.log and numbers:
        low = _below(min(numbers), 2 if drawing.sizes else 10)
        scale = alt.Scale(type="log", domainMin=low)
        y = alt.Y("value:Q", title=drawing.y, scale=scale)
        if drawing.sizes:
            axis, scale = _sizes(low, max(numbers), drawing.sizes)
            y = alt.Y("value:Q", title=drawing.y, scale=scale, axis=axis)
    elif drawing.stacked:
        y = alt.Y("value:Q", title=drawing.y, stack="zero")
    width = max(_NARROWEST, min(_WIDEST, len(groups) * (len(series) * _BAR + _GAP)))
    x = alt.X(
        "group:N",
        sort=groups,
        scale=alt.Scale(domain=groups),
        title=None,
        axis=alt.Axis(labelAngle=0 if _room(groups, width) else -35),
    )
    offset = alt.XOffset("series:N", sort=series, scale=alt.Scale(domain=series))
    colour = _colours("part", parts, width) if parts else _colours("series", series, width)
    base = alt.Chart(frame)
    bars = base.transform_filter("isValid(datum.value)").mark_bar(strokeWidth=0.7)
    encoding: dict[str, Any] = {"x": x, "xOffset": offset, "color": colour, "y": y}
    if parts and len(series) > 1:
        encoding["fillOpacity"] = _opacities(series)
        # Seen also where the fill is faint.
        encoding["stroke"] = alt.Stroke("part:N", scale=colour["scale"], legend=None)
    else:
        encoding["stroke"] = alt.value("white")
    if parts:
        encoding["order"] = alt.Order("order:Q")
    if drawing.log:
        encoding["y2"] = alt.datum(low)
        encoding["y"] = y.stack(None)
    layers = [bars.encode(**encoding)]
    if not parts:
        layers += _averages(rows, series, width)
        if any(_spread(row) for row in rows):
            layers.append(
                _spreads(base).encode(x=x, xOffset=offset, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"))
            )
    if any(row.paper is not None for row in rows):
        layers.append(
            base.transform_filter("isValid(datum.paper)")
            .transform_calculate(mark=f'"{_MARK}"')
            .mark_point(filled=True, opacity=1, size=46, stroke="white", strokeWidth=0.8)
            .encode(
                x=x,
                xOffset=offset,
                y=alt.Y("paper:Q"),
                shape=alt.Shape(
                    "mark:N",
                    scale=alt.Scale(domain=[_MARK], range=["diamond"]),
                    legend=alt.Legend(
                        symbolFillColor="black", symbolType="diamond", symbolStrokeWidth=0
                    ),
                ),
                color=alt.value("black"),
            )
        )
    if any(row.failed and row.value is None for row in rows):
        layers.append(
            base.transform_filter("datum.failed != ''")
            .mark_text(text="✗", color=palette.SLOWER, fontSize=13, dy=-7, fontWeight="bold")
            .encode(x=x, xOffset=offset, y=alt.datum(low))
        )
    whole: alt.LayerChart = alt.layer(*layers).properties(
        width=width, height=_HEIGHT, title=_heading(panel.title)
    )
    return whole


def _room(groups: list[str], width: int) -> bool:
    widest = max((labels.width(g, _LOOK.font) for g in groups), default=0)
    return (widest + 6) * len(groups) < width


def _heading(text: str) -> Any:
    return alt.TitleParams(
        text, anchor="start", fontSize=13, fontWeight="normal", color=palette.INK
    )


def _stacked(rows: list[Row]) -> list[str]:
    """All parts of stacked bars, in the order of each bar as far as the bars agree."""
    bars: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        if row.part:
            bars.setdefault((row.group, row.series), {})[row.part] = None
    left = [list(parts) for parts in bars.values()]
    order: list[str] = []
    while left:
        lowest = [parts[0] for parts in left]
        above = {part for parts in left for part in parts[1:]}
        order.append(next((part for part in lowest if part not in above), lowest[0]))
        left = [rest for parts in left if (rest := [p for p in parts if p != order[-1]])]
    return order


def _colours(name: str, values: list[str], width: int, *, named: bool = False) -> alt.Color:
    """A colour for each value, with a legend if they are not `named` in another way."""
    columns = labels.columns(values, width, _LOOK.font)
    return alt.Color(
        f"{name}:N",
        sort=None,
        scale=alt.Scale(domain=values, range=palette.designs(len(values))),
        legend=None if named else alt.Legend(columns=columns),
    )


def _opacities(series: list[str]) -> alt.FillOpacity:
    # Stacked bars of several designs: the colour shows the part, the opacity the design.
    steps = [1.0 - 0.45 * i / max(1, len(series) - 1) for i in range(len(series))]
    legend = alt.Legend(symbolType="circle", symbolFillColor=palette.INK)
    return alt.FillOpacity(
        "series:N", scale=alt.Scale(domain=series, range=steps), sort=None, legend=legend
    )


def _below(value: float, base: int) -> float:
    """A power of the base at or below half of the smallest bar, so that it can be seen."""
    low = float(base)
    while low > value / 2:
        low /= base
    while low * base <= value / 2:
        low *= base
    return low


def _sizes(low: float, high: float, unit: int) -> tuple[alt.Axis, alt.Scale]:
    """A logarithmic axis of sizes, marked at powers of two: 8 KB, 1 MB."""
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    step = max(1, math.ceil((last - first) / _MARKS))
    marks = [2.0**power for power in range(first, last + 1, step)]
    size = f"datum.value * {unit}"
    label = f"format({size}, '~g') + ' B'"
    for power, name in ((10, "KB"), (20, "MB"), (30, "GB"), (40, "TB"), (50, "PB")):
        here = f"format({size} / {1 << power}, '~g') + ' {name}'"
        label = f"{size} >= {1 << power} ? {here} : {label}"
    axis = alt.Axis(values=marks, labelExpr=label, grid=True)
    return axis, alt.Scale(type="log", base=2, domain=[2.0**first, 2.0**last], clamp=True)


def _spread(row: Row) -> bool:
    return row.low is not None and row.high is not None and row.low < row.high


def _spreads(base: alt.Chart) -> alt.Chart:
    """Rules from the smallest to the largest value of the seeds, or over an interval."""
    spread: alt.Chart = base.transform_filter(
        "isValid(datum.low) && datum.low < datum.high"
    ).mark_rule(color="black", strokeWidth=1.1)
    return spread


def _averages(rows: list[Row], series: list[str], width: int) -> list[alt.Chart]:
    """The paper's averages of the other bars, as lines in their series' colours."""
    given = [row for row in rows if row.average and row.paper is not None]
    if len({row.group for row in given}) != 1 or all(row.average for row in rows):
        return []
    largest = max(v for row in rows for v in (row.value, row.paper, row.high) if v is not None)
    frame = pl.DataFrame(
        {
            "series": [row.series for row in given],
            "paper": [float(row.paper or 0.0) for row in given],
        }
    )
    lines = (
        alt.Chart(frame)
        .mark_rule(strokeDash=[5, 3], strokeWidth=1.4)
        .encode(y=alt.Y("paper:Q"), color=_colours("series", series, width))
    )
    printed = (
        alt.Chart(_labelled(given, largest))
        .mark_text(align="left", dx=5, fontSize=11, color=palette.INK)
        .encode(x=alt.value(width), y=alt.Y("paper:Q"), text="text:N")
    )
    return [lines, printed]


def _labelled(given: list[Row], largest: float) -> pl.DataFrame:
    """The lines' numbers, those that lie close together in one label."""
    values = sorted({float(row.paper or 0.0) for row in given})
    near = 0.06 * largest
    close: list[list[float]] = []
    for value in values:
        if close and value - close[-1][-1] < near:
            close[-1].append(value)
        else:
            close.append([value])
    return pl.DataFrame(
        {
            "paper": [sum(of) / len(of) for of in close],
            "text": ["paper " + ", ".join(f"{value:.4g}" for value in of) for of in close],
        }
    )


def _lines(panel: Panel, drawing: Lines, rows: list[Row]) -> alt.LayerChart:
    rows = [row for row in rows if _number(row.group) is not None]
    frame = _frame(rows).with_columns(
        x=pl.col("group").cast(pl.Float64), owners=pl.len().over("group", "paper")
    )
    series = list(dict.fromkeys(row.series for row in rows))
    across = [float(row.group) for row in rows]
    known = [v for row in rows for v in (row.value, row.paper, row.low, row.high) if v]
    width = _NARROWEST + 200
    room = max(labels.width(name, _LOOK.font) for name in series) + 26
    named = _ends(rows, series) if len(series) > 1 and room < _LABELS * width else []
    x = _along("x", drawing.x, drawing.log_x, drawing.sizes_x, across, fixed=bool(named))
    y = _along("value", drawing.y, drawing.log_y, drawing.sizes_y, known, fixed=bool(named))
    colour = _colours("series", series, width, named=bool(named))
    base = alt.Chart(frame)
    lines = base.transform_filter("isValid(datum.value)").mark_line(point=True, strokeWidth=1.8)
    over = _over(rows, series)
    dashes = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=series, range=[_DASHED if s in over else _SOLID for s in series]),
        legend=None,
    )
    layers = [lines.encode(x=alt.X(**x), y=alt.Y(**y), color=colour, strokeDash=dashes)]
    if any(_spread(row) for row in rows):
        band = base.transform_filter("isValid(datum.low)").mark_area(opacity=0.18)
        low = alt.Y(**{**y, "shorthand": "low:Q"})
        ends: dict[str, Any] = {"x": alt.X(**x), "y": low, "y2": alt.Y2("high:Q")}
        layers.append(band.encode(color=colour, **ends))
        layers.append(_spreads(base).encode(**ends))
    if any(row.paper is not None for row in rows):
        layers.append(
            base.transform_filter("isValid(datum.paper)")
            .transform_calculate(mark=f'"{_MARK}"')
            .mark_point(filled=True, size=70, opacity=1, stroke="black", strokeWidth=1)
            .encode(
                x=alt.X(**x),
                y=alt.Y(**{**y, "shorthand": "paper:Q"}),
                shape=alt.Shape(
                    "mark:N",
                    scale=alt.Scale(domain=[_MARK], range=["diamond"]),
                    legend=alt.Legend(
                        symbolFillColor="black", symbolType="diamond", symbolStrokeWidth=0
                    ),
                ),
                # A mark that several series share is black.
                color=alt.condition("datum.owners == 1", colour, alt.value("black")),
            )
        )
    if named:
        width -= round(room)
        place_x, place_y = _pixels(x["scale"], width), _pixels(y["scale"], _HEIGHT)
        layers += labels.at_ends(
            named,
            x=place_x,
            y=lambda value: _HEIGHT - place_y(value),
            right=width,
            height=_HEIGHT,
            font=_LOOK.font,
            colour=colour,
            field="series",
        )
    whole: alt.LayerChart = alt.layer(*layers).properties(
        width=width, height=_HEIGHT, title=_heading(panel.title)
    )
    return whole


def _ends(rows: list[Row], series: list[str]) -> list[tuple[str, float, float]]:
    """The last points of all lines; none if a line has no point in the last group."""
    drawn = [row for row in rows if row.value is not None]
    last = max(float(row.group) for row in drawn)
    ends = [(row.series, last, row.value or 0.0) for row in drawn if float(row.group) == last]
    return ends if [name for name, _, _ in ends] == series else []


def _pixels(scale: alt.Scale, length: float) -> Callable[[float], float]:
    """The position of a value on an axis with a fixed domain, in pixels."""
    low, high = scale["domain"]
    log = scale["type"] == "log"

    def place(value: float) -> float:
        share = math.log(value / low, high / low) if log else (value - low) / (high - low)
        return length * min(1.0, max(0.0, share))

    return place


def _over(rows: list[Row], series: list[str]) -> set[str]:
    """Series whose line lies on the whole of an earlier one's, which it would hide."""
    lines = {s: {r.group: r.value for r in rows if r.series == s} for s in series}
    values = [row.value for row in rows if row.value is not None]
    near = _HIDES * (max(values) - min(values)) if values else 0.0

    def hides(late: str, early: str) -> bool:
        pairs = [(value, lines[early].get(group)) for group, value in lines[late].items()]
        return len(lines[early]) == len(pairs) and all(
            a is not None and b is not None and abs(a - b) <= near for a, b in pairs
        )

    return {s for i, s in enumerate(series) if any(hides(s, early) for early in series[:i])}


def _along(
    name: str, title: str, log: bool, unit: int, values: list[float], *, fixed: bool
) -> dict[str, Any]:
    """An axis: linear, logarithmic, or of sizes in powers of two.

    One that is `fixed` says from where to where it goes.
    """
    about: dict[str, Any] = {"shorthand": f"{name}:Q", "title": title}
    above = [value for value in values if value > 0]
    if log and unit and above:
        axis, scale = _sizes(min(above), max(above), unit)
        return {**about, "axis": axis, "scale": scale}
    if log:
        if fixed and above:
            domain = _around(min(above), max(above), log=True)
            return {**about, "scale": alt.Scale(type="log", domain=domain, nice=False)}
        return {**about, "scale": alt.Scale(type="log")}
    if fixed and values:
        low = min(values) if name == "value" else min(0.0, *values)
        domain = _around(low, max(values), log=False)
        return {**about, "scale": alt.Scale(type="linear", domain=domain, nice=False)}
    return {**about, "scale": alt.Scale(type="linear", zero=False)} if name == "value" else about


def _around(low: float, high: float, *, log: bool) -> list[float]:
    """The ends of an axis that holds both values, with a little room."""
    if log:
        room = max(1.05, (high / low) ** 0.04)
        return [low / room, high * room]
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return [low - room if low else low, high + room]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
