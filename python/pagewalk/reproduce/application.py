"""The programs of a paper: built-in ones, traces and mixes, as large as a scale has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewalk.config import source as sources
from pagewalk.config.config import is_path
from pagewalk.errors import UserError
from pagewalk.reproduce.form import Table
from pagewalk.runs.plan import Program
from pagewalk.view.escape import shown

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
    """Instructions of each thread that smaller scales fast-forward: they are unlike the rest."""
    smaller: str = ""
    """The reductions of this scale against the paper, in words."""
    own: Json = field(default_factory=dict)
    """Keys that the paper's own code reads."""

    def resized(
        self, *, size: str | None = None, threads: int = 1, **params: object
    ) -> Application:
        """The application with another size, or other parameters."""
        program = replace(
            self.program,
            size=size or self.program.size,
            threads=threads,
            params={**self.program.params, **{key: str(value) for key, value in params.items()}},
        )
        return replace(self, program=program)


def read(
    name: str, table: Table, folder: Path, scale: str, scales: Iterable[str], own: Iterable[str]
) -> Application:
    """An application of `paper.toml` at a scale; `own` are keys that the paper's code knows.

    Its table `at` has the differences by scale. Raises `UserError` for a mistake at any scale.
    """
    known = (*_KEYS, *own)
    table.only(known)
    there = Table(table.fields.get("at", {}), table.at("at"))
    there.only(scales)
    found = None
    for other in scales:
        at = there.table(other)
        at.only([key for key in known if key != "at"])
        params = {**table.table("params").fields, **at.table("params").fields}
        merged = Table({**table.fields, **at.fields, "params": params}, table.where)
        one = _read(name, merged, folder, own, _less(table.fields, at.fields))
        if other == scale:
            found = one
    assert found is not None
    return found


def _read(name: str, table: Table, folder: Path, own: Iterable[str], smaller: str) -> Application:
    given = [key for key in _SOURCES if key in table]
    if len(given) != 1:
        raise UserError(
            f"{table.where}: expected one of {', '.join(_SOURCES)}, found "
            f"{' and '.join(given) or 'none'}"
        )
    size: str | None = None
    if "size" in table:
        table.size("size")
        size = str(table.fields["size"])
    program = Program(
        table.text("workload") if "workload" in table else name,
        size,
        table.whole("threads", 1, 2**32 - 1, 1),
        {key: _param(value, table.at(f"params.{key}")) for key, value in _params(table)},
        table.size("host_memory", "512MiB"),
        table.seconds("start_seconds", 2),
        _beside(folder, table.text("trace")) if "trace" in table else None,
        _mix(folder, table.fields["mix"], table.where) if "mix" in table else (),
        table.flag("roi", default="workload" in table),
    )
    return Application(
        name,
        program,
        table.settings("set"),
        table.size("host_memory_grows"),
        table.count("skip", "0"),
        smaller,
        {key: table.fields[key] for key in own if key in table},
    )


def _params(table: Table) -> Iterable[tuple[str, Any]]:
    return table.table("params").fields.items()


def _param(value: object, where: str) -> str:
    """A parameter of a program, as the engine takes it."""
    if isinstance(value, (str, int, float)):
        return str(value)
    raise UserError(f"{where}: expected a text or a number, found {shown(value)}")


def _less(whole: Json, reduced: Json) -> str:
    """The differences of a reduced scale, in words."""
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


def _mix(folder: Path, programs: object, where: str) -> tuple[Json, ...]:
    found: list[Json] = []
    if not isinstance(programs, list) or not programs:
        raise UserError(f"{where}.mix: expected a list of programs, found {shown(programs)}")
    for one in programs:
        path = one.get("trace") if isinstance(one, dict) else one
        if isinstance(path, str) and (is_path(path) or path.endswith(sources.TRACES)):
            # A missing file is found when it is read.
            found.append({"trace": {"path": str(_beside(folder, path))}})
            continue
        try:
            found += sources.source(mix=[one])["mix"]["programs"]
        except UserError as error:
            raise UserError(f"{where}.mix: {error}") from None
    return tuple(found)
