"""The options of a study, each declared once.

From a declaration come a flag of ``pagewalk sweep run``, a key of a study's file and a keyword of
`pagewalk.sweep`. `Arguments`, at the end, repeats the keywords for type checkers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from pagewalk.config.config import listed
from pagewalk.config.options import BY_NAME as OF_A_RUN
from pagewalk.config.options import DESIGNS, Number, Option, Text, Texts, assignments
from pagewalk.config.source import machines
from pagewalk.errors import RunOption, UserError, Words
from pagewalk.runs.options import CACHE, CLUSTER, FOLDER, FRESH, JOBS, PRECISION, SEEDS
from pagewalk.studies import axes
from pagewalk.studies.axes import PARAM, Axis
from pagewalk.studies.point import DESIGN
from pagewalk.view.escape import shown


def _designs(name: str, value: object) -> Iterator[Axis]:
    yield axes.axis([(DESIGN, value)], name)


def _several(name: str, value: object) -> Iterator[Axis]:
    """The axis of a key that may have several values."""
    yield axes.axis([(name, value)], name)


def _single(name: str, value: object) -> Iterator[Axis]:
    """The axis of a key that has one value."""
    yield axes.axis([(name, [value])], name)


def _params(name: str, value: object) -> Iterator[Axis]:
    for param, one in table(name, value).items():
        yield axes.axis([(PARAM + param, [one])], name)


def _settings(name: str, value: object) -> Iterator[Axis]:
    for key, one in _flat(table(name, value)):
        yield axes.axis([(key, [one])], name)


def _varied(name: str, value: object) -> Iterator[Axis]:
    """The axes of texts as on the command line, or of a table of names with their values."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(value, Mapping):
        for key, values in _flat(value):
            yield axes.axis([(key, values)], name)
    elif isinstance(texts, (list, tuple)) and all(isinstance(text, str) for text in texts):
        for text in texts:
            yield axes.written(text)
    else:
        raise UserError(f"{name}: {shown(value)} is no table; expected names with their values")


def _zipped(name: str, value: object) -> Iterator[Axis]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(t, Mapping) for t in value):
        raise UserError(f"{name}: {shown(value)} is no list of tables; expected [[zip]] of names")
    for one in value:
        yield axes.axis(list(_flat(one)), name)


def table(name: str, value: object) -> Mapping[str, Any]:
    """A table of a study's file. Raises `UserError` for what is none."""
    if not isinstance(value, Mapping):
        raise UserError(f"{name}: {shown(value)} is no table; expected names with values")
    return value


def _flat(nested: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots, of tables in one another."""
    for name, value in nested.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _condition(value: Any, about: Words) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise UserError(
        f"{shown(value)} is no text; expected a condition in SQL, as size >= 1073741824",
        about=about,
    )


def _true_or_false(value: Any, about: Words) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise UserError(f"{shown(value)} is not understood; expected true or false", about=about)


def _as_it_is(value: Any) -> Any:
    return value


def _assigned(name: str) -> Callable[[Any], Any]:
    """Reads the ``k=v`` pairs of a run option."""
    return lambda pairs: assignments(pairs, RunOption(name))


@dataclass(frozen=True)
class StudyOption(Option):
    """An option of a study: a flag if `command` is true, a keyword if `python` is.

    With a `key` it may also stand in a study's file, whose value then is its default. Keys that
    choose the executor stand in a table: ``cluster.jobs``. Other keys define the study: `axes`
    makes axes of the value, or `read` checks it. `from_flag` turns a flag's value into a file's.
    """

    key: str = ""
    axes: Callable[[str, Any], Iterator[Axis]] | None = None
    from_flag: Callable[[Any], Any] = _as_it_is
    command: bool = True


def _shared(option: Option, **own: Any) -> StudyOption:
    """An option of other commands that a study has, too."""
    return StudyOption(**{f.name: getattr(option, f.name) for f in fields(Option)} | own)


def _of_run(name: str, **own: Any) -> StudyOption:
    """An option of a run that is part of a study's definition."""
    return _shared(OF_A_RUN[name], **{"key": name, "default": None, **own})


OPTIONS = [
    _shared(FOLDER, help="Folder of the study (default: study)."),
    _shared(
        DESIGNS, help="Translation designs; speedups are over the first.",
        kind=Text, key="designs", axes=_designs, from_flag=listed,
    ),
    _of_run(
        "machine", help="Simulated machines, as A,B.", kind=Text, axes=_several, from_flag=machines
    ),
    _of_run(
        "settings", key="set", axes=_settings, from_flag=_assigned("settings")
    ),
    _of_run("workload", help="Built-in programs, as A,B.", axes=_several),
    _of_run("size", axes=_single),
    _of_run("threads", axes=_single),
    _of_run("params", axes=_params, from_flag=_assigned("params")),
    _of_run("trace", help="Recorded traces, as A,B or *.pwt.", axes=_several),
    _shared(OF_A_RUN["cpu"], python=False),
    _of_run("mix", axes=_several),
    StudyOption(
        "vary", Texts,
        "Axis of the study: A,B or 512..8192*2 or 0..8+2. Names joined by ; step together. "
        "Repeatable.",
        "NAME=VALUES", key="vary", axes=_varied,
    ),
    StudyOption(
        "zip", None, "Tables as of vary, whose names step together.",
        key="zip", axes=_zipped, command=False,
    ),
    StudyOption(
        "where", Text, "Simulate only points that meet this condition.", "SQL",
        key="where", read=_condition,
    ),
    _of_run("skip", axes=_single),
    _of_run("warmup", axes=_single),
    _of_run("instructions", axes=_single),
    _of_run("warmup_requests", axes=_single),
    _of_run("requests", axes=_single),
    _of_run("roi", kind=bool | None, read=_true_or_false),
    _shared(PRECISION, key="precision"),
    _of_run("interval"),
    _of_run("seed", kind=Number),
    _shared(SEEDS, help="Seeds to simulate at each point.", least=1, key="seeds"),
    StudyOption("histograms", bool, "Keep histograms.", default=False),
    StudyOption(
        "dry_run", bool, "Print the number of runs and their cost only.",
        default=False, python=False,
    ),
    _shared(FRESH),
    _shared(CACHE),
    _shared(CLUSTER, key="cluster.where"),
    _shared(JOBS, key="cluster.jobs"),
]  # fmt: skip
"""In the order of ``--help``."""

BY_NAME = {option.name: option for option in OPTIONS}
DEFINING = [option for option in OPTIONS if option.key and "." not in option.key]
"""Options that define the runs of a study."""
HOW = [option for option in OPTIONS if option not in DEFINING]
"""Options for the place of the simulation and for the stored results."""
EXECUTOR = {option.key.removeprefix("cluster."): option for option in OPTIONS if "." in option.key}
"""The options of the file's table ``cluster``, by their keys there."""
KNOWN = (*(option.key for option in DEFINING), "cluster")
"""The keys of a study's file."""


class Arguments(TypedDict, total=False):
    """The keyword arguments of `pagewalk.sweep`: the options, and `progress`."""

    out: str | os.PathLike[str] | None
    designs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    machine: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    settings: Mapping[str, Any] | None
    workload: str | Sequence[str] | None
    size: str | int | None
    threads: int | None
    params: Mapping[str, Any] | None
    trace: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None
    mix: str | Sequence[str] | None
    vary: str | Sequence[str] | Mapping[str, Any] | None
    zip: Sequence[Mapping[str, Any]] | None
    where: str | None
    skip: str | int | None
    warmup: str | int | None
    instructions: str | int | None
    warmup_requests: str | int | None
    requests: str | int | None
    roi: bool | None
    precision: str | float | None
    interval: str | int | None
    seed: int | None
    seeds: int | None
    histograms: bool
    fresh: bool
    cache: str | os.PathLike[str] | None
    cluster: str | None
    jobs: int | None
    progress: bool
