"""Texts of a chart: their widths, and positions without overlap."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import altair as alt
import polars as pl

from pagewalk.view.palette import INK

_NARROW, _WIDE = "fijltI.,:;|!'()[]/ -", "mwMW%@"
_SYMBOL = 2.6
"""Width of a legend entry's symbol with its margins, in font sizes."""


def width(text: str, font: float) -> float:
    """Upper estimate of a text's width at a font size, both in pixels.

    The widths are those of Helvetica and of the fonts that have its metrics, by kind of letter.
    """
    units = sum(
        0.34
        if c in _NARROW
        else 0.9
        if c in _WIDE
        else 0.7
        if c.isupper()
        else 0.57
        if c.isascii()
        else 1.0
        for c in text
    )
    return units * font


def short(text: str, letters: float) -> str:
    """The text, or its beginning if it has more than `letters` letters."""
    return text if len(text) <= letters else text[: max(1, int(letters) - 1)] + "…"


def lines(text: str, letters: int) -> list[str]:
    """A name in lines of at most `letters` letters, broken after punctuation if possible."""
    broken: list[str] = [""]
    for piece in re.findall(r"[^\[\],.=/_ -]*[\[\],.=/_ -]?", text):
        rest = piece
        if len(broken[-1]) + len(rest) > letters and broken[-1]:
            broken.append("")
        while len(rest) > letters:
            broken[-1], rest = rest[:letters], rest[letters:]
            broken.append("")
        broken[-1] += rest
    return [line for line in broken if line] or [""]


def columns(names: Sequence[str], room: float, font: float) -> int:
    """Columns of a legend of `room` pixels: all entries in one line if they fit."""
    widths = [width(name, font) + _SYMBOL * font for name in names]
    if sum(widths) <= room:
        return max(1, len(names))
    return max(1, int(room // max(widths)))


def nice(most: float) -> float:
    """The end of an axis from 0 to at least `most`: a multiple of the step of its marks."""
    step = 10 ** math.floor(math.log10(most / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if most / (factor * step) <= 7)
    return float(f"{math.ceil(most / step - 1e-9) * step:.12g}")


def apart(wanted: Sequence[float], gap: float, end: float) -> list[float]:
    """Positions from 0 to `end`, close to those `wanted`, at least `gap` apart.

    If there is no room for all, they extend beyond the end.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Labels that would overlap form a group around the mean of their wanted positions.
    groups: list[tuple[float, list[int]]] = []
    for i in order:
        groups.append((wanted[i], [i]))
        while len(groups) > 1 and _end(groups[-2], gap) > _start(groups[-1], gap):
            (one, first), (other, second) = groups[-2:]
            both = [*first, *second]
            centre = (one * len(first) + other * len(second)) / len(both)
            groups[-2:] = [(centre, both)]
        # A group begins at 0 or later, and ends at `end` or earlier.
        centre, members = groups[-1]
        half = gap * len(members) / 2
        groups[-1] = (max(half, min(centre, end - half)), members)
        while len(groups) > 1 and _end(groups[-2], gap) > _start(groups[-1], gap):
            (_, first), (_, second) = groups[-2:]
            both = [*first, *second]
            half = gap * len(both) / 2
            centre = sum(wanted[j] for j in both) / len(both)
            groups[-2:] = [(max(half, min(centre, end - half)), both)]
    places = [0.0] * len(wanted)
    for group in groups:
        for step, i in enumerate(group[1]):
            places[i] = _start(group, gap) + gap * (step + 0.5)
    return places


def _start(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] - gap * len(group[1]) / 2


def _end(group: tuple[float, list[int]], gap: float) -> float:
    return group[0] + gap * len(group[1]) / 2


def at_ends(
    ends: Sequence[tuple[str, float, float]],
    *,
    x: Callable[[float], float],
    y: Callable[[float], float],
    right: float,
    height: float,
    font: float,
    colour: alt.Color,
    field: str = "design",
) -> list[alt.Chart]:
    """The name of each line to the right of its end, with a leader from the end to the name.

    `ends` are names with the two coordinates of their lines' ends. `colour` is the colour of the
    lines by their names in `field`. `x` and `y` convert coordinates to pixels, in a plot of the
    width `right` and of that `height`.
    """
    places = apart([y(value) for _, _, value in ends], 1.2 * font, height)
    rows: list[dict[str, Any]] = []
    for (name, at, value), place in zip(ends, places, strict=True):
        for order, (across, down) in enumerate(
            [(x(at), y(value)), (right + 4, y(value)), (right + 14, place), (right + 20, place)]
        ):
            rows.append({field: name, "left": across, "top": down, "order": order})
    points = alt.Chart(pl.DataFrame(rows))
    left: Any = alt.X("left:Q", scale=None, axis=None)
    top: Any = alt.Y("top:Q", scale=None, axis=None)
    leaders = points.mark_line(strokeWidth=1.3).encode(x=left, y=top, color=colour, order="order:Q")
    names = (
        points.transform_filter("datum.order == 3")
        .mark_text(align="left", dx=3, fontSize=font, color=INK)
        .encode(x=left, y=top, text=f"{field}:N")
    )
    return [leaders, names]
