"""The programs of a paper: built-in ones, traces and mixes, as large as a scale has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk import source as sources
from pagewalk.config import is_path
from pagewalk.errors import UserError
from pagewalk.quantities import parse_bytes, parse_count
from pagewalk.reproduce.plan import Program

Json = dict[str, Any]

_SOURCES = ("workload", "trace", "mix")
_KEYS = (
    *_SOURCES, "size", "threads", "params", "set", "host_memory", "host_memory_grows",
    "start_seconds", "skip", "roi", "at",
)  # fmt: skip


@dataclass(frozen=True)
class Application:
    """One of the paper's programs."""

    name: str
    program: Program
    changes: Json = field(default_factory=dict)
    grows: int = 0
    """Bytes of the host that it takes in addition at the end of the paper's own scale."""
    skip: int = 0
    """Instructions a thread that smaller scales pass over, since they are not like the rest."""
    smaller: str = ""
    """What is less of it at this scale than in the paper, in words."""
    own: Json = field(default_factory=dict)
    """Keys that the paper's own code reads."""

    def resized(
        self, *, size: str | None = None, threads: int = 1, **params: object
    ) -> Application:
        """The same program with another size, or other parameters."""
        program = replace(
            self.program,
            size=size or self.program.size,
            threads=threads,
            params={**self.program.params, **{key: str(value) for key, value in params.items()}},
        )
        return replace(self, program=program)


def read(name: str, data: Json, folder: Path, scale: str, own: Iterable[str]) -> Application:
    """An application of `paper.toml` at a scale; `own` are keys that the paper's code knows.

    `at` holds by scale what is different there. Raises `UserError` for a mistake.
    """
    where = f"applications.{name}"
    whole, reduced = data, data.get("at", {}).get(scale, {})
    known = (*_KEYS, *own)
    for key in (*data, *reduced):
        if key not in known:
            near = native.nearest(key, known)
            hint = f"did you mean '{near}'? " if near else ""
            raise UserError(f"{where}.{key} is unknown; {hint}there are {', '.join(known)}")
    data = {**whole, **reduced, "params": {**whole.get("params", {}), **reduced.get("params", {})}}
    given = [key for key in _SOURCES if key in data]
    if len(given) != 1:
        raise UserError(f"{where}: expected one of {', '.join(_SOURCES)}, found {given or 'none'}")
    program = Program(
        data.get("workload", name),
        data.get("size"),
        data.get("threads", 1),
        {key: str(value) for key, value in data["params"].items()},
        parse_bytes(data.get("host_memory", "512MiB"), f"{where}.host_memory"),
        float(data.get("start_seconds", 2)),
        _beside(folder, data["trace"]) if "trace" in data else None,
        _mix(folder, data["mix"], where) if "mix" in data else (),
        bool(data.get("roi", "workload" in data)),
    )
    grows, skip = data.get("host_memory_grows", ""), data.get("skip", "")
    return Application(
        name,
        program,
        data.get("set", {}),
        parse_bytes(grows, f"{where}.host_memory_grows") if grows else 0,
        parse_count(skip, f"{where}.skip") if skip else 0,
        _less(whole, reduced),
        {key: data[key] for key in own if key in data},
    )


def _less(whole: Json, reduced: Json) -> str:
    """What is different at a scale, in words."""
    before = {**whole, **whole.get("params", {})}
    after = {**reduced, **reduced.get("params", {})}
    return ", ".join(
        "other programs"
        if key == "mix"
        else f"{key} {value} instead of {before.get(key, 'its default')}"
        for key, value in after.items()
        if key not in {"params", "host_memory", "start_seconds"}
    )


def _beside(folder: Path, trace: str) -> Path:
    """A trace's path; a relative one is from the paper's folder."""
    return (folder / trace).resolve()


def _mix(folder: Path, programs: list[Any], where: str) -> tuple[Json, ...]:
    found: list[Json] = []
    for one in programs:
        path = one.get("trace") if isinstance(one, dict) else one
        if isinstance(path, str) and (is_path(path) or path.endswith(sources.TRACES)):
            # Whether it is there is looked at where it is read.
            found.append({"trace": {"path": str(_beside(folder, path))}})
            continue
        try:
            found += sources.source(mix=[one])["mix"]["programs"]
        except UserError as error:
            raise UserError(f"{where}.mix: {error}") from None
    return tuple(found)
