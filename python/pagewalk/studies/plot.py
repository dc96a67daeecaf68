"""A number of a study over one of its axes, as a chart in a file or on a page."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from pagewalk.errors import Failure, UserError
from pagewalk.host import files
from pagewalk.studies.dataset import Dataset
from pagewalk.studies.point import DESIGN, SEED, Value
from pagewalk.studies.summary import SPEEDUP
from pagewalk.studies.table import Table, scaled, writer, written
from pagewalk.view import charts, figures, labels, palette, svg
from pagewalk.view.charts import Look
from pagewalk.view.columns import ratio, words
from pagewalk.view.markup import SCRIPT, escape, line, table, whole
from pagewalk.view.palette import FAINT, INK
from pagewalk.view.short_names import shortened

Json = dict[str, Any]

_PAGE = ".html"
_NONE = "–"
_HEIGHT = 0.55
"""Height of a plot as a share of its width, within 150 and 300 pixels."""
_LONGEST = 0.35
"""Largest share of a chart's width for a text below a bar."""
_EQUAL = 1e-6
"""Largest relative difference between the steps of a geometric range."""


@dataclass(frozen=True)
class Mark:
    """A mean that is drawn: where, and between which ends it lies."""

    x: Value
    series: str
    facet: str
    value: float | None
    low: float | None
    high: float | None
    seeds: int
    failed: int


@dataclass(frozen=True)
class Plot:
    """The content of a chart: marks in order, and the titles of its axes."""

    marks: list[Mark]
    x: str
    """The title of the axis."""
    unit: str
    """Unit of the values on the x axis."""
    numeric: bool
    y: str
    by: str
    facet: str
    ratio: bool
    """True if y is a ratio, which is compared with 1."""
    over: Sequence[str] = ()
    """Axes that the means are over, beside seeds."""
    y_lines: Sequence[str] = ()
    """`y` in lines that fit beside the plot."""
    large: bool = False
    """True if y is a count, whose thousands and millions are written with a letter."""

    @property
    def xs(self) -> list[Value]:
        """The values on the x axis, in order."""
        found = dict.fromkeys(mark.x for mark in self.marks)
        return sorted(found, key=_number) if self.numeric else list(found)

    @property
    def series(self) -> list[str]:
        """Names of the series, each with a colour of its own."""
        return list(dict.fromkeys(mark.series for mark in self.marks))

    @property
    def facets(self) -> list[str]:
        """Names of the facets, each with a plot of its own."""
        return list(dict.fromkeys(mark.facet for mark in self.marks))

    @property
    def logarithmic(self) -> bool:
        """True if the values on the x axis are a geometric range."""
        return self.numeric and geometric([_number(x) for x in self.xs])


def plot(
    source: Path | Dataset,
    x: str,
    y: str,
    by: str | None = None,
    facet: str | None = None,
    out: str = "plot.html",
) -> None:
    """Draws a number `y` over an axis `x` into the file `out`: a page, or SVG, PDF, PNG.

    Each value of the axis `by` has a colour (by default the design, if it varies), and each value
    of `facet` a plot. Means are over seeds and all other axes. Numbers on `x` make lines, texts
    make bars, and a geometric range makes a logarithmic axis. Raises `UserError` for an unknown
    axis, number or ending of `out`; `Failure` if no run has the number yet, or the file cannot be
    written.
    """
    if Path(out).suffix.lower() != _PAGE and Path(out).suffix.lower() not in figures.KINDS:
        raise UserError(
            f"'{out}' does not say what to write; expected a name that ends in .html, .svg, .pdf "
            "or .png"
        )
    of = Table.of(source)
    made = read(of, x, y, by, facet)
    if not any(mark.value is not None for mark in made.marks):
        raise Failure(f"could not draw '{out}': {_nothing(of, y, made.over)}")
    if Path(out).suffix.lower() == _PAGE:
        files.write(out, page(of, made).encode())
    else:
        figures.put(out, lambda look: specification(made, look))


def _nothing(of: Table, y: str, over: Sequence[str]) -> str:
    """The reason why there is no mean, with a remedy."""
    if of.frame[y].is_not_null().any():
        return (
            f"no seed has '{y}' for all of {', '.join(over)}, which the means would be over; "
            "name one of them as --by or --facet, or let 'pagewalk sweep' go on"
        )
    return f"no run of the study has '{y}' yet; 'pagewalk sweep' goes on"


def read(of: Table, x: str, y: str, by: str | None, facet: str | None) -> Plot:
    """The plot of a study. Raises `UserError` for an axis or number that the study lacks."""
    x = of.axis(x, "--x")
    y = of.number(y, "--y")
    given = [of.axis(name, flag) for name, flag in ((by, "--by"), (facet, "--facet")) if name]
    if by is None and x != DESIGN and DESIGN not in given and DESIGN in of.varying:
        by = DESIGN
    twice = [name for name in (x, by, facet) if name and (x, by, facet).count(name) > 1]
    if twice:
        raise UserError(f"'{twice[0]}' is asked for twice; name another axis, or leave one out")
    axes = [name for name in (x, by, facet) if name]
    groups = of.grouped(axes, [y])
    ends = (y, f"{y}_low", f"{y}_high")
    unit, factor = scaled(of.unit(y), groups[y].drop_nulls())
    groups = groups.with_columns(pl.col(name) / factor for name in ends)
    # In the order of the study, not of x.
    order = [_order(of, name) if name else [None] for name in (by, facet)]
    places = [{value: place for place, value in enumerate(values)} for values in order]
    kind = next(column.kind for column in of.study.columns if column.name == x)
    rows = [
        row
        for row in groups.iter_rows(named=True)
        if row[x] is not None or kind not in (int, float)
    ]
    rows.sort(
        key=lambda row: (
            places[1][row[facet] if facet else None],
            places[0][row[by] if by else None],
        )
    )
    series = {row[by]: _series(of, by, row[by], y, rows) for row in rows} if by else {}
    marks = [
        Mark(
            x=row[x] if kind in (int, float) else of.value(x, row[x]),
            series=series[row[by]] if by else "",
            facet=_faceted(of, facet, row[facet]) if facet else "",
            value=row[y],
            low=row[f"{y}_low"],
            high=row[f"{y}_high"],
            seeds=row["seeds"],
            failed=row["failed"],
        )
        for row in rows
    ]
    return Plot(
        marks,
        x=_titled(x, _said(of.unit(x))),
        unit=of.unit(x),
        numeric=kind in (int, float),
        y=f"speedup over {of.study.reference}"
        if y == SPEEDUP
        else _titled(words(y).removesuffix(" bytes"), unit),
        by="" if by in (None, DESIGN) else _titled(str(by), _said(of.unit(str(by)))),
        facet=facet or "",
        ratio=y == SPEEDUP,
        over=of.averaged(axes),
        large=factor == 1.0 and "/" not in unit and y != SPEEDUP,
    )


def _order(of: Table, name: str) -> list[Value]:
    """The values of an axis: numbers ascending, others as in the study."""
    values: list[Value] = of.frame[name].unique(maintain_order=True).to_list()
    if all(isinstance(value, (int, float)) for value in values if value is not None):
        values.sort(key=lambda value: (value is None, 0.0 if value is None else _number(value)))
    return values


def _series(of: Table, by: str, value: Value, y: str, rows: Sequence[Json]) -> str:
    """The name of a series, with the reason if it has no mark."""
    own = [row for row in rows if row[by] == value]
    shown = of.value(by, value)
    if any(row[y] is not None for row in own):
        return shown
    return f"{shown} (failed)" if any(row["failed"] for row in own) else f"{shown} (no number)"


def _faceted(of: Table, name: str, value: Value) -> str:
    """The title of a facet: a text itself, or a number with the name of its axis."""
    shown = of.value(name, value)
    return shown if isinstance(value, str) else f"{name} {shown}"


def _titled(name: str, unit: str) -> str:
    said = not unit or name.replace("_", " ").endswith(unit)
    return name if said else f"{name}, {unit}"


def _said(unit: str) -> str:
    """A unit as a title has it: sizes have theirs with each number."""
    return "" if unit == "bytes" else unit


def _number(value: Value) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def geometric(values: Sequence[float]) -> bool:
    """True for a geometric range of three or more values."""
    if len(values) < 3 or min(values) <= 0:
        return False
    steps = [later / earlier for earlier, later in itertools.pairwise(values)]
    return max(steps) <= min(steps) * (1 + _EQUAL)


def specification(made: Plot, look: Look) -> Json:
    """The Vega-Lite specification of the plot in a format."""
    columns = 1 if look.width < 500 else min(2, len(made.facets))
    width = round(look.width / columns - 5.5 * look.font)
    names = {} if made.numeric else _names(made, look)
    at = (lambda mark: _number(mark.x)) if made.numeric else (lambda mark: names[str(mark.x)])
    frame = pl.DataFrame(
        [
            {
                **{"x": at(mark), "series": mark.series, "facet": mark.facet},
                **{"value": mark.value, "low": mark.low, "high": mark.high},
                "failed": bool(mark.failed) and mark.value is None,
            }
            for mark in made.marks
        ],
        schema={
            **{"x": pl.Float64() if made.numeric else pl.String()},
            **dict.fromkeys(("series", "facet"), pl.String()),
            **dict.fromkeys(("value", "low", "high"), pl.Float64()),
            "failed": pl.Boolean(),
        },
    )
    height = round(max(150, min(300, _HEIGHT * width)))
    # The title of y stands beside the plot, in lines of its height.
    letters = max(10, int(height / labels.width("n", look.font)))
    made = replace(made, y_lines=labels.lines(made.y, letters))
    layers = _lines(made, look, width) if made.numeric else _bars(made, look, width)
    layered = alt.layer(*layers, data=frame).properties(width=width, height=height)
    if len(made.facets) < 2:
        return charts.whole(layered, look)
    header = alt.Header(
        title=None, labelColor=INK, labelFontSize=look.font, labelAnchor="start", labelPadding=2
    )
    faceted = layered.facet(
        facet=alt.Facet("facet:N", sort=made.facets, header=header), columns=columns, spacing=18
    ).resolve_axis(x="independent", y="independent")
    return charts.whole(faceted, look)


def _colour(made: Plot, look: Look, symbol: str) -> alt.Color | Any:
    """A colour a series, with a legend."""
    if len(made.series) < 2:
        return alt.value(palette.designs(1)[0])
    listed = made.series
    scale = alt.Scale(domain=listed, range=palette.designs(len(listed)))
    legend = alt.Legend(
        title=made.by or None,
        titleColor=FAINT,
        titleFontWeight="normal",
        titleFontSize=look.font,
        titleLimit=look.width,
        symbolType=symbol,
        columns=labels.columns(listed, look.width - 2 * look.font, look.font),
    )
    return alt.Color("series:N", sort=None, scale=scale, legend=legend)


def _domain(made: Plot, *, bars: bool) -> tuple[float, float]:
    """The ends of the y axis. It includes 0, except for lines of ratios and lines far from 0."""
    ends = [
        value
        for mark in made.marks
        for value in (mark.value, mark.low, mark.high)
        if value is not None
    ]
    ends += [1.0] if made.ratio else []
    low, high = min(ends), max(ends)
    if not bars and (low > 0.5 * high or made.ratio):
        room = 0.08 * (high - low) or 0.05 * high
        return low - room, high + room
    if low >= 0:
        return 0.0, labels.nice(high * 1.02) if high > 0 else 1.0
    return -labels.nice(-low), labels.nice(max(high, -low / 10))


def _y(made: Plot, within: tuple[float, float], field: str = "value") -> alt.Y:
    """The y axis, of means or of the ends of their intervals."""
    scale = alt.Scale(domain=list(within), nice=False, zero=False)
    most = max(map(abs, within))
    axis = alt.Axis(format=".3~s") if made.large and most >= 1000 else alt.Axis()
    return alt.Y(f"{field}:Q", title=list(made.y_lines), scale=scale, axis=axis)


def _one(made: Plot) -> list[alt.Chart]:
    """A rule at the ratio of 1."""
    if not made.ratio:
        return []
    rule = alt.Chart().mark_rule(color=FAINT, strokeDash=[4, 3])
    return [rule.encode(y=alt.datum(1.0))]


def _lines(made: Plot, look: Look, width: int) -> list[alt.Chart]:
    numbers = [_number(x) for x in made.xs]
    scale = alt.Scale(domain=_across(numbers, log=made.logarithmic), nice=False, zero=False)
    if made.logarithmic:
        scale.type, scale.base = "log", _base(numbers)
    x = alt.X("x:Q", title=made.x, scale=scale, axis=_ticks(made, look, width))
    within = _domain(made, bars=False)
    y = _y(made, within)
    colour = _colour(made, look, "stroke")
    base = alt.Chart().encode(x=x, color=colour)
    shown = base.transform_filter("isValid(datum.value)")
    scaled = alt.Scale(domain=made.series, range=palette.dashes(len(made.series)))
    dash = alt.StrokeDash("series:N", sort=None, scale=scaled, legend=None)
    spread = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    spread = spread.mark_rule(strokeWidth=1.2)
    return [
        spread.encode(y=_y(made, within, "low"), y2="high:Q"),
        *_one(made),
        shown.mark_line(strokeWidth=1.8).encode(y=y, strokeDash=dash),
        # Shapes tell apart what lies at one value.
        shown.mark_point(filled=True, opacity=0.8, size=3.2 * look.font).encode(
            y=y, shape=alt.Shape("series:N", sort=None, legend=None)
        ),
    ]


def _across(numbers: Sequence[float], *, log: bool) -> list[float]:
    """Both ends of the x axis, with a little room for the points at them."""
    low, high = min(numbers), max(numbers)
    if log:
        room = (high / low) ** 0.03
        return [low / room, high * room]
    room = 0.03 * (high - low) or abs(low) * 0.5 or 1.0
    return [low - room, high + room]


def _base(numbers: Sequence[float]) -> int:
    step = math.log2(numbers[1] / numbers[0])
    return 2 if abs(step - round(step)) < _EQUAL else 10


def _ticks(made: Plot, look: Look, width: int) -> alt.Axis:
    """Ticks at the values, as far as their labels do not overlap."""
    numbers = [_number(x) for x in made.xs]
    texts = [written(x, made.unit) for x in made.xs]
    low, high = _across(numbers, log=made.logarithmic)

    def place(value: float) -> float:
        if made.logarithmic:
            return width * math.log(value / low) / math.log(high / low)
        return width * (value - low) / (high - low)

    ends = [
        (place(value) - half, place(value) + half + 0.5 * look.font)
        for value, text in zip(numbers, texts, strict=True)
        for half in [labels.width(text, look.font) / 2]
    ]

    def apart(places: Sequence[int]) -> bool:
        return all(ends[a][1] <= ends[b][0] for a, b in itertools.pairwise(places))

    every = range(len(numbers))
    if made.logarithmic:
        chosen = next(list(every[::n]) for n in range(1, len(every) + 1) if apart(every[::n]))
    else:
        chosen = []
        for place_of in every:
            if apart([*chosen[-1:], place_of]):
                chosen.append(place_of)
    kept = [(numbers[i], texts[i]) for i in chosen]
    known = json.dumps({f"{value:.12g}": text for value, text in kept})
    # Vega's own text of a number may have an exponent where ours has none.
    label = f"({known})[format(datum.value, '.12~r')] || ({known})[datum.value] || datum.label"
    return alt.Axis(values=[value for value, _ in kept], labelExpr=label, labelOverlap=False)


def _bars(made: Plot, look: Look, width: int) -> list[alt.Chart]:
    names = list(_names(made, look).values())
    step = width / max(1, len(names))
    x = alt.X(
        "x:N",
        sort=names,
        scale=alt.Scale(domain=names, paddingInner=0.25, paddingOuter=0.12),
        title=None if made.x == DESIGN else made.x,
        axis=alt.Axis(labelAngle=_angle(names, look, step), labelOverlap=False),
    )
    within = _domain(made, bars=True)
    y = _y(made, within)
    places: Json = {"x": x}
    if len(made.series) > 1:
        scale = alt.Scale(domain=made.series)
        places["xOffset"] = alt.XOffset("series:N", sort=made.series, scale=scale)
    base = alt.Chart().encode(**places)
    bars = base.transform_filter("isValid(datum.value)").mark_bar(stroke="white", strokeWidth=0.5)
    spread = base.transform_filter("isValid(datum.low) && isValid(datum.high)")
    layers = [
        bars.encode(y=y, color=_colour(made, look, "square")),
        *_one(made),
        spread.mark_rule(color="black", strokeWidth=1.1).encode(
            y=_y(made, within, "low"), y2="high:Q"
        ),
    ]
    if any(mark.failed and mark.value is None for mark in made.marks):
        cross = base.transform_filter("datum.failed").mark_text(
            text="✗", color=palette.SLOWER, fontSize=look.font, dy=-7, fontWeight="bold"
        )
        layers.append(cross.encode(y=alt.datum(within[0])))
    return layers


def _names(made: Plot, look: Look) -> dict[str, str]:
    """Texts below the bars: distinct, and shortened to fit."""
    letters = _LONGEST * look.width / labels.width("n", look.font)
    return shortened([str(x) for x in made.xs], int(letters))


def _angle(names: Sequence[str], look: Look, step: float) -> int:
    """Rotation of texts below bars, so that they touch neither one another nor the y axis."""
    longest = max(labels.width(name, look.font) for name in names)
    if longest + 6 < step:
        return 0
    return -35 if 0.82 * longest < 2.5 * look.font + step / 2 else -90


def page(of: Table, made: Plot) -> str:
    """The chart with its numbers on a page that needs nothing but a browser."""
    complete, failed, missing = of.counted()
    facts = [f"{complete:,} runs"]
    facts += [f"{failed:,} failed"] if failed else []
    facts += [f"{missing:,} missing"] if missing else []
    title = f"{made.y} by {made.x}"
    name = "plot"
    shown = "".join(
        svg.embedded(charts.svg(specification(made, look)), title, kind, f"{name}-{kind}")
        for look, kind in ((charts.WIDE, "wide"), (charts.NARROW, "narrow"))
    )
    body = (
        f"<h1>{escape(str(of.study.folder.name or of.study.folder))}</h1>"
        f"<p class=facts>{escape(' · '.join(facts))}</p>\n"
        f"<section><div class=head><h2>{escape(title)}</h2></div>"
        f"<p class=about>{escape(_about(of, made))}</p>"
        f"<figure data-name={name}>{shown}</figure>"
        f"<details><summary>Its numbers</summary>{_numbers(made)}</details></section>\n"
    )
    return whole(escape(f"{title} – Pagewalk"), body, script=SCRIPT)


def _about(of: Table, made: Plot) -> str:
    shown = []
    axes = [name for name in of.study.layout.axes if of.frame[name].n_unique() == 1]
    shown += [f"{name} {of.value(name, of.frame[name][0])}" for name in axes if name != SEED]
    text = ", ".join(shown)
    if made.ratio:
        text += f"{'; ' if text else ''}longer or higher is faster, the dashed line is no change"
    if made.over:
        text += f"{'; ' if text else ''}means are over {', '.join(made.over)}"
    if any(mark.low is not None for mark in made.marks):
        text += (
            f"{'; ' if text else ''}thin lines: where the mean lies with 95 % confidence, by seeds "
            "or samples"
        )
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _numbers(made: Plot) -> str:
    """A row a mark."""
    values = [mark.value for mark in made.marks if mark.value is not None]
    unit, write = ("", ratio) if made.ratio else writer(made.y.partition(", ")[2], values)

    def cell(value: float | None) -> str:
        return _NONE if value is None else escape(write(value))

    several = len(made.series) > 1
    head = [escape(made.x), *([escape(made.by or DESIGN)] if several else [])]
    head += [escape(made.facet)] if len(made.facets) > 1 else []
    number = f"{made.y.partition(', ')[0]}, {unit}" if unit else made.y
    head += [escape(number), "from", "to", "seeds", "failed"]
    rows = []
    for mark in made.marks:
        names = [f"<td>{escape(mark.series)}</td>"] if several else []
        names += [f"<td>{escape(mark.facet)}</td>"] if len(made.facets) > 1 else []
        cells = [cell(mark.value), cell(mark.low), cell(mark.high), str(mark.seeds)]
        rows.append(line([escape(written(mark.x, made.unit)), *names, *cells, str(mark.failed)]))
    return table(head, rows, "Means and their intervals")
