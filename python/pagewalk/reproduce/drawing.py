"""Figures as the paper draws them: our bars, and its numbers where it gives any."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from pagewalk import charts, colours
from pagewalk.reproduce.figure import Bars, Figure, Lines, Panel, Row

_BAR = 13
_GAP = 10
_NARROWEST, _WIDEST = 460, 1180
_HEIGHT = 260
_MARK = "paper's number"


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
            opacity="independent",
            shape="independent",
        )
        .properties(
            title=alt.TitleParams(
                figure.title,
                subtitle=[figure.place, note],
                anchor="start",
                fontSize=16,
                color=charts.INK,
                subtitleColor=charts.FAINT,
                subtitleFontSize=12,
                offset=16,
            )
        )
    )
    specification: dict[str, Any] = whole.to_dict()
    specification["config"] = charts.CONFIG
    return specification


def svg(specification: dict[str, Any]) -> str:
    """Drawn without a browser and without the network."""
    return charts.drawn(specification)


def png(specification: dict[str, Any]) -> bytes:
    """The same as a picture of pixels."""
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
                "failed": row.failed,
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
            "failed": pl.String,
            "order": pl.Int64,
        },
    )


def _bars(panel: Panel, drawing: Bars, rows: list[Row]) -> alt.LayerChart:
    frame = _frame(rows)
    groups = list(dict.fromkeys(row.group for row in rows))
    series = list(dict.fromkeys(row.series for row in rows))
    parts = list(dict.fromkeys(row.part for row in rows if row.part))
    numbers = [v for row in rows for v in (row.value, row.paper) if v is not None and v > 0]
    y = alt.Y("value:Q", title=drawing.y)
    low = 0.0
    if drawing.log and numbers:
        low = _below(min(numbers))
        y = alt.Y("value:Q", title=drawing.y, scale=alt.Scale(type="log", domainMin=low))
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
    colour = _colours("part", parts) if parts else _colours("series", series)
    base = alt.Chart(frame)
    bars = base.transform_filter("isValid(datum.value)").mark_bar(stroke="white", strokeWidth=0.5)
    encoding: dict[str, Any] = {"x": x, "xOffset": offset, "color": colour, "y": y}
    if parts:
        encoding["order"] = alt.Order("order:Q")
        encoding["opacity"] = _opacities(series)
    if drawing.log:
        encoding["y2"] = alt.datum(low)
        encoding["y"] = y.stack(None)
    layers = [bars.encode(**encoding)]
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
                    legend=alt.Legend(symbolFillColor="black", symbolType="diamond"),
                ),
                color=alt.value("black"),
            )
        )
    if any(row.failed for row in rows):
        layers.append(
            base.transform_filter("datum.failed != ''")
            .mark_text(text="✗", color="#e03131", fontSize=13, dy=-7, fontWeight="bold")
            .encode(x=x, xOffset=offset, y=alt.datum(low))
        )
    whole: alt.LayerChart = alt.layer(*layers).properties(
        width=width, height=_HEIGHT, title=_heading(panel.title)
    )
    return whole


def _room(groups: list[str], width: int) -> bool:
    return max((len(g) for g in groups), default=0) * 7 * len(groups) < width


def _heading(text: str) -> Any:
    return alt.TitleParams(text, anchor="start", fontSize=13, fontWeight="normal", color=charts.INK)


def _colours(name: str, values: list[str]) -> alt.Color:
    return alt.Color(
        f"{name}:N", sort=None, scale=alt.Scale(domain=values, range=_palette(len(values)))
    )


def _palette(count: int) -> list[str]:
    return [colours.DESIGNS[i % len(colours.DESIGNS)] for i in range(count)]


def _opacities(series: list[str]) -> alt.Opacity:
    # Stacked bars of several designs: colours tell the parts, strength the designs.
    steps = [1.0 - 0.45 * i / max(1, len(series) - 1) for i in range(len(series))]
    legend = alt.Legend() if len(series) > 1 else None
    return alt.Opacity(
        "series:N", scale=alt.Scale(domain=series, range=steps), sort=None, legend=legend
    )


def _below(value: float) -> float:
    """A power of ten at or below half of the smallest bar, so that it can be seen."""
    low = 10.0
    while low > value / 2:
        low /= 10
    while low * 10 <= value / 2:
        low *= 10
    return low


def _lines(panel: Panel, drawing: Lines, rows: list[Row]) -> alt.LayerChart:
    frame = _frame([r for r in rows if _number(r.group) is not None]).with_columns(
        x=pl.col("group").cast(pl.Float64)
    )
    series = list(dict.fromkeys(row.series for row in rows))
    x = alt.X("x:Q", title=drawing.x, scale=alt.Scale(type="log" if drawing.log_x else "linear"))
    scale = alt.Scale(type="log" if drawing.log_y else "linear", zero=False)
    colour = _colours("series", series)
    base = alt.Chart(frame)
    lines = base.transform_filter("isValid(datum.value)").mark_line(point=True, strokeWidth=1.8)
    layers = [lines.encode(x=x, y=alt.Y("value:Q", title=drawing.y, scale=scale), color=colour)]
    if any(row.paper is not None for row in rows):
        layers.append(
            base.transform_filter("isValid(datum.paper)")
            .transform_calculate(mark=f'"{_MARK}"')
            .mark_point(filled=True, size=60, opacity=1, color="black")
            .encode(
                x=x,
                y=alt.Y("paper:Q"),
                shape=alt.Shape("mark:N", scale=alt.Scale(domain=[_MARK], range=["diamond"])),
            )
        )
    whole: alt.LayerChart = alt.layer(*layers).properties(
        width=_NARROWEST + 200, height=_HEIGHT, title=_heading(panel.title)
    )
    return whole


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
