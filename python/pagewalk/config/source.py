"""The program of a run: a built-in one, a trace, a mix of these, or any executable."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagewalk.config.config import listed
from pagewalk.config.options import whole, with_an_end
from pagewalk.errors import Either, RunOption, UserError, Words
from pagewalk.host import files
from pagewalk.view.escape import shown
from pagewalk.view.quantities import exact_bytes, parse_bytes, parse_count

Json = dict[str, Any]

DEFAULT_DESIGN = "radix"
DEFAULT_DESIGNS = ("radix", "radix5", "thp", "thp-reservation", "l2tlb-128k", "perfect-tlb")
VIRTUAL = {
    "design": ["radix-virtual"],
    "designs": ["radix-virtual", "thp-virtual", "perfect-tlb"],
}
"""The defaults on a calibrated virtual machine: those with a design for virtual machines."""


def machines(text: str) -> list[str]:
    """The machines that a text names, with commas between them, or the file that it is."""
    return [text] if files.is_file(text) else listed(text)


_RUNS = {
    name: RunOption(name, form)
    for name, form in [
        ("workload", "NAME"),
        ("trace", "FILE"),
        ("mix", "A,B,…"),
        ("program", "PROGRAM ARGS…"),
    ]
}
"""Options that choose the program."""
_LISTS = Either("'pagewalk workloads'", "pagewalk.workloads()")


def source(
    *,
    workload: str | None = None,
    size: str | int | None = None,
    threads: int | None = None,
    params: dict[str, Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    mix: str | Sequence[str | Mapping[str, Any]] | None = None,
    program: list[str] | None = None,
    cpu: str | None = None,
    clock: str | None = None,
) -> Json:
    """The `source` of a specification: one built-in program, trace, mix or executable.

    Raises `UserError` for a mistake.
    """
    said = {"workload": workload, "trace": trace, "mix": mix, "program": program}
    given = [_RUNS[name] for name, value in said.items() if value]
    if len(given) != 1:
        *others, last = _RUNS.values()
        raise UserError(
            "what to run: expected exactly one of ",
            *_joined(others, ", "),
            " and ",
            last,
            ", found ",
            *(_joined(given, " and ") or ["none"]),
            "; ",
            _LISTS,
            " lists the built-in programs",
        )
    for name, chosen in (("cpu", cpu), ("clock", clock)):
        if chosen is not None and not program:
            raise UserError(
                "belongs to a program that QEMU runs; add ",
                _RUNS["program"],
                " or drop ",
                RunOption(name),
                lead=(RunOption(name), " "),
            )
    if clock not in (None, "emulator", "simulated"):
        raise UserError(
            f"'{clock}' is no clock; expected emulator or simulated", about=RunOption("clock")
        )
    if workload is None:
        own = (
            ("size", size, "gups:size=4GiB"),
            ("threads", threads, "bfs:threads=2"),
            ("params", params, "bfs:scale=16"),
        )
        for name, value, written in own:
            option = RunOption(name)
            if value and mix:
                raise UserError(
                    "belongs to a single program; in a mix write it behind the program's name, "
                    f"as {written}",
                    lead=(option, " "),
                )
            if value:
                raise UserError(
                    "belongs to a built-in program; add ",
                    _RUNS["workload"],
                    " or drop ",
                    option,
                    lead=(option, " "),
                )
    if workload and "," in workload:
        raise UserError(
            f"'{workload}' is no single program; expected one, or a mix of programs side by side: ",
            RunOption("mix", workload),
            about=RunOption("workload"),
        )
    if workload:
        where = {name: RunOption(name) for name in ("size", "threads")}
        return _built_in(workload, size, threads, params or {}, where)
    if trace:
        return {"trace": {"path": _existing_trace(trace, RunOption("trace"))}}
    if mix:
        return {"mix": {"programs": _mix(mix)}}
    assert program is not None
    asked = {"cpu": cpu, "clock": clock}
    emulated = {name: value for name, value in asked.items() if value is not None}
    return {"program": {"argv": _existing_program(program), **emulated}}


def _joined(options: Sequence[RunOption], between: str) -> list[RunOption | str]:
    parts: list[RunOption | str] = []
    for option in options:
        parts += [between, option]
    return parts[1:]


def limited(values: Mapping[str, Any], source: Json | None) -> Json:
    """The values of options, with default limits for built-in programs and mixes."""
    programs = len(source["mix"]["programs"]) if source and "mix" in source else 1
    endless = source is not None and ("workload" in source or "mix" in source)
    return with_an_end(values, programs) if endless else dict(values)


def _built_in(
    name: str,
    size: str | int | None,
    threads: int | None,
    params: dict[str, Any],
    where: Mapping[str, Words],
) -> Json:
    """A built-in program; `where` has the names of its options in messages."""
    if threads is not None:
        threads = whole(threads, where["threads"], "1 or more")
        if not 1 <= threads < 2**32:
            raise UserError(
                f"{threads} is not possible; expected 1 or more", about=where["threads"]
            )
    return {
        "workload": {
            "name": name,
            "size": None if size is None else exact_bytes(parse_bytes(size, where["size"])),
            "threads": 1 if threads is None else threads,
            "params": params,
        }
    }


_NAME = re.compile(r"[A-Za-z0-9_-]+")
TRACES = (
    ".pwt",
    ".champsim",
    ".champsimtrace",
    ".trace",
    ".xz",
    ".gz",
    ".zst",
    ".lz4",
    ".sz",
    ".zip",
)
"""Endings of files that are traces."""
_MIX = RunOption("mix")
_FORM = "NAME[:KEY=VALUE]… or the path of a trace, and no comma or colon in a value"


def _mix(mix: str | Sequence[str | Mapping[str, Any]]) -> list[Json]:
    """The programs of a mix: texts of one or more, separated by commas, or dictionaries."""
    programs = []
    if not isinstance(mix, (str, Mapping, Sequence)):
        raise UserError(
            f"{shown(mix)} is no list of programs; expected texts, or dictionaries", about=_MIX
        )
    for one in [mix] if isinstance(mix, (str, Mapping)) else mix:
        if isinstance(one, Mapping):
            programs.append(_listed(dict(one)))
        elif isinstance(one, str):
            programs += [_written(text.strip()) for text in one.split(",")]
        else:
            raise UserError(
                f"{shown(one)} is no program of a mix; expected a text or a dictionary", about=_MIX
            )
    return programs


def _written(text: str) -> Json:
    """A program of a mix as it is written on the command line."""
    name, *pairs = text.split(":")
    if "/" in name or name.endswith(TRACES):
        return {"trace": {"path": _repeated_trace(text)}}
    if not _NAME.fullmatch(name):
        raise UserError(f"'{text}' names no program; expected {_FORM}", about=_MIX)
    own: Json = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(
                f"'{pair}' is not understood; expected {_FORM}", about=(_MIX, f" {name}")
            )
        own[key.strip()] = value.strip()
    return _member(name, own)


def _listed(own: Json) -> Json:
    """A program of a mix as a dictionary."""
    if "program" in own:
        raise UserError(
            "a live program cannot start again; record it and give the trace, "
            'as {"trace": "prog.pwt"}',
            about=_MIX,
        )
    if "trace" in own:
        path = own.pop("trace")
        if own:
            raise UserError(
                f"a trace has no '{next(iter(own))}'; drop the key", about=(_MIX, f" {path}")
            )
        return {"trace": {"path": _repeated_trace(path)}}
    name = own.pop("workload", None)
    if not isinstance(name, str):
        raise UserError(
            'a dictionary without a name; expected {"workload": "gups", …} '
            'or {"trace": "prog.pwt"}',
            about=_MIX,
        )
    return _member(name, own)


def _member(name: str, own: Json) -> Json:
    where = {key: (_MIX, f" {name}: {key}") for key in ("size", "threads")}
    size, threads = own.pop("size", None), own.pop("threads", None)
    if threads is not None:
        threads = parse_count(threads, where["threads"])
    return _built_in(name, size, threads, {k: str(v) for k, v in own.items()}, where)


def _repeated_trace(trace: str | os.PathLike[str]) -> str:
    path = _existing_trace(trace, _MIX)
    files.refuse_pipe(path, _MIX, "a mix")
    return path


def _existing_trace(trace: str | os.PathLike[str], option: RunOption) -> str:
    if not isinstance(trace, (str, os.PathLike)):
        raise UserError(
            f"{shown(trace)} is not understood; expected the path of a trace", about=option
        )
    path = Path(trace)
    if not files.there(path):
        raise UserError(f"there is no file '{path}'; check the name", about=option)
    # A folder may be a drmemtrace: the engine says what it lacks.
    if not os.access(path, os.R_OK):
        raise UserError(f"'{path}' may not be read; check its permissions", about=option)
    return str(path)


def _existing_program(argv: list[str]) -> list[str]:
    name = argv[0]
    found = shutil.which(name)
    if found is not None:
        return list(argv)
    path = Path(name)
    if "/" not in name:
        hint = f"; did you mean ./{name}?" if files.is_file(path) else "; check the name and PATH"
        raise UserError(f"there is no program '{name}'{hint}", option="program")
    if not files.there(path):
        raise UserError(f"there is no program '{name}'; check the name", option="program")
    if path.is_dir():
        raise UserError(f"'{name}' is a folder; give a program in it", option="program")
    raise UserError(f"'{name}' is not executable; run chmod +x on it", option="program")
