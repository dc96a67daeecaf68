"""Simulations from Python: the same as on the command line."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import custom, native, options
from pagewalk import source as sources
from pagewalk.config import Config, toml
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
    name: str | os.PathLike[str], machine: str | os.PathLike[str] = options.DEFAULT_MACHINE
) -> Config:
    """A design by name or file, as an object whose fields can be changed.

    The fields show the design on `machine`; changes hold on any.
    """
    return _config("designs", name, os.fspath(machine), os.fspath(name))


def machine(name: str | os.PathLike[str]) -> Config:
    """A machine by name or file, as an object whose fields can be changed."""
    return _config("machines", name, os.fspath(name), sources.DEFAULT_DESIGN)


def _config(kind: str, name: str | os.PathLike[str], machine: str, design: str) -> Config:
    resolved = native.resolve(machine, design)["config"]
    text = os.fspath(name)
    is_path = "/" in text or text.endswith(".toml")
    path = Path(text) if is_path else native.DATA / kind / f"{text}.toml"
    return Config(path.stem, path, resolved)


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
    and of every design. Python's lock is free while the engine runs.

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
        values = {
            **sources.limited(given, source),
            "machine": _name_or_file(given["machine"], Path(folder, "machines")),
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
