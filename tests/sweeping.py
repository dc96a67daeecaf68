"""Studies whose results are made up, for tests of what becomes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import fake
from pagewalk.runs.cache import Outcome
from pagewalk.runs.plan import Design, Program, Run
from pagewalk.studies.dataset import Dataset
from pagewalk.studies.point import Column, Point, Value

COLUMNS = [
    Column("machine", "", str, "The machine"),
    Column("workload", "", str, "The program"),
    Column("design", "", str, "The design"),
    Column("mmu.l2.main.entries", "entries", int, "Entries of the L2 TLB"),
    Column("seed", "", int, "What random draws go by"),
]
ENTRIES = "mmu.l2.main.entries"
INSTRUCTIONS = 20_000_000


def point(**changes: Value) -> Point:
    """One of `COLUMNS`, with these values."""
    values: dict[str, Value] = {
        "machine": "epyc-milan",
        "workload": "gups",
        "design": "radix",
        ENTRIES: 1024,
        "seed": 1,
    }
    values |= {ENTRIES if name == "entries" else name: value for name, value in changes.items()}
    run = Run(Program("gups"), Design("radix", "radix"), "epyc-milan", INSTRUCTIONS)
    return Point(values, run)


def points(
    designs: Sequence[str] = ("radix", "ecpt"),
    entries: Iterable[int] = (1024,),
    seeds: Iterable[int] = (1,),
    workloads: Sequence[str] = ("gups",),
) -> list[Point]:
    listed, drawn = list(entries), list(seeds)
    return [
        point(design=design, entries=number, seed=seed, workload=workload)
        for workload in workloads
        for number in listed
        for design in designs
        for seed in drawn
    ]


def key(at: Point) -> str:
    return " ".join(str(value) for value in at.values.values())


def finished(at: Point, cycles: float = 40_000_000, **changes: Any) -> Outcome:
    """A run of so many cycles; `changes` are of the design's result."""
    design = fake.design_result(str(at.values["design"]), 40_000_000, 1.0, **changes)
    for one in design["summary"]:
        new = {"cycles": cycles, "ipc": INSTRUCTIONS / cycles}
        one["value"] = new.get(one["name"], one["value"])
    return Outcome(key(at), {"name": key(at), "host": {"seconds": 1.5}, "design": design})


def sampled(value: float, low: float, high: float) -> Mapping[str, Any]:
    """The sampling part of a result with this IPC and interval."""
    metrics = {"ipc": {"value": value, "low": low, "high": high}}
    return {
        **{"samples": 30, "ipc": value, "ipc_low": low, "ipc_high": high},
        **{"confidence": 0.95, "metrics": metrics},
    }


def failed(at: Point, why: str = "the simulation was killed") -> Outcome:
    return Outcome(key(at), None, why)


def dataset(folder: Path, of: Sequence[Point], **more: Any) -> Dataset:
    return Dataset(folder, COLUMNS, of, **{"model": 1, **more})
