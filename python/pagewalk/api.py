"""Simulations from Python: the same as on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from pagewalk import native
from pagewalk import source as sources
from pagewalk.config import Config, toml
from pagewalk.errors import UserError
from pagewalk.progress import Bar
from pagewalk.result import Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

Json = dict[str, Any]
Named = str | os.PathLike[str] | Config


class Arguments(TypedDict, total=False):
    """The keyword arguments of `compare`."""

    machine: Named
    workload: str | None
    size: str | int | None
    threads: int | None
    params: Mapping[str, Any] | None
    trace: str | os.PathLike[str] | None
    program: Sequence[str] | None
    skip: str | int | None
    warmup: str | int | None
    instructions: str | int | None
    roi: bool
    sample: str | None
    seed: int
    settings: Mapping[str, Any] | None
    jobs: int | None
    interval: str | int | None
    perfetto: str | os.PathLike[str] | None
    perfetto_walks: int
    progress: bool


def design(name: str | os.PathLike[str]) -> Config:
    """A design by name or file, as an object whose fields can be changed."""
    return Config(os.fspath(name), _resolved(sources.DEFAULT_MACHINE, os.fspath(name))["design"])


def machine(name: str | os.PathLike[str]) -> Config:
    """A machine by name or file, as an object whose fields can be changed."""
    return Config(os.fspath(name), _resolved(os.fspath(name), sources.DEFAULT_DESIGN)["machine"])


def _resolved(machine: str, design: str) -> Json:
    answer = native.call(
        "resolve", json.dumps({"machine": machine, "designs": [design], "set": []})
    )
    config: Json = answer["designs"][0]["config"]
    return config


def designs() -> list[Json]:
    """The shipped designs: name and description."""
    return list(native.call("designs"))


def machines() -> list[Json]:
    """The shipped machines: name and description."""
    return list(native.call("machines"))


def workloads() -> list[Json]:
    """The built-in programs: name, description and parameters."""
    return list(native.call("workloads"))


def explain(name: str) -> Json | None:
    """What a statistic, design, machine, program or configuration key is."""
    answer: Json | None = native.call("explain", name)
    return answer


def run(design: Named = sources.DEFAULT_DESIGN, **arguments: Unpack[Arguments]) -> Result:
    """Simulates one design; see `compare` for the arguments."""
    return compare([design], **arguments)


def compare(
    designs: Sequence[Named] = sources.DEFAULT_DESIGNS,
    *,
    machine: Named = sources.DEFAULT_MACHINE,
    workload: str | None = None,
    size: str | int | None = None,
    threads: int | None = None,
    params: Mapping[str, Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    program: Sequence[str] | None = None,
    skip: str | int | None = None,
    warmup: str | int | None = None,
    instructions: str | int | None = None,
    roi: bool = False,
    sample: str | None = None,
    seed: int = 1,
    settings: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    interval: str | int | None = None,
    perfetto: str | os.PathLike[str] | None = None,
    perfetto_walks: int = 1000,
    progress: bool = True,
) -> Result:
    """Simulates designs side by side on one program; the first is the reference.

    Exactly one of `workload` (with `size` in bytes or as ``"4GiB"``, `threads`
    and `params`), `trace` and `program` says what runs. `skip`, `warmup` and
    `instructions` are counts or texts such as ``"100M"``; `sample` is
    ``"LENGTH/PERIOD"``. `settings` changes configuration keys of the machine
    and of every design. Python's lock is free while the engine runs.

    Raises `UserError` for what makes no sense, `Failure` for what went wrong.
    """
    if isinstance(designs, (str, os.PathLike, Config)):
        raise UserError("designs: expected a list of designs; pagewalk.run takes a single one")
    machine_name, machine_changes = _named(machine)
    spec = sources.specification(
        machine=machine_name,
        designs=[_design(d) for d in designs],
        source=sources.source(
            workload=workload,
            size=size,
            threads=threads,
            params={k: str(v) for k, v in (params or {}).items()},
            trace=trace,
            program=None if program is None else [str(word) for word in program],
        ),
        limits=sources.limits(
            skip=skip,
            warmup=warmup,
            instructions=instructions,
            roi=roi,
            sample_text=sample,
            endless=workload is not None,
        ),
        settings=[*machine_changes, *(f"{k}={toml(v)}" for k, v in (settings or {}).items())],
        seed=seed,
        jobs=jobs,
        interval=interval,
        perfetto=None if perfetto is None else os.fspath(perfetto),
        perfetto_walks=perfetto_walks,
    )
    if not progress:
        return Result(native.run(spec))
    with Bar() as bar:
        return Result(native.run(spec, bar))


def _named(value: Named) -> tuple[str, list[str]]:
    if isinstance(value, Config):
        return value.base, value.changes
    return os.fspath(value), []


def _design(value: Named) -> str | Json:
    base, changes = _named(value)
    if not changes and not (isinstance(value, Config) and value.label != value.base):
        return base
    assert isinstance(value, Config)
    label = value.label if value.label != value.base else f"{base} (changed)"
    return {"base": base, "name": label, "set": changes}
