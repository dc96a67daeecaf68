"""Charts of a result, as SVG texts that need nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl
import vl_convert

from pagewalk.measurements.energy import GROUPS
from pagewalk.view import causes, labels, palette
from pagewalk.view.escape import visible, visible_lines
from pagewalk.view.palette import FAINT, GRID, INK
from pagewalk.view.quantities import significant

if TYPE_CHECKING:
    from pagewalk.result import Result

Json = dict[str, Any]

FONT = "'Liberation Sans', Arial, Helvetica, sans-serif"
"""A font with the same widths on every system; labels are placed by them."""
_MINIMUM_SHARE = 0.002


@dataclass(frozen=True)
class Look:
    """The format of a chart: its width and its font size, in pixels."""

    width: int
    font: float = 13

    @property
    def letters(self) -> float:
        """Letters in a line of the whole width, about."""
        return self.width / labels.width("n", self.font)


WIDE, NARROW = Look(800), Look(300, 12)
"""Formats of a page, and of a page on a telephone."""
COLUMN = Look(320, 10.5)
"""Format of a column of a paper: 3.33 inches at 96 pixels an inch, letters of 8 points."""


def config(look: Look) -> Json:
    """The style that all charts share, as a Vega-Lite config."""
    return {
        "font": FONT,
        "background": None,
        "view": {"stroke": None},
        "aria": False,
        "axis": {
            "labelColor": INK,
            "titleColor": FAINT,
            "titleFontWeight": "normal",
            "titleFontSize": look.font,
            "labelFontSize": look.font,
            "labelLimit": 0.4 * look.width,
            "titleLimit": look.width,
            "gridColor": GRID,
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
            "tickCount": 7 if look.width > 500 else 4,
        },
        "legend": {
            "labelColor": INK,
            "labelFontSize": look.font,
            "orient": "bottom",
            "columns": 8,
            "title": None,
            "symbolType": "square",
            "symbolStrokeWidth": 3,
            "labelLimit": 0.8 * look.width,
        },
        "title": {"color": INK, "fontSize": look.font, "fontWeight": "normal"},
        "range": {"category": palette.designs(10)},
    }


_NUMBERED = re.compile(r"(?<=id=\")clip\d+|(?<=url\(#)clip\d+")


def svg(specification: Json) -> str:
    """Draws a Vega-Lite specification without a browser and without the network."""
    # Vega-Lite reads a backslash in a title as an escape: it may make a control of one again.
    text = visible_lines(vl_convert.vegalite_to_svg(harmless(specification)))
    # Vega numbers the clips of all charts of a process; renumbered, equal charts are equal texts.
    known: dict[str, str] = {}
    return _NUMBERED.sub(lambda found: known.setdefault(found[0], f"clip{len(known)}"), text)


def harmless(specification: Any) -> Any:
    """The specification with control characters escaped: Vega and SVG cannot hold them."""
    if isinstance(specification, dict):
        return {harmless(key): harmless(value) for key, value in specification.items()}
    if isinstance(specification, list):
        return [harmless(value) for value in specification]
    return visible(specification) if isinstance(specification, str) else specification


def whole(chart: alt.TopLevelMixin, look: Look) -> Json:
    """The specification of a chart, with the style that all charts share."""
    specification: Json = chart.to_dict()
    specification["config"] = config(look)
    return specification


@dataclass(frozen=True)
class Rows:
    """Rows of designs: each name beside its bar if there is room, else above it."""

    names: list[str]
    look: Look

    @property
    def beside(self) -> bool:
        """True if names stand beside their bars."""
        return self._longest <= 0.3 * self.look.width

    @property
    def _longest(self) -> float:
        return max(labels.width(name, self.look.font) for name in self.names)

    @property
    def bar(self) -> float:
        """Thickness of a bar."""
        return round((1.5 if self.beside else 1.2) * self.look.font)

    @property
    def _lines(self) -> list[list[str]]:
        letters = int(0.95 * self.look.letters)
        return [labels.lines(name, letters) for name in self.names]

    @property
    def _text(self) -> float:
        """Height of the names above bars; 0 if they stand beside."""
        return 0 if self.beside else 1.25 * self.look.font * max(len(n) for n in self._lines) + 2

    @property
    def width(self) -> int:
        """Width of the plot, without the names."""
        return round(self.look.width - (self._longest + 20 if self.beside else 16))

    @property
    def size(self) -> Json:
        """Size of the plot, with a step for each row."""
        step = self.bar + self._text + (0.75 if self.beside else 1) * self.look.font
        return {"width": self.width, "height": alt.Step(round(step))}

    @property
    def shift(self) -> float:
        """Distance of a bar below the middle of its row."""
        return self._text / 2

    @property
    def y(self) -> alt.Y:
        """The axis of the designs."""
        return alt.Y("design:N", sort=self.names, title=None, **({} if self.beside else _BARE))

    def layers(self) -> list[alt.Chart]:
        """The names, where no axis has them: each right above its bar."""
        if self.beside:
            return []
        height = 1.25 * self.look.font
        y = alt.Y("design:N", sort=self.names, bandPosition=0, title=None, axis=None)
        most = max(len(lines) for lines in self._lines)
        named = list(zip(self.names, self._lines, strict=True))
        drawn = []
        for number in sorted({len(lines) for lines in self._lines}):
            rows = [(name, lines) for name, lines in named if len(lines) == number]
            frame = pl.DataFrame(rows, schema=["design", "lines"], orient="row")
            text = alt.Chart(frame).mark_text(
                align="left", baseline="top", fontSize=self.look.font, color=INK,
                lineHeight=height, dy=2 + (most - number) * height,
            )  # fmt: skip
            drawn.append(text.encode(y=y, x=alt.value(0), text="lines:N"))
        return drawn


_BARE: Json = {"axis": None}


def speedups(result: Result, look: Look = WIDE, *, in_time: bool = False) -> Json | None:
    """A bar a design: its speed against the first design's, or of several machines in seconds."""
    speeds = [(d.name, d.speedup_in_time if in_time else d.speedup) for d in result.designs]
    values = [(name, speed) for name, speed in speeds if speed is not None]
    if len(values) < 2:
        return None
    kind = f", {result.speedup_kind}" if result.speedup_kind else ""
    first = labels.short(result.designs[0].name, look.letters * 0.5)
    over = first if in_time or not result.machines else result.reference
    title = f"speedup {'in time ' if in_time else ''}over {over}{kind}"
    slower = [name for name, value in values if value < 0.9995]
    marked = [(name, value, f"{value:.3f}") for name, value in values]
    return _bars(marked, title, look, slower=slower, one=True)


def bars(result: Result, name: str, title: str, look: Look = WIDE) -> Json | None:
    """A bar a design of one number of the summary."""
    values = [(d.name, value) for d in result.designs if (value := d.get(name)) is not None]
    if not any(value for _, value in values):
        return None
    return _bars([(name, value, significant(value)) for name, value in values], title, look)


def _bars(
    rows: list[tuple[str, float, str]],
    title: str,
    look: Look,
    *,
    slower: Sequence[str] = (),
    one: bool = False,
) -> Json:
    """A bar a design, with its value behind it; those that are `slower` in another colour."""
    place = Rows([row[0] for row in rows], look)
    longest = max(labels.width(row[2], look.font) for row in rows) + 8
    most = max(row[1] for row in rows) or 1.0
    scale = alt.Scale(domain=[0, most * place.width / (place.width - longest)], nice=False)
    frame = pl.DataFrame(
        [(*row, row[0] in slower) for row in rows],
        schema=["design", "value", "label", "slower"],
        orient="row",
    )
    base = alt.Chart(frame).encode(y=place.y, x=alt.X("value:Q", title=title, scale=scale))
    drawn = base.mark_bar(cornerRadiusEnd=3, height=place.bar, yOffset=place.shift).encode(
        color=alt.condition(
            "datum.slower", alt.value(palette.SLOWER), alt.value(palette.designs(1)[0])
        )
    )
    texts = base.mark_text(
        align="left", dx=5, dy=place.shift, fontSize=look.font, color=INK
    ).encode(text="label:N")
    layers = [drawn, texts, *place.layers()]
    if one:
        layers.insert(
            1,
            alt.Chart(pl.DataFrame({"x": [1.0]}))
            .mark_rule(color=FAINT, strokeDash=[4, 3])
            .encode(x="x:Q"),
        )
    return whole(alt.layer(*layers).properties(**place.size), look)


def cycles(result: Result, look: Look = WIDE) -> Json | None:
    """A stacked bar a design: cycles an instruction, or a request, by cause."""
    shown = dict.fromkeys(
        s.cause for d in result.designs for s in d.cycle_stack if s.share >= _MINIMUM_SHARE
    )
    order = list(shown)
    rows = [
        (d.name, causes.words(s.cause), s.cycles / work, order.index(s.cause))
        for d in result.designs
        if (work := d.get(f"{result.speedup_by}s"))
        for s in d.cycle_stack
        if s.cause in shown
    ]
    if not rows:
        return None
    pairs = {causes.words(cause): colour for cause, colour in palette.causes(order).items()}
    return _stacked(rows, pairs, f"cycles {result.per}", look)


def energies(result: Result, look: Look = WIDE) -> Json | None:
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
    pairs = {name: palette.energy(group) for group, name in GROUPS.items() if name in there}
    return _stacked(rows, pairs, f"nJ {result.per}", look)


def _stacked(
    rows: list[tuple[str, str, float, int]], pairs: dict[str, str], title: str, look: Look
) -> Json:
    """A stacked bar for each design, from rows of design, part, amount and place in the stack.

    Each part shows its share if there is room, and each bar its sum behind it.
    """
    place = Rows(list(dict.fromkeys(row[0] for row in rows)), look)
    sums = {name: sum(row[2] for row in rows if row[0] == name) for name in place.names}
    texts = {name: significant(total) for name, total in sums.items()}
    longest = max(labels.width(text, look.font) for text in texts.values()) + 8
    most = max(sums.values()) or 1.0
    scale = alt.Scale(domain=[0, most * place.width / (place.width - longest)], nice=False)
    small = 0.85 * look.font
    pieces: list[Json] = []
    ends = dict.fromkeys(place.names, 0.0)
    for name, part, amount, order in sorted(rows, key=lambda row: row[3]):
        share = f"{100 * amount / sums[name]:.0f} %" if sums[name] else ""
        pixels = amount / scale["domain"][1] * place.width
        pieces.append(
            {
                "design": name,
                "part": part,
                "from": ends[name],
                "to": ends[name] + amount,
                "middle": ends[name] + amount / 2,
                "share": share if pixels > labels.width(share, small) + 6 else "",
                "on": palette.on(pairs[part]),
                "order": order,
            }
        )
        ends[name] += amount
    frame = pl.DataFrame(pieces, infer_schema_length=None)
    base = alt.Chart(frame).encode(y=place.y)
    scales = alt.Scale(domain=list(pairs), range=list(pairs.values()))
    legend = alt.Legend(columns=labels.columns(list(pairs), place.width, look.font))
    drawn = base.mark_bar(
        height=place.bar, yOffset=place.shift, stroke=palette.LIGHT_PANEL, strokeWidth=0.7
    ).encode(
        x=alt.X("from:Q", title=title, scale=scale),
        x2="to:Q",
        color=alt.Color("part:N", sort=None, scale=scales, legend=legend),
    )
    shares = (
        base.transform_filter("datum.share != ''")
        .mark_text(fontSize=small, dy=place.shift)
        .encode(x="middle:Q", text="share:N", color=alt.Color("on:N", scale=None))
    )
    totals = (
        alt.Chart(
            pl.DataFrame(
                [(name, sums[name], texts[name]) for name in place.names],
                schema=["design", "sum", "text"],
                orient="row",
            )
        )
        .mark_text(align="left", dx=5, dy=place.shift, fontSize=look.font, color=INK)
        .encode(y=place.y, x="sum:Q", text="text:N")
    )
    layers = alt.layer(drawn, shares, totals, *place.layers())
    return whole(layers.properties(**place.size), look)


_THIN = 0.6
"""Width of a faint line. With opacity instead, a PDF would not be byte-equal in each run."""
_PLOT = 200
"""Least height of a plot over time."""


def interval_lines(result: Result, name: str, title: str, look: Look = WIDE) -> Json | None:
    """A line a design over the instructions, of one number in each interval.

    Each value is as wide as its interval. An interval that the end of the measured part cut is
    drawn thinly. It does not affect the axis, since a ratio over few instructions may be extreme.
    Each line's name stands at its end, or in a legend if names are too long for that.
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
    order = list(dict.fromkeys(row[0] for row in rows))
    ends_at = {
        design: next((r for r in reversed(rows) if r[0] == design and r[3]), None)
        or next(r for r in reversed(rows) if r[0] == design)
        for design in order
    }
    line = 1.25 * look.font
    height = round(max(_PLOT, line * len(order)))
    room = max(labels.width(design, look.font) for design in order) + 26
    at_ends = len(order) > 1 and room <= 0.4 * look.width
    last = max(row[1] for row in rows)
    first = min(row[1] for row in rows)
    x = alt.X(
        "instructions:Q",
        title="million instructions",
        scale=alt.Scale(domain=[first, last], nice=False),
    )
    top = labels.nice(most)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(domain=[0, top], nice=False))
    colour = of_designs(order, None if at_ends else look)
    base = alt.Chart(frame).encode(
        x=x, y=y, detail="piece:N", strokeDash=dashes(order), **({} if len(order) < 2 else colour)
    )
    single = {"color": palette.designs(1)[0]} if len(order) < 2 else {}
    lines = base.transform_filter("datum.complete").mark_line(strokeWidth=1.8, **single)
    cut = base.transform_filter("!datum.complete").mark_line(strokeWidth=_THIN, clip=True, **single)
    plot = look.width - 4.5 * look.font - (room if at_ends else 0)
    layers = [lines, cut]
    if at_ends:
        layers += labels.at_ends(
            [(design, end[1], min(end[2], top)) for design, end in ends_at.items()],
            x=lambda value: (value - first) / ((last - first) or 1.0) * plot,
            y=lambda value: height * (1 - value / top),
            right=plot,
            height=height,
            font=look.font,
            colour=colour["color"],
        )
    return whole(alt.layer(*layers).properties(width=round(plot), height=height), look)


def of_designs(order: list[str], look: Look | None) -> Json:
    """A colour for each design, with a legend if a `look` is given."""
    legend = None
    if look is not None and len(order) > 1:
        legend = alt.Legend(
            symbolOpacity=1,
            symbolType="stroke",
            columns=labels.columns(order, look.width, look.font),
        )
    scale = alt.Scale(domain=order, range=palette.designs(len(order)))
    return {"color": alt.Color("design:N", sort=None, scale=scale, legend=legend)}


def dashes(order: list[str]) -> alt.StrokeDash:
    """A pattern of its line for each design."""
    scale = alt.Scale(domain=order, range=palette.dashes(len(order)))
    return alt.StrokeDash("design:N", sort=None, scale=scale, legend=None)
