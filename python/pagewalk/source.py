"""What runs: a built-in program, a trace or a program."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from pagewalk.errors import UserError
from pagewalk.quantities import exact_bytes, parse_bytes

Json = dict[str, Any]

DEFAULT_DESIGN = "radix"
DEFAULT_DESIGNS = ("radix", "radix5", "thp", "thp-reservation", "l2tlb-128k", "perfect-tlb")


def source(
    *,
    workload: str | None = None,
    size: str | int | None = None,
    threads: int | None = None,
    params: dict[str, Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    program: list[str] | None = None,
) -> Json:
    """What runs: exactly one of a built-in program, a trace and a program."""
    given = [
        name
        for name, value in (
            ("--workload NAME", workload),
            ("--trace FILE", trace),
            ("-- PROGRAM ARGS…", program),
        )
        if value
    ]
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise UserError(
            f"what to run: expected exactly one of --workload NAME, --trace FILE and "
            f"-- PROGRAM ARGS…, found {found}; 'pagewalk workloads' lists the built-in programs"
        )
    if workload is None:
        for flag, value in (("--size", size), ("--threads", threads), ("--param", params)):
            if value:
                raise UserError(
                    f"{flag} belongs to a built-in program; add --workload NAME or drop {flag}"
                )
    if workload:
        if threads is not None and not 1 <= threads < 2**32:
            raise UserError(f"--threads: {threads} is not possible; expected 1 or more")
        return {
            "workload": {
                "name": workload,
                "size": None if size is None else exact_bytes(parse_bytes(size, "--size")),
                "threads": 1 if threads is None else threads,
                "params": params or {},
            }
        }
    if trace:
        return {"trace": {"path": _existing_trace(trace)}}
    assert program is not None
    return {"program": {"argv": _existing_program(program)}}


def _existing_trace(trace: str | os.PathLike[str]) -> str:
    path = Path(trace)
    if not path.exists():
        raise UserError(f"--trace: there is no file '{path}'; check the name")
    if path.is_dir():
        raise UserError(f"--trace: '{path}' is a folder; give a trace file")
    if not os.access(path, os.R_OK):
        raise UserError(f"--trace: '{path}' may not be read; check its permissions")
    return str(path)


def _existing_program(argv: list[str]) -> list[str]:
    name = argv[0]
    found = shutil.which(name)
    if found is not None:
        return list(argv)
    path = Path(name)
    if "/" not in name:
        hint = f"; did you mean ./{name}?" if path.is_file() else "; check the name and PATH"
        raise UserError(f"there is no program '{name}'{hint}")
    if not path.exists():
        raise UserError(f"there is no program '{name}'; check the name")
    if path.is_dir():
        raise UserError(f"'{name}' is a folder; give a program in it")
    raise UserError(f"'{name}' is not executable; run chmod +x on it")
