"""From flags and keywords to the specification that the engine reads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from pagewalk.errors import UserError
from pagewalk.quantities import exact_bytes, parse_bytes, parse_count

Json = dict[str, Any]

DEFAULT_MACHINE = "epyc-milan"
DEFAULT_DESIGN = "radix"
DEFAULT_DESIGNS = ("radix", "radix5", "thp", "thp-reservation", "l2tlb-128k", "perfect-tlb")
DEFAULT_INSTRUCTIONS = 100_000_000
"""Measured of a built-in program when nothing else is said; most have no end."""
DEFAULT_WARMUP = 10_000_000
"""Before it, likewise."""


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


def sample(text: str) -> Json:
    """Reads ``LENGTH/PERIOD``."""
    length, slash, period = text.partition("/")
    if not slash:
        raise UserError(f"--sample: '{text}' is not understood; expected LENGTH/PERIOD, as 1M/20M")
    parsed = {
        "length": parse_count(length, "--sample"),
        "period": parse_count(period, "--sample"),
    }
    if not 0 < parsed["length"] < parsed["period"]:
        raise UserError(
            f"--sample: '{text}' is not possible; expected a LENGTH above 0 and below PERIOD"
        )
    return parsed


def limits(
    *,
    skip: str | int | None = None,
    warmup: str | int | None = None,
    instructions: str | int | None = None,
    roi: bool = False,
    sample_text: str | None = None,
    endless: bool,
) -> Json:
    """How much of it is simulated; `endless` sources get the default limits."""
    if endless and instructions is None:
        instructions = DEFAULT_INSTRUCTIONS
        warmup = DEFAULT_WARMUP if warmup is None else warmup
    parsed = {
        "skip": parse_count(skip or 0, "--skip"),
        "warmup": parse_count(warmup or 0, "--warmup"),
        "instructions": None
        if instructions is None
        else parse_count(instructions, "--instructions"),
        "roi": roi,
        "sample": None if sample_text is None else sample(sample_text),
    }
    if parsed["instructions"] == 0:
        raise UserError("--instructions: 0 would measure nothing; expected 1 or more")
    return parsed


def assignments(pairs: list[str], flag: str) -> dict[str, str]:
    """Reads ``k=v`` pairs."""
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{flag}: '{pair}' is not understood; expected NAME=VALUE")
        result[key.strip()] = value.strip()
    return result


def check_seed(seed: int) -> None:
    """Refuses what is no seed."""
    if not 0 <= seed < 2**64:
        raise UserError(f"--seed: {seed} is not possible; expected 0 to 2^64 - 1")


def specification(
    *,
    machine: str,
    designs: list[Any],
    source: Json | None,
    limits: Json,
    settings: list[str],
    seed: int,
    jobs: int | None,
    interval: str | int | None,
    perfetto: str | None,
    perfetto_walks: int | None,
) -> Json:
    """What the engine's `run` reads."""
    assignments(settings, "--set")
    if jobs is not None and jobs < 1:
        raise UserError(f"--jobs: {jobs} is not possible; expected 1 or more")
    check_seed(seed)
    if perfetto_walks is not None and not 1 <= perfetto_walks < 2**32:
        raise UserError(
            f"--perfetto-walks: {perfetto_walks} is not possible; expected 1 to 2^32 - 1"
        )
    parsed_interval = None if interval is None else parse_count(interval, "--interval")
    if parsed_interval == 0:
        raise UserError("--interval: 0 is not possible; expected a count such as 1M")
    spec: Json = {
        "machine": machine,
        "designs": designs,
        "set": settings,
        "source": source,
        "limits": limits,
        "seed": seed,
        "host_threads": jobs,
        "interval": parsed_interval,
        "perfetto": perfetto,
    }
    # The engine has a default of its own, as for all that is left out.
    return spec if perfetto_walks is None else spec | {"perfetto_walks": perfetto_walks}
