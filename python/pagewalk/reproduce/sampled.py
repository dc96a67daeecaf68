"""Figures from samples: the sampled runs, and the confidence of their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pagewalk.errors import RunOption, UserError
from pagewalk.reproduce.figure import Figure, Results, Row
from pagewalk.reproduce.seeds import placed
from pagewalk.runs.cache import Outcome
from pagewalk.runs.plan import Run, Runs

Json = dict[str, Any]

SURE = ("ipc", "l2_tlb_mpki")
"""The numbers of a run that a precision applies to."""
FEW_MISSES = 1.0
"""Misses for 1000 instructions whose precision is a share of this, as the engine has it."""


def check(precision: float | None, figures: Mapping[str, Figure]) -> None:
    """Raises `UserError` if there is a precision, but no figure that allows samples."""
    if precision is not None and not any(figure.sampled for figure in figures.values()):
        raise UserError(
            f"nothing of {', '.join(figures)} can be drawn from samples; leave it out",
            about=RunOption("precision"),
        )


def chosen(runs: Runs, figure: Figure, precision: float | None) -> Runs:
    """A figure's runs, sampled if the figure allows samples and they cost less."""
    return Runs({key: from_samples(run, figure, precision) for key, run in runs.items()})


def from_samples(run: Run, figure: Figure, precision: float | None) -> Run:
    """The run, sampled if the figure allows samples and they cost less."""
    return run if precision is None or not figure.sampled else run.sampled(precision)


def within(outcome: Outcome) -> dict[str, float]:
    """Relative half-width of the 95 % interval of each of `SURE`; empty without samples."""
    found = None if outcome.data is None else outcome.result.sampling
    if found is None:
        return {}
    shares = {}
    for name in SURE:
        interval = found.metrics.get(name)
        if interval is not None and interval.low is not None and interval.high is not None:
            least = FEW_MISSES if name.endswith("mpki") else 0.0
            half, size = (interval.high - interval.low) / 2, max(abs(interval.value), least)
            shares[name] = half / size if size else 0.0
    return shares


def note(outcomes: Iterable[tuple[Run, Outcome]]) -> str:
    """The note of a figure on its samples."""
    runs = {run.identity: outcome for run, outcome in outcomes}
    sampled = [o for o in runs.values() if o.data is not None and o.result.sampling]
    if not sampled:
        return (
            "no run is from samples: each is simulated whole, which takes less or is the only way"
        )
    sure = [shares for outcome in sampled if (shares := within(outcome))]
    text = f"{len(sampled)} of {len(runs)} runs are from samples"
    if sure:
        largest = max(share for shares in sure for share in shares.values())
        text += (
            f": of each IPC and L2 TLB misses are within ±{100 * largest:.1f} % at 95 % "
            "(the largest)"
        )
    if len(sure) < len(sampled):
        text += f"; {len(sampled) - len(sure)} without a confidence interval"
    return text


def bounded(make: Callable[[Results], list[Row]], runs: Runs, results: Results) -> list[Row]:
    """A figure's rows; those that depend on samples have the ends of their interval.

    The numbers of one run at a time are set to the ends of their intervals. The resulting
    half-widths of a row add up by squares: runs count as independent. That is conservative for a
    speedup of designs with matched samples.
    """
    rows = make(results)
    squares = dict.fromkeys(placed(rows), 0.0)
    sampled = {o.key: o for run in runs if within(o := results(run))}
    for key, outcome in sampled.items():
        ends = [placed(make(_instead(results, key, _at(outcome, end)))) for end in ("low", "high")]
        for place in squares:
            low, high = (rows_at[place].value if place in rows_at else None for rows_at in ends)
            if low is not None and high is not None:
                squares[place] += ((high - low) / 2) ** 2
    return [_between(row, math.sqrt(squares[place])) for place, row in placed(rows).items()]


def _between(row: Row, half: float) -> Row:
    """The row with ends at a distance of `half` from its value."""
    if row.value is None or not half:
        return row
    return replace(row, low=row.value - half, high=row.value + half)


def _instead(results: Results, key: str, other: Outcome) -> Results:
    return lambda run: other if (found := results(run)).key == key else found


def _at(outcome: Outcome, end: str) -> Outcome:
    """The outcome with each sampled number at one end of its confidence interval."""
    assert outcome.data is not None
    design = outcome.data["design"]
    ends = {name: one[end] for name, one in design["sampling"]["metrics"].items()}
    numbers = {one["name"]: one["value"] for one in design["summary"]}
    if ends.get("ipc") and numbers.get("instructions"):
        ends["cycles"] = numbers["instructions"] / ends["ipc"]
    summary: list[Json] = [
        one if (value := ends.get(one["name"])) is None else {**one, "value": value}
        for one in design["summary"]
    ]
    return Outcome(outcome.key, {**outcome.data, "design": {**design, "summary": summary}})
