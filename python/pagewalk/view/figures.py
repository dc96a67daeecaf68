"""Charts of a result as files for a paper: one column wide, on white."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.errors import Failure, RunOption, UserError
from pagewalk.host import files

if TYPE_CHECKING:
    from pagewalk.result import Result
    from pagewalk.view import charts

Json = dict[str, Any]

# An equals sign behind a slash belongs to a file's path.
_CHART = re.compile(r"([^/=]*)=(.*)", re.DOTALL)
_OVER_TIME = "-over-time"
_IN_TIME = "speedup-in-time"
_NAMED = ("speedup", _IN_TIME, "cycles", "energy", "times")
KINDS = (".svg", ".pdf", ".png")
_POINTS, _DOTS = 72 / 96, 600
"""Points of a pixel, and dots of an inch of a picture that has some."""


@dataclass(frozen=True)
class Wanted:
    """A chart, and its file."""

    chart: str
    path: str


@dataclass(frozen=True)
class Run:
    """Facts of a result that are known before the run."""

    designs: int
    machines: int
    interval: bool
    mix: bool


def asked(texts: Sequence[str], run: Run) -> list[Wanted]:
    """Reads ``[CHART=]FILE`` of ``--figure``; without a chart it is the speedup, or the cycles.

    Raises `UserError` for a chart that such a run does not have.
    """
    wanted = []
    for text in texts:
        match = _CHART.fullmatch(text)
        chart, path = match.groups() if match else (_usual(run.designs, run.machines), text)
        _check(chart, path, run)
        wanted.append(Wanted(chart, path))
    return wanted


def _usual(designs: int, machines: int) -> str:
    if designs > 1:
        return "speedup"
    return _IN_TIME if machines > 1 else "cycles"


def _check(chart: str, path: str, run: Run) -> None:
    if Path(path).suffix.lower() not in KINDS:
        raise UserError(
            f"'{path}' does not say what to write; expected a name that ends in .svg, .pdf or .png",
            about=RunOption("figure"),
        )
    if chart == "speedup" and run.designs < 2:
        raise UserError(
            f"one design has no speedup; use compare, or draw another chart, as in cycles={path}",
            about=RunOption("figure"),
        )
    if chart == _IN_TIME and run.machines < 2:
        raise UserError(
            f"{_IN_TIME} compares machines; name several, as in ",
            RunOption("machine", "A,B"),
            about=RunOption("figure"),
        )
    if chart == _IN_TIME and run.mix:
        raise UserError(
            f"{_IN_TIME} is not defined for a mix, whose sums are of speeds alone on "
            f"each machine; draw another chart, as in cycles={path}",
            about=RunOption("figure"),
        )
    if chart in _NAMED:
        return
    name = chart.removesuffix(_OVER_TIME)
    if name not in native.metrics(run.machines):
        raise UserError(
            f"there is no chart '{chart}'; expected {', '.join(_NAMED)}, a number of "
            f"the summary such as l2_tlb_mpki, or one with {_OVER_TIME}",
            about=RunOption("figure"),
        )
    if name == chart:
        return
    if name in native.NOT_OF_INTERVALS:
        raise UserError(
            f"intervals have no {name}; draw it of the whole run, as in {name}={path}, "
            f"or another number over time, such as l2_tlb_mpki{_OVER_TIME}",
            about=RunOption("figure"),
        )
    if not run.interval:
        raise UserError(
            f"{chart} needs intervals; add ",
            RunOption("interval", "N"),
            ", as in 1M",
            about=RunOption("figure"),
        )


def drawing(result: Result, chart: str, look: charts.Look) -> Json | None:
    """The Vega-Lite specification of a chart; None where the result has nothing to draw."""
    from pagewalk.view import charts, columns, distributions

    drawings: dict[str, Callable[[Result, charts.Look], Json | None]] = {
        "speedup": charts.speedups,
        _IN_TIME: partial(charts.speedups, in_time=True),
        "cycles": charts.cycles,
        "energy": charts.energies,
        "times": distributions.times,
    }
    if chart in drawings:
        return drawings[chart](result, look)
    name = chart.removesuffix(_OVER_TIME)
    unit = next((q.unit for d in result.designs for q in d.quantities if q.name == name), "")
    title = ", ".join(part for part in (columns.words(name), unit) if part)
    if name != chart:
        return charts.interval_lines(result, name, title, look)
    return charts.bars(result, name, title, look)


def kind(path: str) -> str:
    """The file format by the name's ending. Raises `UserError` for an unknown ending."""
    ending = Path(path).suffix.lower()
    if ending not in KINDS:
        raise UserError(f"'{path}': expected a name that ends in .svg, .pdf or .png")
    return ending


def write(result: Result, path: str, chart: str | None = None) -> None:
    """Writes a chart as SVG, PDF or PNG, which the ending of `path` says.

    Raises `UserError` for another ending, and `Failure` where the result has nothing to draw or
    the file cannot be written.
    """
    machines = max(1, len(result.machines))
    name = chart or _usual(len(result.designs) // machines, machines)
    if not put(path, lambda look: drawing(result, name, look)):
        raise Failure(f"could not draw '{path}': the result has nothing for the chart '{name}'")


def put(path: str, draw: Callable[[charts.Look], Json | None]) -> bool:
    """Writes a chart for a column of a paper, as SVG, PDF or PNG; False without a chart.

    Raises `UserError` for another ending of `path`, and `Failure` where it cannot be written.
    """
    import vl_convert

    from pagewalk.view import charts

    ending = kind(path)
    look = charts.COLUMN
    if ending == ".pdf":
        # A pixel of it is a point.
        look = charts.Look(round(_POINTS * look.width), _POINTS * look.font)
    specification = draw(look)
    if specification is None:
        return False
    specification["config"]["background"] = "white"
    if ending == ".svg":
        data = charts.svg(specification).encode()
    elif ending == ".pdf":
        data = vl_convert.vegalite_to_pdf(charts.harmless(specification))
    else:
        # A pixel of it is a point as well.
        data = vl_convert.vegalite_to_png(charts.harmless(specification), scale=_POINTS, ppi=_DOTS)
    files.write(path, data)
    return True
