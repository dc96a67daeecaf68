"""Simulations from Python: the same as on the command line."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pagewalk import custom, native
from pagewalk import source as sources
from pagewalk.config import Config, toml
from pagewalk.custom import Mapping
from pagewalk.errors import UserError
from pagewalk.progress import Bar
from pagewalk.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from pagewalk.answers import Explanation, Program, Shipped

Json = dict[str, Any]
Named = str | os.PathLike[str] | Config


class Arguments(TypedDict, total=False):
    """The keyword arguments of `compare`."""

    machine: Named
    workload: str | Iterable[Any] | Sequence[Iterable[Any]] | None
    mappings: Sequence[Mapping | tuple[int, int]] | None
    size: str | int | None
    threads: int | None
    params: Dictionary[str, Any] | None
    trace: str | os.PathLike[str] | None
    program: Sequence[str] | None
    skip: str | int | None
    warmup: str | int | None
    instructions: str | int | None
    roi: bool
    sample: str | None
    seed: int
    settings: Dictionary[str, Any] | None
    jobs: int | None
    interval: str | int | None
    perfetto: str | os.PathLike[str] | None
    perfetto_walks: int | None
    progress: bool


def design(
    name: str | os.PathLike[str], machine: str | os.PathLike[str] = sources.DEFAULT_MACHINE
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
    return compare([design], **arguments)


def compare(
    designs: Sequence[Named] = sources.DEFAULT_DESIGNS,
    *,
    machine: Named = sources.DEFAULT_MACHINE,
    workload: str | Iterable[Any] | Sequence[Iterable[Any]] | None = None,
    mappings: Sequence[Mapping | tuple[int, int]] | None = None,
    size: str | int | None = None,
    threads: int | None = None,
    params: Dictionary[str, Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    program: Sequence[str] | None = None,
    skip: str | int | None = None,
    warmup: str | int | None = None,
    instructions: str | int | None = None,
    roi: bool = False,
    sample: str | None = None,
    seed: int = 1,
    settings: Dictionary[str, Any] | None = None,
    jobs: int | None = None,
    interval: str | int | None = None,
    perfetto: str | os.PathLike[str] | None = None,
    perfetto_walks: int | None = None,
    progress: bool = True,
) -> Result:
    """Simulates designs side by side on one program; the first is the reference.

    Exactly one of `workload` (with `size` in bytes or as ``"4GiB"``, `threads`
    and `params`), `trace` and `program` says what runs. `workload` is the name of
    a built-in program, or a program of one's own: a generator of NumPy arrays of
    addresses, of structured arrays or of `Block`s, or a list of one for each
    thread; `mappings` says what memory it has, and without it mappings are
    inferred. `skip`, `warmup` and
    `instructions` are counts or texts such as ``"100M"``; `sample` is
    ``"LENGTH/PERIOD"``. `settings` changes configuration keys of the machine
    and of every design. Python's lock is free while the engine runs.

    Raises `UserError` for what makes no sense, `Failure` for what went wrong, and
    `WorkloadError` for a mistake in a program of one's own, whose `result` is
    what was measured until then.
    """
    if isinstance(designs, (str, os.PathLike, Config)):
        raise UserError("designs: expected a list of designs; pagewalk.run takes a single one")
    source, streams = None, None
    if workload is None or isinstance(workload, str):
        source = sources.source(
            workload=workload,
            size=size,
            threads=threads,
            params={k: str(v) for k, v in (params or {}).items()},
            trace=trace,
            program=None if program is None else [str(word) for word in program],
        )
        if mappings is not None:
            raise UserError("mappings: only a program of your own needs them; drop the argument")
    else:
        others: Json = {"size": size, "threads": threads, "params": params}
        others |= {"trace": trace, "program": program}
        streams = _streams(workload, mappings, others)
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        spec = sources.specification(
            machine=_name_or_file(machine, Path(folder, "machines")),
            designs=[_name_or_file(d, Path(folder, f"designs-{i}")) for i, d in enumerate(designs)],
            source=source,
            limits=sources.limits(
                skip=skip,
                warmup=warmup,
                instructions=instructions,
                roi=roi,
                sample_text=sample,
                endless=isinstance(workload, str),
            ),
            settings=[f"{key}={toml(value, key)}" for key, value in (settings or {}).items()],
            seed=seed,
            jobs=jobs,
            interval=interval,
            perfetto=None if perfetto is None else os.fspath(perfetto),
            perfetto_walks=perfetto_walks,
        )
        with Bar() if progress else nullcontext() as bar:
            if streams is None:
                return Result(native.run(spec, bar))
            result = Result(native.run_custom(spec, streams, bar))
    error = streams.error()
    if error is not None:
        error.result = result
        raise error
    return result


def _streams(
    workload: Any, mappings: Sequence[Mapping | tuple[int, int]] | None, others: Json
) -> custom.Streams:
    for name, value in others.items():
        if value is not None:
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
