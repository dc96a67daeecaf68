"""The options of a run, each declared once.

A declaration has an option's flag, its help, its keyword in Python, the function that reads its
value, and its place in the specification for the engine. `Arguments`, at the end, repeats the
keywords with their types, for type checkers.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from pagewalk import native
from pagewalk.config import machines
from pagewalk.errors import RunOption, UserError, Words, as_flag
from pagewalk.host import files
from pagewalk.view.escape import shown
from pagewalk.view.quantities import integer, parse_count

if TYPE_CHECKING:
    from pagewalk.config.config import Config
    from pagewalk.programs import generators

Json = dict[str, Any]

DEFAULT_MACHINE = machines.SHIPPED
DEFAULT_INSTRUCTIONS = 100_000_000
"""Measured of a built-in program when nothing else is said; most have no end."""
DEFAULT_WARMUP = 10_000_000
"""Before it, likewise."""

WHAT, HOW_MUCH, OUT, COST = "Program", "Limits and sampling", "Results", "Translation cost"

Text = str | None
Texts = list[str] | None
Number = int | None


def _as_it_is(value: Any, _about: Words) -> Any:
    return value


def _count(value: str | int | None, about: Words) -> int | None:
    return None if value is None else parse_count(value, about)


def _count_or_zero(value: str | int | None, about: Words) -> int:
    return parse_count(value or 0, about)


def _measured(value: str | int | None, about: Words) -> int | None:
    parsed = _count(value, about)
    if parsed == 0:
        raise UserError("0 would measure nothing; expected 1 or more", about=about)
    return parsed


def _interval(value: str | int | None, about: Words) -> int | None:
    parsed = _count(value, about)
    if parsed == 0:
        raise UserError("0 is not possible; expected a count such as 1M", about=about)
    return parsed


def _filtered(text: str, about: Words) -> Json:
    """Reads the length of filtered functional warming: a count, ``auto`` or ``all``."""
    if text == "all":
        return {}
    return {"filtered": text if text == "auto" else parse_count(text, about)}


def _warming(text: str, about: Words) -> Json:
    """Reads ``[FILTERED+]FUNCTIONAL`` or ``[filtered=…,]warm=…``, in instructions."""
    if "=" in text:
        return _named_warming(_named(text, _WARMING, about), about)
    filtered, plus, warmed = text.rpartition("+")
    if not warmed:
        raise UserError(
            f"'{text}' is not understood; expected [FILTERED+]FUNCTIONAL, as "
            "500K+50K, auto+50K or all+50K, or names, as filtered=all,warm=50K",
            about=about,
        )
    functional = {"warmed": parse_count(warmed, about)}
    return {**functional, **(_filtered(filtered, about) if plus else {"filtered": 0})}


_WARMING = {"filtered": "all", "warm": "50K"}
_SAMPLE = {"length": "20K", "period": "5M", **_WARMING}
"""The named parts of an option, each with an example of its value."""


def _named(text: str, parts: Mapping[str, str], about: Words) -> dict[str, str]:
    """Reads ``name=value,…`` of these parts."""
    found: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            raise UserError(f"'{text}' has a comma too many; expected name=value,…", about=about)
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or name not in parts or not value:
            example = ",".join(f"{k}={v}" for k, v in parts.items())
            raise UserError(
                f"'{part.strip()}' is not understood; expected {', '.join(parts)}, as {example}",
                about=about,
            )
        if name in found:
            raise UserError(f"{name} is given twice; expected it once", about=about)
        found[name] = value
    return found


def _named_warming(parts: Mapping[str, str], about: Words) -> Json:
    """Reads the warming of named parts."""
    if "warm" not in parts:
        raise UserError(
            "filtered is given without warm; expected the functional warming after it too, as "
            f"filtered={parts['filtered']},warm=50K",
            about=about,
        )
    filtered = _filtered(parts.get("filtered", "0"), about)
    return {"warmed": parse_count(parts["warm"], about), **filtered}


def _sample(text: str | None, about: Words) -> Json | None:
    """Reads ``length=…,period=…[,filtered=…][,warm=…]`` or ``LENGTH/PERIOD[:WARMING]``."""
    if text is None:
        return None
    expected = "expected LENGTH/PERIOD, as 1M/20M, or names, as length=1M,period=20M"
    if not isinstance(text, str):
        raise UserError(f"{shown(text)} is not understood; {expected}", about=about)
    lengths, colon, warming = text.partition(":")
    if named := "=" in lengths:
        parts = _named(text, _SAMPLE, about)
        for name in ("length", "period"):
            if name not in parts:
                raise UserError(
                    f"'{text}' gives no {name}; expected it too, as {name}={_SAMPLE[name]}",
                    about=about,
                )
        length, period = parts.pop("length"), parts.pop("period")
    else:
        length, _, period = lengths.partition("/")
    if not length or not period:
        raise UserError(f"'{text}' is not understood; {expected}", about=about)
    parsed = {"length": parse_count(length, about), "period": parse_count(period, about)}
    if not 0 < parsed["length"] < parsed["period"]:
        raise UserError(
            f"'{text}' is not possible; expected a length above 0 and below the period", about=about
        )
    if named:
        return {**parsed, "warming": _named_warming(parts, about)} if parts else parsed
    return {**parsed, "warming": _warming(warming, about)} if colon else parsed


def _regions(value: str | os.PathLike[str] | None, about: Words) -> Json | None:
    """Reads ``FILE[:WARMING]``, and the file."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(
            f"{shown(value)} is not understood; expected the path of a file of regions", about=about
        )
    from pagewalk.programs import regions

    text = os.fspath(value)
    path, colon, warming = text.rpartition(":")
    if not colon or files.there(text):
        path, colon = text, ""
    try:
        found = regions.read(path)
    except UserError as error:
        raise UserError(str(error), about=about) from None
    parsed: Json = {
        "regions": [
            {"at": r.at, "instructions": r.instructions, "weight": r.weight} for r in found.regions
        ]
    }
    if found.instructions is not None:
        parsed["trace_instructions"] = found.instructions
    return {**parsed, "warming": _warming(warming, about)} if colon else parsed


def _precision(text: str | float | None, about: Words) -> Json | None:
    """Reads ``2%`` or ``2%:ipc,l2_tlb_mpki``; a number is a share."""
    if text is None:
        return None
    share, _, metrics = str(text).partition(":")
    percent = share.strip().removesuffix("%")
    try:
        within = float(percent) / (1 if percent == share.strip() else 100)
    except ValueError:
        within = 0.0
    if isinstance(text, bool) or not 0 < within < 1:
        raise UserError(
            f"{shown(text)} is not understood; expected a share between 0 and 100 %, as "
            "2%, or with the numbers that are meant, as 2%:ipc,walk_cycles_mean",
            about=about,
        )
    return {"within": within, "metrics": [name.strip() for name in metrics.split(",") if name]}


def assignments(pairs: Iterable[str], about: Words) -> dict[str, str]:
    """Reads ``k=v`` pairs."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(f"'{pair}' is not understood; expected NAME=VALUE", about=about)
        result[key.strip()] = value.strip()
    return result


def _settings(pairs: list[str] | None, about: Words) -> list[str]:
    for name in assignments(pairs or [], about):
        key = name.rpartition(":")[2].strip()
        if "." not in key:
            _check_key(key, about)
    return pairs or []


def _check_key(key: str, about: Words) -> None:
    """Refuses a key without its tables, and one with another sign for the dot."""
    paths = [known["path"] for known in native.config_keys()]
    if key in paths:
        return
    found = [path for path in paths if path.endswith(f".{key}")]
    near = found[0] if found else native.nearest(key, paths)
    if near is not None and "." in near:
        raise UserError(f"there is no key '{key}'; did you mean '{near}'?", about=about)


def _asked(value: bool | None, about: Words) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise UserError(f"{shown(value)} is not understood; expected True or False", about=about)


def _machines(value: Any, _about: Words) -> str | list[str]:
    if isinstance(value, (str, os.PathLike)):
        return machines.found(os.fspath(value))
    return [machines.found(os.fspath(one)) for one in value]


def _only_if(value: bool | None, about: Words) -> bool | None:
    return _asked(value, about) or None


def _path(value: str | os.PathLike[str] | None, about: Words) -> str | None:
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise UserError(
            f"{shown(value)} is not understood; expected the path of a file", about=about
        )
    return os.fspath(value)


def _place(value: Any, about: Words) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise UserError(f"{shown(value)} is no text; expected one as tcp://host:8786", about=about)


def whole(value: object, about: Words, expected: str) -> int:
    """A whole number, NumPy's too. Raises `UserError` for what is none."""
    number = integer(value)
    if number is None:
        raise UserError(f"{shown(value)} is no whole number; expected {expected}", about=about)
    return number


def _whole(expected: str, first: int, end: int) -> Callable[[int | None, Words], int | None]:
    """Reads a whole number of a range, whose `end` is no more in it."""

    def read(value: int | None, about: Words) -> int | None:
        if value is None:
            return None
        number = whole(value, about, expected)
        if not first <= number < end:
            raise UserError(f"{number} is not possible; expected {expected}", about=about)
        return number

    return read


@dataclass(frozen=True)
class Option:
    """One option of a command.

    `name` is its keyword in Python. `kind`, `metavar`, `help`, `panel`, `short` (``-o``) and
    `least` are for the command line. `read` makes of a value, with the option for its message, what
    stands at `place` in the specification; an option without a place is not the engine's, or is
    part of what runs (`pagewalk.config.source`). One that is `optional` is left out where it has
    no value.
    """

    name: str
    kind: Any
    help: str
    metavar: str | None = None
    panel: str | None = None
    short: str = ""
    default: Any = None
    least: int | None = None
    place: tuple[str, ...] = ()
    read: Callable[[Any, Words], Any] = _as_it_is
    optional: bool = False
    both_ways: bool = False
    """True if there is a ``--no-…`` flag, too: the default then depends on other options."""
    python: bool = True
    """True if the Python API has it, too; there, methods of a result write files."""

    @property
    def spelled(self) -> str:
        """The flag."""
        return as_flag(self.name)


OPTIONS = [
    Option(
        "machine", str, "Simulated machine.", "NAME|FILE",
        default=DEFAULT_MACHINE, place=("machine",), read=_machines,
    ),
    Option(
        "settings", Texts,
        "Set a configuration key; NAME:A.B=C for one design or machine. Repeatable.",
        "A.B=C",
        place=("set",), read=_settings,
    ),
    Option("workload", Text, "Built-in program.", "NAME", WHAT),
    Option("size", Text, "Memory of the program.", "4GiB", WHAT),
    Option("threads", Number, "Threads of the program; they share the machine's cores.", "N", WHAT),
    Option("params", Texts, "Program parameter. Repeatable.", "K=V", WHAT),
    Option("trace", Text, "Recorded trace.", "FILE", WHAT),
    Option("cpu", Text, "CPU model that QEMU gives a program.", "NAME[,FEATURE=off…]", WHAT),
    Option(
        "clock", Text, "Time that a program's clocks show: emulator or simulated.", "NAME", WHAT,
    ),
    Option(
        "mix", Texts,
        "Programs to run side by side as processes. Give them cores with --set cores=2.",
        "A[:K=V…],B,…", WHAT,
    ),
    Option(
        "skip", Text, "Instructions to fast-forward.", "N", HOW_MUCH,
        place=("limits", "skip"), read=_count_or_zero,
    ),
    Option(
        "warmup", Text, "Warm-up instructions, simulated but not measured.", "N", HOW_MUCH,
        place=("limits", "warmup"), read=_count_or_zero,
    ),
    Option(
        "instructions", Text, "Instructions to measure, of all threads together.", "100M", HOW_MUCH,
        place=("limits", "instructions"), read=_measured,
    ),
    Option(
        "skip_requests", Text, "Requests to fast-forward.", "N", HOW_MUCH,
        place=("limits", "skip_requests"), read=_count, optional=True,
    ),
    Option(
        "warmup_requests", Text, "Warm-up requests, simulated but not measured.", "N", HOW_MUCH,
        place=("limits", "warmup_requests"), read=_count, optional=True,
    ),
    Option(
        "requests", Text, "Requests to measure.", "100K", HOW_MUCH,
        place=("limits", "requests"), read=_measured, optional=True,
    ),
    Option(
        "roi", bool, "Measure only between the marks of pagewalk.h.", None, HOW_MUCH,
        default=False, place=("limits", "roi"), read=_asked,
    ),
    Option(
        "sample", Text, "Measure this length of every period of instructions.",
        "length=N,period=N,…", HOW_MUCH, place=("limits", "sample"), read=_sample,
    ),
    Option(
        "precision", Text, "Sample until IPC, L2 TLB MPKI, speedups are this precise.",
        "2%[:METRICS]", HOW_MUCH, place=("precision",), read=_precision, optional=True,
    ),
    Option(
        "regions", Text, "Measure only these weighted regions of a trace.",
        "FILE[:WARMING]", HOW_MUCH, place=("regions",), read=_regions, optional=True,
    ),
    Option(
        "seed", int, "Random seed.", "N", HOW_MUCH,
        default=1, least=0, place=("seed",), read=_whole("0 to 2^64 - 1", 0, 2**64),
    ),
    Option(
        "jobs", Number, "Host threads (default: one a core).", "N",
        place=("host_threads",), read=_whole("1 or more", 1, 2**63),
    ),
    Option(
        "cluster", Text,
        "Dask cluster for samples of a trace: tcp://…, or slurm with --jobs workers.", "WHERE",
        read=_place,
    ),
    Option(
        "frames", Text, "Recorded frames, for designs with placement.tiered_hash.", "FILE",
        place=("frames",), read=_path, optional=True,
    ),
    Option(
        "ignore_memory", bool, "Run even if the host seems short of memory.",
        default=False, place=("ignore_memory",), read=_only_if, optional=True,
    ),
    Option(
        "translation_cost", bool | None,
        "Measure translation cost against perfect TLBs (default, but not of a mix).",
        None, COST, both_ways=True, place=("translation_cost",), read=_asked, optional=True,
    ),
    Option(
        "wide", bool, "Print every column, in several tables if necessary.", None, OUT,
        default=False, python=False,
    ),
    Option(
        "json_file", Text, "Write everything as JSON.", "FILE", OUT, python=False,
    ),
    Option("parquet", Text, "Write Parquet, one row a statistic.", "FILE", OUT, python=False),
    Option("html", Text, "Write a page with charts.", "FILE", OUT, python=False),
    Option(
        "figure", Texts, "Write a chart as .svg, .pdf or .png. Repeatable.",
        "[CHART=]FILE", OUT, python=False,
    ),
    Option(
        "interval", Text, "Record statistics every N instructions.", "N", OUT,
        place=("interval",), read=_interval,
    ),
    Option(
        "page_mappings", bool, "Add the frame of every page to the JSON result.", None, OUT,
        default=False, place=("mappings",), read=_only_if, optional=True,
    ),
    Option(
        "perfetto", Text, "Write walks and fetches in time, for ui.perfetto.dev.", "FILE", OUT,
        place=("perfetto",), read=_path,
    ),
    Option(
        "perfetto_walks", Number, "Walks to record a core and design (default: 10000).", "N", OUT,
        least=1, place=("perfetto_walks",), read=_whole("1 to 2^32 - 1", 1, 2**32), optional=True,
    ),
]  # fmt: skip
"""In the order of ``--help``."""

BY_NAME = {option.name: option for option in OPTIONS}

DESIGN = Option("design", str, "Translation design; with changes: NAME[A.B=C,…].", "NAME|FILE")
DESIGNS = Option(
    "designs", str, "Translation designs, changes in brackets; speedups are over the first.",
    "A,B[K=V],C",
)  # fmt: skip
"""A command has one of the two."""
VERBOSE = Option(
    "verbose", bool, "Print all numbers, latencies, energy and settings.", None, OUT,
    short="-v", python=False,
)  # fmt: skip


def read(name: str, value: Any) -> Any:
    """The engine's form of an option's value. Raises `UserError` for an invalid one."""
    return BY_NAME[name].read(value, RunOption(name))


def with_an_end(values: Mapping[str, Any], programs: int) -> Json:
    """The values, with default limits for endless programs if they have no limits."""
    if values.get("instructions") is not None:
        return dict(values)
    ended = dict(values)
    if values.get("requests") is None:
        ended["instructions"] = DEFAULT_INSTRUCTIONS
    if values.get("warmup") is None and values.get("warmup_requests") is None:
        # A mix warms its programs together.
        ended["warmup"] = DEFAULT_WARMUP * programs
    return ended


def with_cost(values: Mapping[str, Any], source: Json | None) -> Json:
    """The values, with the cost of translation by default, but not of a mix."""
    if values.get("translation_cost") is not None or "mix" in (source or {}):
        return dict(values)
    return {**values, "translation_cost": True}


def specification(
    values: Mapping[str, Any],
    designs: Sequence[str],
    source: Json | None,
) -> Json:
    """The specification that the engine's `run` reads; missing options get their defaults.

    Raises `UserError` for an invalid value.
    """
    spec: Json = {"designs": list(designs), "source": source}
    for option in OPTIONS:
        if not option.place:
            continue
        given = values.get(option.name, option.default)
        value = option.read(given, RunOption(option.name))
        if value is None and option.optional:
            continue
        *tables, key = option.place
        into = spec
        for table in tables:
            into = into.setdefault(table, {})
        into[key] = value
    for name in ("precision", "regions"):
        if name in spec and source and "trace" in source:
            files.refuse_pipe(source["trace"]["path"], RunOption("trace"), as_flag(name))
    return spec


class Arguments(TypedDict, total=False):
    """The keyword arguments of `pagewalk.run` and `pagewalk.compare`.

    Beside the options: the `program` that follows ``--``, the `mappings` of a program of
    one's own, and whether there is a bar of `progress`.
    """

    machine: str | os.PathLike[str] | Config | Sequence[str | os.PathLike[str] | Config]
    settings: Mapping[str, Any] | None
    workload: str | Iterable[Any] | Sequence[Iterable[Any]] | None
    mappings: Sequence[generators.Mapping | tuple[int, int]] | None
    size: str | int | None
    threads: int | None
    params: Mapping[str, Any] | None
    trace: str | os.PathLike[str] | None
    mix: str | Sequence[str | Mapping[str, Any]] | None
    program: Sequence[str] | None
    cpu: str | None
    clock: str | None
    skip: str | int | None
    warmup: str | int | None
    instructions: str | int | None
    skip_requests: str | int | None
    warmup_requests: str | int | None
    requests: str | int | None
    roi: bool
    sample: str | None
    precision: str | float | None
    regions: str | os.PathLike[str] | None
    seed: int
    jobs: int | None
    cluster: str | None
    interval: str | int | None
    page_mappings: bool
    perfetto: str | os.PathLike[str] | None
    perfetto_walks: int | None
    frames: str | os.PathLike[str] | None
    ignore_memory: bool
    translation_cost: bool | None
    progress: bool


def with_defaults(arguments: Mapping[str, Any], defaults: Mapping[str, Any], function: str) -> Json:
    """All keyword arguments of a function. Raises `TypeError` for one that it does not have."""
    unknown = [name for name in arguments if name not in defaults]
    if unknown:
        hint = native.suggestion(unknown[0], defaults)
        raise TypeError(f"{function}() got an unexpected keyword argument '{unknown[0]}'{hint}")
    return {**defaults, **arguments}


def described(
    function: Callable[..., Any],
    defaults: Mapping[str, Any],
    types: type,
    options: Sequence[Option],
) -> None:
    """Gives a function the signature and the documentation that its keywords have.

    `types` is the `TypedDict` of the keywords. Their `defaults` are in the order of the signature.
    """
    signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()))
    hints = types.__annotations__
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            first,
            *(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=getattr(hints[name], "__forward_arg__", hints[name]),
                )
                for name, default in defaults.items()
            ),
        ]
    )
    listed = (f"    {option.name}: {option.help}" for option in options if option.python)
    function.__doc__ = f"{function.__doc__}\n    The options:\n\n" + "\n".join(listed)
