"""The tables of a study: their columns, and the rows that a run gives them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from pagewalk import native
from pagewalk.measurements.histograms import REPORTED
from pagewalk.runs.cache import Outcome
from pagewalk.studies.point import Column, Value

Json = dict[str, Any]
Row = tuple[Any, ...]

COMPLETE, FAILED = "complete", "failed"
INSTRUCTION, REQUEST, PROGRAM = "instruction", "request", "program"
RATES = (
    *("ipc", "cycles_per_request", "instructions_per_request"),
    *("l1d_tlb_mpki", "l1i_tlb_mpki", "l2_tlb_mpki", "l1d_mpki", "branch_mpki"),
    *("walk_cycles_mean", "walk_reads_per_walk"),
)
"""Numbers with an interval from samples: those that do not grow with the run."""
SPEEDUPS = ("speedup", "speedup_low", "speedup_high")

_TYPES: dict[type, Any] = {
    str: pl.String(),
    int: pl.Int64(),
    float: pl.Float64(),
    bool: pl.Boolean(),
}
_OWN = {
    "key": ("", "What the run's result is found by"),
    "status": ("", "complete, failed, or the cause of an early end"),
    "why": ("", "Why there are no numbers; empty where there are"),
    "speedup_by": (
        "",
        "What speedups compare the cycles of: an instruction, a request, or an instruction of each "
        "program of a mix",
    ),
    "cycles_per_instruction": (
        "cycles/instruction",
        "Cycles for an instruction; of a mix, the geometric mean of its programs'",
    ),
    "samples": ("samples", "Of how many samples the numbers are; none where all was simulated"),
    "host_seconds": ("s", "Time of the host, together with runs on the same stream of the program"),
    "speedup": ("", "How many times as fast as the study's first design on the same"),
    "speedup_low": ("", "What samples leave open of the speedup, from here"),
    "speedup_high": ("", "What samples leave open of the speedup, to here"),
}
STATISTICS: dict[str, Any] = {
    **dict.fromkeys(("key", "path", "name", "unit"), pl.String()),
    "value": pl.Float64(),
}
HISTOGRAMS: dict[str, Any] = {
    **dict.fromkeys(("key", "path", "name"), pl.String()),
    **dict.fromkeys(("low", "high", "count"), pl.UInt64()),
    "unit": pl.String(),
}


class Layout:
    """The columns of a study's table of runs.

    `schema` has their types, in order: ``key``, the axes, ``status``, ``why``, every number of the
    summary, the ends of intervals from samples, speedups. `units` and `meanings` are by column.
    A number that has the name of an axis, such as ``instructions``, is ``measured_instructions``.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = list(columns)
        self.axes = [column.name for column in columns]
        known = {one["name"]: one for one in native.statistics()["metrics"]}
        taken = {*self.axes}
        names = native.metrics(1)
        self.metrics = {n: f"measured_{n}" if n in taken else n for n in names}
        self.rates = [name for name in RATES if name in self.metrics]
        real = pl.Float64()
        self.schema: dict[str, Any] = {
            "key": pl.String(),
            **{column.name: _TYPES[column.kind] for column in columns},
            **dict.fromkeys(("status", "why", "speedup_by"), pl.String()),
            **dict.fromkeys(self.metrics.values(), real),
            "cycles_per_instruction": real,
            "samples": pl.Int64(),
            **{end: real for name in self.rates for end in self.ends(name)},
            **dict.fromkeys(("host_seconds", *SPEEDUPS), real),
        }
        self.units = {c.name: c.unit for c in columns}
        self.meanings = {c.name: c.meaning for c in columns}
        for name, column in self.metrics.items():
            about: Mapping[str, Any] = known.get(name, {})
            self.units[column] = about.get("unit", "")
            self.meanings[column] = about.get("meaning", "")
        for name in self.rates:
            for end, which in zip(self.ends(name), ("from here", "to here"), strict=True):
                self.units[end] = self.units[self.metrics[name]]
                self.meanings[end] = f"What samples leave open of {self.metrics[name]}, {which}"
        self.units |= {name: unit for name, (unit, _) in _OWN.items() if name not in taken}
        self.meanings |= {name: what for name, (_, what) in _OWN.items() if name not in taken}
        self.intervals_schema: dict[str, Any] = {
            "key": pl.String(),
            **dict.fromkeys(("first_instruction", "instructions", "cycles"), pl.Int64()),
            "complete": pl.Boolean(),
            **dict.fromkeys(self._of_intervals(), real),
        }

    @staticmethod
    def reserved() -> set[str]:
        """Names that no axis may have."""
        return {*_OWN}

    def ends(self, name: str) -> tuple[str, str]:
        """The columns of the ends of a number's interval."""
        return f"{self.metrics[name]}_low", f"{self.metrics[name]}_high"

    def numbers(self) -> list[str]:
        """The columns that measure something, speedup first."""
        return ["speedup", *self.metrics.values(), "cycles_per_instruction", "host_seconds"]

    def metadata(self) -> str:
        """Units and meanings of the columns, as JSON in files of the table of runs."""
        return json.dumps({"units": self.units, "meanings": self.meanings})

    def row(self, values: Mapping[str, Value], outcome: Outcome) -> Row:
        """A run's row; without numbers, which would mislead, if the run did not reach its end."""
        found: dict[str, Any] = dict(values)
        found |= {"key": outcome.key, "why": outcome.why, "status": FAILED}
        if outcome.data is not None:
            found["host_seconds"] = (outcome.data.get("host") or {}).get("seconds")
            if outcome.error is None:
                found["status"] = outcome.data["design"]["status"]
        if not outcome.failed:
            found |= self._measured(outcome)
        return tuple(found.get(name) for name in self.schema)

    def _measured(self, outcome: Outcome) -> Json:
        assert outcome.data is not None
        design = outcome.data["design"]
        summary = {one["name"]: one["value"] for one in design["summary"]}
        found: Json = {column: summary.get(name) for name, column in self.metrics.items()}
        found["speedup_by"], found["cycles_per_instruction"] = _cost(design, summary)
        if sampling := design.get("sampling"):
            found["samples"] = sampling["samples"]
            for name in self.rates:
                interval = sampling.get("metrics", {}).get(name) or {}
                found |= zip(
                    self.ends(name), (interval.get("low"), interval.get("high")), strict=True
                )
        return found

    def _of_intervals(self) -> list[str]:
        left_out = (*native.NOT_OF_INTERVALS, "instructions", "cycles")
        return [name for name in self.metrics if name not in left_out]

    def intervals(self, outcome: Outcome) -> Iterator[Row]:
        """A row an interval of a run."""
        assert outcome.data is not None
        given = outcome.data["design"].get("intervals")
        if not given:
            return
        places = [given[n] for n in ("first_instruction", "instructions", "cycles", "complete")]
        missing = [None] * len(places[0])
        numbers = [given["values"].get(name, missing) for name in self._of_intervals()]
        for row in zip(*places, *numbers, strict=True):
            yield (outcome.key, *row)


def _cost(design: Json, summary: Json) -> tuple[str, float | None]:
    """The unit of work for speedups, and the cycles per instruction.

    A program that queries a shortcut executes other instructions with it than without, so its
    requests are the common unit. The engine reports that only if it simulates both designs, and
    runs of a study may be simulated apart.
    """
    by = design.get("speedup_by", INSTRUCTION)
    if design["config"].get("shortcut") is not None:
        by = REQUEST
    if programs := design.get("programs"):
        speeds = [program["ipc"] for program in programs]
        if not all(speeds):
            return PROGRAM, None
        return PROGRAM, math.exp(-sum(map(math.log, speeds)) / len(speeds))
    cycles, instructions = summary.get("cycles"), summary.get("instructions")
    return by, cycles / instructions if cycles and instructions else None


def statistics(outcome: Outcome) -> Iterator[Row]:
    """A row for each number of a run that is not in its summary.

    These are every counter by path and name, and the reported numbers of each histogram
    (``walk_latency.p99``). Energy is by part (``energy.l1d``, dynamic and static), and the cycle
    stack by cause (``cycle_stack``).
    """
    assert outcome.data is not None
    key, design = outcome.key, outcome.data["design"]
    for one in design["stats"]:
        yield key, one["path"], one["name"], one["unit"], one["value"]
    for one in design.get("histograms") or []:
        for part in REPORTED:
            unit = "values" if part == "count" else one["unit"]
            yield key, one["path"], f"{one['name']}.{part}", unit, one[part]
    for one in (design.get("energy") or {}).get("parts", []):
        for name in ("dynamic", "static"):
            yield key, f"energy.{one['part']}", name, "nJ", one[f"{name}_nj"]
    for one in design["cycle_stack"]:
        yield key, "cycle_stack", one["cause"], "cycles", one["cycles"]


def histograms(outcome: Outcome) -> Iterator[Row]:
    """A row a bucket that is not empty."""
    assert outcome.data is not None
    for one in outcome.data["design"].get("histograms") or []:
        for low, high, count in one["buckets"]:
            yield outcome.key, one["path"], one["name"], low, high, count, one["unit"]


def frame(rows: Sequence[Row], schema: Mapping[str, Any]) -> pl.DataFrame:
    """Rows as a table of these columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pl.DataFrame(
        [
            pl.Series(name, column, dtype=dtype, strict=False)
            for (name, dtype), column in zip(schema.items(), columns, strict=True)
        ]
    )


def with_speedups(table: pl.DataFrame, layout: Layout, reference: str | None) -> pl.DataFrame:
    """The table of runs with each row's speedup over the reference on the same axes.

    The speedup is null if either run has no numbers. It is by requests if either run is. Ends of
    sampled runs combine the intervals of both in logarithms, as if they were independent. That is
    too wide for designs that were measured at the same places.
    """
    requests, low, high = layout.metrics["cycles_per_request"], *layout.ends("cycles_per_request")
    case = [name for name in layout.axes if name != "design"]

    def theirs(own: pl.Expr) -> pl.Expr:
        first = own.filter((pl.col("design") == reference) & (pl.col("status") == COMPLETE)).first()
        return first.over(case)

    def compared(cost: pl.Expr, least: pl.Expr, most: pl.Expr) -> list[pl.Expr]:
        # Both ends of each cost, relative and in logarithms; nothing where all was simulated.
        down, up = ((end / cost).log().fill_null(0.0) for end in (least, most))
        sampled = (least.is_not_null() & most.is_not_null()).fill_null(False)
        whole = pl.col("samples").is_null()
        known = (sampled | whole) & theirs(sampled | whole)
        known &= pl.col("speedup_by") != PROGRAM
        ratio = theirs(cost) / cost
        below, above = theirs(down) ** 2 + up**2, theirs(up) ** 2 + down**2
        either = pl.col("samples").is_not_null() | theirs(pl.col("samples")).is_not_null()
        return [
            ratio,
            pl.when(known & either).then(ratio * (-(below.sqrt())).exp()),
            pl.when(known & either).then(ratio * above.sqrt().exp()),
        ]

    if reference is None or table.is_empty():
        return table.with_columns(pl.lit(None, pl.Float64()).alias(name) for name in SPEEDUPS)
    ipc_low, ipc_high = layout.ends("ipc")
    by_request = compared(pl.col(requests), pl.col(low), pl.col(high))
    by_instruction = compared(
        pl.col("cycles_per_instruction"), 1 / pl.col(ipc_high), 1 / pl.col(ipc_low)
    )
    in_requests = (pl.col("speedup_by") == REQUEST) | (theirs(pl.col("speedup_by")) == REQUEST)
    itself = pl.col("design") == reference
    return table.with_columns(
        pl.when(itself & (number > 0))
        .then(None)
        .when(in_requests.fill_null(False))
        .then(one)
        .otherwise(other)
        .alias(name)
        for number, (name, one, other) in enumerate(
            zip(SPEEDUPS, by_request, by_instruction, strict=True)
        )
    )
