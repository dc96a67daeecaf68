"""Simulations from Python: the same as on the command line."""

from __future__ import annotations

import inspect
import os
import tempfile
import typing
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import custom, native, options
from pagewalk import source as sources
from pagewalk.config import Config, is_path, toml, variant
from pagewalk.custom import Mapping
from pagewalk.errors import UserError
from pagewalk.progress import Bar
from pagewalk.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pagewalk.answers import Explanation, Program, Shipped
    from pagewalk.options import Arguments

Json = dict[str, Any]
Named = str | os.PathLike[str] | Config


def design(
    name: str | os.PathLike[str],
    machine: str | os.PathLike[str] | None = None,
    settings: typing.Mapping[str, Any] | None = None,
) -> Config:
    """A design by name or file, as an object whose fields can be changed.

    `settings` are keys with values, as in ``design("thp", settings={"placement.thp.giant":
    True})``: a variant, whose name in results says what differs, as that of
    ``design("thp[placement.thp.giant=true]")`` does.

    The fields show the design on `machine`, on which it is then simulated; without one they
    show it on the default machine, and the design can be simulated on any.
    """
    text = os.fspath(name)
    if settings:
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


def machine(name: str | os.PathLike[str]) -> Config:
    """A machine by name or file, as an object whose fields can be changed."""
    text = os.fspath(name)
    path = _path("machines", text)
    return Config(path.stem, path, native.resolve(text, sources.DEFAULT_DESIGN)["config"])


def _path(kind: str, name: str) -> Path:
    """The file of a design or machine."""
    return Path(name) if is_path(name) else native.DATA / kind / f"{name}.toml"


def designs() -> list[Shipped]:
    """The shipped designs: name and description."""
    return native.designs()


def machines() -> list[Shipped]:
    """The shipped machines: name and description."""
    return native.machines()


def workloads() -> list[Program]:
    """The built-in programs: name, description and parameters."""
    return native.workloads()


def explain(name: str) -> Explanation:
    """What a statistic, design, machine, program or configuration key is."""
    return native.explain(name)


def run(design: Named = sources.DEFAULT_DESIGN, **arguments: Unpack[Arguments]) -> Result:
    """Simulates one design; see `compare` for the arguments."""
    return _simulate([design], arguments, comparing=False)


def compare(
    designs: Sequence[Named] = sources.DEFAULT_DESIGNS, **arguments: Unpack[Arguments]
) -> Result:
    """Simulates designs side by side on one program; the first is the reference.

    Exactly one of `workload` (with `size` in bytes or as ``"4GiB"``, `threads`
    and `params`), `trace`, `mix` and `program` says what runs. `mix` is a list of
    programs that run side by side, each a text as on the command line
    (``"gups:size=4GiB"``) or a dictionary (``{"workload": "gups", "size": "4GiB"}``,
    ``{"trace": "prog.pwt"}``). `workload` is the name of
    a built-in program, or a program of one's own: a generator of NumPy arrays of
    addresses, of structured arrays or of `Block`s, or a list of one for each
    thread; `mappings` says what memory it has, and without it mappings are
    inferred. Each design's `translation_cost` is measured against perfect TLBs, which run
    beside the designs. `skip`, `warmup` and
    `instructions` are counts or texts such as ``"100M"``; `sample` is
    ``"LENGTH/PERIOD"``. `settings` changes configuration keys of the machine
    and of every design, or, written ``"NAME:KEY"``, of one design or machine. A design that was
    made for a machine is simulated on it. `machine` may be a list: all designs then run on each,
    and ``result["epyc-milan", "thp"]`` is one of them. Python's lock is free while the engine runs.

    Raises `UserError` for what makes no sense, `Failure` for what went wrong, and
    `WorkloadError` for a mistake in a program of one's own, whose `result` is
    what was measured until then.
    """
    if isinstance(designs, (str, os.PathLike, Config)):
        raise UserError("designs: expected a list of designs; pagewalk.run takes a single one")
    return _simulate(designs, arguments, comparing=True)


def _simulate(designs: Sequence[Named], arguments: Arguments, *, comparing: bool) -> Result:
    given = _given(arguments)
    workload, mappings = given["workload"], given["mappings"]
    source, streams = None, None
    if workload is None or isinstance(workload, str):
        program = given["program"]
        source = sources.source(
            workload=workload,
            size=given["size"],
            threads=given["threads"],
            params={k: str(v) for k, v in (given["params"] or {}).items()},
            trace=given["trace"],
            mix=given["mix"],
            program=None if program is None else [str(word) for word in program],
        )
        if mappings is not None:
            raise UserError("mappings: only a program of your own needs them; drop the argument")
    else:
        streams = _streams(workload, mappings, given)
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        machines = _machines(designs, arguments, comparing=comparing)
        on = [_name_or_file(m, Path(folder, f"machines-{i}")) for i, m in enumerate(machines)]
        values = {
            **sources.limited(given, source),
            "machine": on if len(on) > 1 else on[0],
            "settings": [f"{k}={toml(v, k)}" for k, v in (given["settings"] or {}).items()],
        }
        if comparing:
            values = options.with_cost(values, source)
        files = [_name_or_file(d, Path(folder, f"designs-{i}")) for i, d in enumerate(designs)]
        spec = options.specification(values, files, source)
        with Bar() if given["progress"] else nullcontext() as bar:
            if streams is None:
                return Result(native.run(spec, bar))
            result = Result(native.run_custom(spec, streams, bar))
    error = streams.error()
    if error is not None:
        error.result = result
        raise error
    return result


_DEFAULTS: Json = {
    **{option.name: option.default for option in options.OPTIONS if option.python},
    **{"mappings": None, "program": None, "progress": True},
}
"""Of every keyword argument."""


def _machines(
    designs: Sequence[Named], arguments: Arguments, *, comparing: bool
) -> Sequence[Named]:
    """The machines that were given, or the one that the designs were made for."""
    given = arguments.get("machine")
    if given is None or isinstance(given, (str, os.PathLike, Config)):
        return [_machine(designs, given)]
    if not given:
        raise UserError("machine: the list is empty; expected one machine or more")
    if len(given) == 1:
        return [_machine(designs, given[0])]
    if not comparing:
        raise UserError("machine: pagewalk.run takes a single machine; pagewalk.compare several")
    made = next((d for d in designs if isinstance(d, Config) and d.machine is not None), None)
    if made is not None:
        raise UserError(
            f"machine: the design '{made.name}' was made for '{made.machine}' and cannot run on "
            "several machines; make it without one"
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
            other = chosen.name if isinstance(chosen, Config) else os.fspath(chosen)
            raise UserError(
                f"machine: the design '{one.name}' was made for '{one.machine}', and {said} "
                f"'{other}'; make it for that machine, or without one"
            )
    return options.DEFAULT_MACHINE if chosen is None else chosen


def _machine_file(machine: Named) -> Path:
    if isinstance(machine, Config):
        return machine.path.resolve()
    return _path("machines", os.fspath(machine)).resolve()


def _given(arguments: Arguments) -> Json:
    unknown = [name for name in arguments if name not in _DEFAULTS]
    if unknown:
        raise TypeError(f"compare() got an unexpected keyword argument '{unknown[0]}'")
    return {**_DEFAULTS, **arguments}


def _described(function: Callable[..., Result]) -> None:
    """Gives a function the signature and the documentation that its keywords have."""
    signature = inspect.signature(function)
    first = next(iter(signature.parameters.values()))
    hints = options.Arguments.__annotations__
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
                for name, default in _DEFAULTS.items()
            ),
        ]
    )
    listed = (f"    {o.name}: {o.help}" for o in options.OPTIONS if o.python)
    function.__doc__ = f"{function.__doc__}\n    As on the command line:\n\n" + "\n".join(listed)


_described(run)
_described(compare)


def _streams(
    workload: Any, mappings: Sequence[Mapping | tuple[int, int]] | None, given: Json
) -> custom.Streams:
    for name in ("size", "threads", "params", "trace", "mix", "program"):
        if given[name] is not None:
            raise UserError(f"{name}: makes no sense with a program of your own; drop the argument")
    return custom.Streams(workload, mappings)


def _name_or_file(value: Named, folder: Path) -> str:
    """What the engine finds a design or machine by; a changed one is written to a file."""
    if not isinstance(value, Config):
        return os.fspath(value)
    if value.name == value.base and not value.changes:
        return str(value.path)
    if "/" in value.name or not value.name:
        raise UserError(f"label: '{value.name}' cannot name a file; expected no '/'")
    folder.mkdir()
    path = folder / f"{value.name}.toml"
    value.write(path)
    return str(path)
