"""Simulations from Python: the same as on the command line."""

from __future__ import annotations

import os
import shlex
import signal
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.config import machines as machines_of_user
from pagewalk.config import options
from pagewalk.config import source as sources
from pagewalk.config.config import Config, is_path, toml, variant
from pagewalk.errors import (
    PagewalkError,
    RunOption,
    Terminated,
    UserError,
    in_keywords,
    named,
    placed_at,
)
from pagewalk.host import files, run_folder
from pagewalk.programs import generators
from pagewalk.programs.generators import Mapping
from pagewalk.result import Result
from pagewalk.view.escape import shown
from pagewalk.view.progress import Bar

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pagewalk.config.options import Arguments
    from pagewalk.engine_types import Explanation, Program, Shipped
    from pagewalk.view.catalogue import Catalogue

Json = dict[str, Any]
Named = str | os.PathLike[str] | Config


@in_keywords()
def design(
    name: str | os.PathLike[str],
    machine: str | os.PathLike[str] | None = None,
    settings: typing.Mapping[str, Any] | None = None,
) -> Config:
    """A design by name or file, as an object whose fields can be changed.

    `settings` are keys with values, as in ``design("thp", settings={"placement.thp.giant":
    True})``: a variant, whose name in results says what differs, as that of
    ``design("thp[placement.thp.giant=true]")`` does.

    The fields show the design on `machine`, on which it is then simulated. Without `machine` they
    show it on the default machine, and the design can be simulated on any.

    Raises `UserError` for a name that there is not, and for a mistake in a file or in `settings`.
    """
    text = _named(name, "design")
    if machine is not None:
        machine = machines_of_user.found(_named(machine, "machine"))
    if settings:
        _table(settings, "settings")
        base, inner = variant(text)
        given = ([inner] if inner else []) + [f"{k}={toml(v, k)}" for k, v in settings.items()]
        text = f"{base}[{','.join(given)}]"
    on = None if machine is None else os.fspath(machine)
    base, inner = variant(text)
    resolved = native.resolve(on or options.DEFAULT_MACHINE, text)
    original, label = resolved["config"], None
    if inner:
        original = native.resolve(on or options.DEFAULT_MACHINE, base)["config"]
        label = resolved["name"]
    path = _path("designs", base)
    return Config(path.stem, path, resolved["config"], label, original=original, machine=on)


@in_keywords()
def machine(name: str | os.PathLike[str]) -> Config:
    """A machine by name or file, as an object whose fields can be changed.

    Raises `UserError` for a name that there is not, and for a mistake in a file.
    """
    text = machines_of_user.found(_named(name, "machine"))
    path = _path("machines", text)
    return Config(path.stem, path, native.resolve(text, sources.DEFAULT_DESIGN)["config"])


def _path(kind: str, name: str) -> Path:
    """The file of a design or machine."""
    if kind == "machines":
        name = machines_of_user.found(name)
    return Path(name) if is_path(name) else native.DATA / kind / f"{name}.toml"


def designs() -> Catalogue[Shipped]:
    """The shipped designs: a list of dictionaries with name and description."""
    return _catalogue("designs", native.designs())


def machines() -> Catalogue[Shipped]:
    """The shipped machines: a list of dictionaries with name and description."""
    return _catalogue("machines", native.machines())


def workloads() -> Catalogue[Program]:
    """The built-in programs: a list of dictionaries with name, description and parameters.

    Sizes are in bytes; `pagewalk.engine_types.Program` has all keys.
    """
    return _catalogue("workloads", native.workloads())


def _catalogue(what: str, entries: Iterable[Any]) -> Catalogue[Any]:
    from pagewalk.view.catalogue import Catalogue

    return Catalogue(what, entries)


def explain(name: str) -> Explanation:
    """The definition of a statistic, design, machine, program or configuration key.

    A dictionary with all senses of the name as ``found``, each with its unit, or the names
    ``nearest`` to one that has none. Raises `UserError` for what is no text.
    """
    if not isinstance(name, str):
        raise UserError(f"name: {shown(name)} is no name; expected one such as 'ipc'")
    return native.explain(name)


def result_schema() -> dict[str, Any]:
    """JSON Schema of `Result.data`, which is what ``--json`` writes."""
    return native.result_schema()


@in_keywords()
def run(design: Named = sources.DEFAULT_DESIGN, **arguments: Unpack[Arguments]) -> Result:
    """Simulates one design; see `compare` for the arguments.

    The cost of translation is measured with ``translation_cost=True`` only. It takes a second
    simulation beside the design's, with perfect TLBs, which `compare` and the command line have by
    default.
    """
    return _simulate([design], _given(arguments, "run"), comparing=False)


@in_keywords()
def compare(
    designs: Sequence[Named] = sources.DEFAULT_DESIGNS, **arguments: Unpack[Arguments]
) -> Result:
    """Simulates designs side by side on one program; the first is the reference.

    Exactly one of `workload` (with `size` in bytes or as ``"4GiB"``, `threads`
    and `params`), `trace`, `mix` and `program` names the program. `mix` is a list of
    programs that run side by side. Each is a text as on the command line,
    ``"gups:size=4GiB"``, or a dictionary, ``{"workload": "gups", "size": "4GiB"}``
    or ``{"trace": "prog.pwt"}``. `workload` is the name of
    a built-in program, or a program of one's own. That is a generator of NumPy arrays of
    addresses, of structured arrays or of `Block`s, or a list of one generator for each
    thread. `mappings` is its memory; without it mappings are
    inferred. Each design's `translation_cost` is measured against perfect TLBs, which run
    beside the designs. `skip`, `warmup` and
    `instructions` are counts or texts such as ``"100M"``; `sample` is
    ``"LENGTH/PERIOD"``. `settings` changes configuration keys of the machine
    and of every design, or, written ``"NAME:KEY"``, of one design or machine. A design that was
    made for a machine is simulated on it. `machine` may be a list: all designs then run on each,
    and ``result["epyc-milan", "thp"]`` is one of them. Python's lock is free while the engine runs.

    Raises `UserError` for invalid arguments, and `Failure` for a run that failed. Raises
    `WorkloadError` for a mistake in a program of one's own; its `result` is the
    result until then. Ctrl-C ends the run and is raised as `Interrupted`, a
    KeyboardInterrupt whose `result` is likewise; a second one does not wait for the result.
    """
    if isinstance(designs, (str, os.PathLike, Config)):
        raise UserError(
            "expected a list of designs; pagewalk.run takes a single one",
            about=RunOption("designs"),
        )
    if not isinstance(designs, Iterable):
        raise UserError(
            f"{shown(designs)} is no list; expected one such as ['radix']",
            about=RunOption("designs"),
        )
    with named("design", "designs"):
        return _simulate(list(designs), _given(arguments, "compare"), comparing=True)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `result` is what was measured until then, None if nothing was."""

    result: Result | None = None


def _simulate(designs: Sequence[Named], given: Json, *, comparing: bool) -> Result:
    if not designs:
        raise UserError("names no design; expected one or more", about=RunOption("designs"))
    bar = Bar(shown=bool(given["progress"]), reports=False)
    result: Result | None = None
    failed: PagewalkError | Terminated | None = None
    try:
        result = _result(designs, given, bar, comparing=comparing)
    except PagewalkError as error:
        failed = error
    except Terminated as ended:
        bar.stopped_by = ended.number
        failed = ended
    if bar.stopped_by:
        _pass_on(bar.stopped_by, result)
    if result is None:
        # Also after a signal that the caller takes no notice of.
        assert failed is not None
        raise failed
    return result


def _pass_on(number: int, result: Result | None) -> None:
    """Raises a signal that has stopped a run again, for the caller."""
    try:
        signal.raise_signal(number)
    except KeyboardInterrupt:
        interrupted = Interrupted()
        interrupted.result = result
        raise interrupted from None


def _result(designs: Sequence[Named], given: Json, bar: Bar, *, comparing: bool) -> Result:
    from pagewalk.runs import shards

    workload, mappings = given["workload"], given["mappings"]
    source, streams = None, None
    if workload is None or isinstance(workload, str):
        params = _table(given["params"], "params")
        source = sources.source(
            workload=workload,
            size=given["size"],
            threads=given["threads"],
            params={str(key): str(value) for key, value in params.items()},
            trace=given["trace"],
            mix=given["mix"],
            program=_argv(given["program"]),
            cpu=given["cpu"],
            clock=given["clock"],
        )
        if mappings is not None:
            raise UserError(
                "only a program of your own needs them; drop the argument",
                about=RunOption("mappings"),
            )
    else:
        streams = _streams(workload, mappings, given)
    with run_folder.folder() as folder:
        settings = _table(given["settings"], "settings")
        machines = _machines(designs, given, comparing=comparing)
        on = [_name_or_file(m, folder / f"machines-{i}", "machine") for i, m in enumerate(machines)]
        values = {
            **sources.limited(given, source),
            "machine": on if len(on) > 1 else on[0],
            "settings": [f"{k}={toml(v, k)}" for k, v in settings.items()],
        }
        if comparing:
            values = options.with_cost(values, source)
        named = [
            _name_or_file(d, folder / f"designs-{i}", "designs" if comparing else "design")
            for i, d in enumerate(designs)
        ]
        spec = options.specification(values, named, source)
        changed = {
            file: f"the {kind} '{value.name}'"
            for kind, values_of_it, files_of_it in (
                ("machine", machines, on),
                ("design", designs, named),
            )
            for value, file in zip(values_of_it, files_of_it, strict=True)
            if isinstance(value, Config) and file != str(value.path)
        }
        with (
            placed_at(changed),
            shards.hosts(given["cluster"], given["jobs"], spec) as hosts,
            bar,
        ):
            if streams is None:
                return Result(native.run(spec, bar, hosts))
            result = Result(native.run_custom(spec, streams, bar))
    error = streams.error()
    if error is not None and not bar.stopped_by:
        error.result = result
        raise error
    return result


_DEFAULTS: Json = {
    **{option.name: option.default for option in options.OPTIONS if option.python},
    **{"mappings": None, "program": None, "progress": True},
}
"""The default of each keyword argument."""


def _named(value: Any, what: str) -> str:
    """A name or a path as text. Raises `UserError` for another value."""
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise UserError(
        f"{shown(value)} is no {what.removesuffix('s')}; expected a name, the path of a "
        f".toml file, or what pagewalk.{what.removesuffix('s')} gives",
        about=RunOption(what),
    )


def _table(value: Any, what: str) -> typing.Mapping[str, Any]:
    """A dictionary. Raises `UserError` for another value."""
    if value is None or isinstance(value, typing.Mapping):
        return value or {}
    example = "{'mmu.walkers': 1}" if what == "settings" else "{'scale': 16}"
    raise UserError(
        f"{shown(value)} is no dictionary; expected one such as {example}", about=RunOption(what)
    )


def _argv(program: Any) -> list[str] | None:
    """A program with its arguments. Raises `UserError` for one text: nothing splits it."""
    if program is None:
        return None
    if isinstance(program, os.PathLike):
        return [os.fsdecode(program)]
    if isinstance(program, (str, bytes)):
        text = os.fsdecode(program)
        try:
            words = shlex.split(text)
        except ValueError:  # an open quote
            words = text.split()
        raise UserError(
            f"{shown(text)} is one text; expected a list of the program and its "
            f"arguments, program={words or ['ls']!r}",
            about=RunOption("program"),
        )
    if not isinstance(program, Iterable):
        raise UserError(
            f"{shown(program)} is no list; expected one as ['ls', '-l']", about=RunOption("program")
        )
    words = [
        os.fsdecode(word) if isinstance(word, (str, bytes, os.PathLike)) else str(word)
        for word in program
    ]
    if not words:
        raise UserError("an empty list; expected one as ['ls', '-l']", about=RunOption("program"))
    return words


def _machines(designs: Sequence[Named], arguments: Json, *, comparing: bool) -> Sequence[Named]:
    """The machines that were given, or the one that the designs were made for."""
    given = arguments["machine"]
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [_machine(designs, given)]
    if not given:
        raise UserError(
            "the list is empty; expected one machine or more", about=RunOption("machine")
        )
    if len(given) == 1:
        return [_machine(designs, given[0])]
    if not comparing:
        raise UserError(
            "pagewalk.run takes a single machine; pagewalk.compare several",
            about=RunOption("machine"),
        )
    made = next((d for d in designs if isinstance(d, Config) and d.machine is not None), None)
    if made is not None:
        raise UserError(
            f"the design '{made.name}' was made for '{made.machine}' and cannot run on "
            "several machines; make it without one",
            about=RunOption("machine"),
        )
    return given


def _machine(designs: Sequence[Named], chosen: Named | None) -> Named:
    """The machine that was given, or the one that the designs were made for."""
    said = "machine is"
    for one in designs:
        if not isinstance(one, Config) or one.machine is None:
            continue
        if chosen is None:
            chosen, said = one.machine, f"the design '{one.name}' for"
        elif _machine_file(chosen) != _machine_file(one.machine):
            other = chosen.name if isinstance(chosen, Config) else _named(chosen, "machine")
            raise UserError(
                f"the design '{one.name}' was made for '{one.machine}', and {said} "
                f"'{other}'; make it for that machine, or without one",
                about=RunOption("machine"),
            )
    return options.DEFAULT_MACHINE if chosen is None else chosen


def _machine_file(machine: Named) -> Path:
    if isinstance(machine, Config):
        return machine.path.resolve()
    return _path("machines", _named(machine, "machine")).resolve()


def _given(arguments: Arguments, function: str) -> Json:
    # Without a machine it is that of the designs, and the default one only then.
    return options.with_defaults(arguments, {**_DEFAULTS, "machine": None}, function)


for _function in (run, compare):
    options.described(_function, _DEFAULTS, options.Arguments, options.OPTIONS)


def _streams(
    workload: Any, mappings: Sequence[Mapping | tuple[int, int]] | None, given: Json
) -> generators.Streams:
    for name in ("size", "threads", "params", "trace", "mix", "program", "cpu", "clock"):
        if given[name] is not None:
            raise UserError(
                "makes no sense with a program of your own; drop the argument",
                about=RunOption(name),
            )
    return generators.Streams(workload, mappings)


def _name_or_file(value: Named, folder: Path, what: str) -> str:
    """The name or file by which the engine finds a design or machine.

    A changed one is written to a file in `folder`.
    """
    if not isinstance(value, Config):
        return _named(value, what)
    if value.name == value.base and not value.changes:
        return str(value.path)
    if not files.can_name(value.name):
        raise UserError(
            f"label: {shown(value.name)} cannot name a file; expected 1 to {files.LONGEST} bytes "
            "without '/'"
        )
    folder.mkdir()
    path = folder / f"{value.name}.toml"
    value.write(path)
    return str(path)
