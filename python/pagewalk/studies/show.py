"""A study in the terminal: its groups, and its failed and missing runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import polars as pl
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from pagewalk.studies.dataset import Dataset
from pagewalk.studies.layout import COMPLETE
from pagewalk.studies.point import DESIGN, SEED
from pagewalk.studies.summary import SPEEDUP
from pagewalk.studies.table import Table, short, writer
from pagewalk.view.columns import Filled, ratio, words
from pagewalk.view.table_layout import print_flow, print_table
from pagewalk.view.terminal import console, line

USUAL = ("ipc", "l2_tlb_mpki", "walk_cycles_mean")
"""Numbers that are shown by default."""
_FAILED = 20
"""Most failed runs that are named for each reason."""
_NONE = "–"
_TITLE = 12
"""Cells of a line of a title, about."""
_TERMS = {
    "IPC": ("instructions/cycle", "instructions a cycle"),
    "MPKI": ("misses/1000 instructions", "misses for 1000 instructions"),
}
"""Terms in titles that imply a unit, with the unit and the meaning."""


def show(
    source: Path | Dataset,
    stream: TextIO,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
) -> None:
    """Prints a row for each group: means over seeds with intervals, and speedups.

    `metrics` are numbers of the table beside the speedup. `by` are the axes that make groups, by
    default all that vary; means are over the others. Raises `UserError` for an unknown number or
    axis. For a running study, the finished runs are shown.
    """
    table = Table.of(source)
    numbers = [table.number(name, "--metrics") for name in metrics or _usual(table)]
    axes = [table.axis(name, "--by") for name in by] if by else table.varying or [DESIGN]
    out = console(stream)
    _print_head(table, axes, out)
    if not table.frame.is_empty():
        numbers = list(dict.fromkeys((SPEEDUP, *numbers)))
        _print_groups(table, table.grouped(axes, numbers), axes, numbers, out)
    _print_failed(table, out)
    _print_missing(table, out)


def _usual(table: Table) -> list[str]:
    names = [table.study.layout.metrics[name] for name in USUAL]
    return [name for name in names if table.frame[name].is_not_null().any()] or names[:1]


def _print_head(table: Table, axes: Sequence[str], out: Console) -> None:
    complete, failed, _ = table.counted()
    of_all = f"{complete + failed:,} of {table.study.points:,} runs"
    facts = [of_all if table.study.points >= complete + failed else f"{complete + failed:,} runs"]
    if failed:
        facts.append(f"{failed:,} failed")
    out.print(line((str(table.study.folder), "bold"), "  ", ", ".join(facts)))
    alone = [
        f"{name} {table.value(name, table.frame[name][0])}"
        for name in table.study.layout.axes
        if name not in axes and not table.frame.is_empty() and table.frame[name].n_unique() == 1
    ]
    if alone:
        out.print(line(" · ".join(alone), style="dim"))
    out.print()


def _print_groups(
    table: Table, groups: pl.DataFrame, axes: Sequence[str], numbers: Sequence[str], out: Console
) -> None:
    first, heads = _heads(table, groups, axes, out)
    filled = []
    if groups[SPEEDUP].is_not_null().any():
        filled += _speedups(table, groups)
    filled += [_filled(table, groups, name) for name in numbers if name != SPEEDUP]
    if (groups["seeds"] > 1).any():
        filled.append(Filled("seeds", [str(number) for number in groups["seeds"]]))
    if groups["failed"].sum():
        filled.append(Filled("failed", [str(number) for number in groups["failed"]]))
    print_table(first, heads, filled, out)
    print_flow(_legend(table, groups, axes, numbers), " · ", out)


def _heads(
    table: Table, groups: pl.DataFrame, axes: Sequence[str], out: Console
) -> tuple[str, list[Text]]:
    """Names of the groups: their values, in columns if the terminal is wide enough."""
    titles = short(axes)
    rows = [
        [table.value(name, value) for name, value in zip(axes, row, strict=True)]
        for row in groups.select(axes).iter_rows()
    ]
    widths = [
        max(cell_len(text) for text in (titles[name], *(row[i] for row in rows)))
        for i, name in enumerate(axes)
    ]
    if sum(widths) + 2 * (len(widths) - 1) > (out.width - 2) // 3:
        return ", ".join(titles.values()), [line(", ".join(row), style="cyan") for row in rows]

    def aligned(texts: Sequence[str]) -> str:
        padded = (t + " " * (w - cell_len(t)) for t, w in zip(texts, widths, strict=True))
        return "  ".join(padded)

    return aligned(list(titles.values())), [line(aligned(row), style="cyan") for row in rows]


def _speedups(table: Table, groups: pl.DataFrame) -> list[Filled]:
    """Columns of speedups, their intervals, and whether these exclude 1."""
    columns = (SPEEDUP, f"{SPEEDUP}_low", f"{SPEEDUP}_high", "distinguishable")
    values = groups.select(columns).rows()
    listed = [Filled("speedup", [_NONE if value is None else ratio(value) for value, *_ in values])]
    # The reference over itself has no interval.
    designs = groups[DESIGN] if DESIGN in groups.columns else [None] * len(groups)
    values = [
        (None,) * len(columns) if design == table.study.reference else row
        for design, row in zip(designs, values, strict=True)
    ]
    if any(low is not None or high is not None for _, low, high, _ in values):
        between = [_between(low, high) for _, low, high, _ in values]
        unlike = {True: "yes", False: "no", None: _NONE}
        listed += [
            Filled("95 %\ninterval", between),
            Filled("unlike\n1", [unlike[sure] for *_, sure in values]),
        ]
    return listed


def _between(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return _NONE
    return " to ".join("any" if end is None else ratio(end) for end in (low, high))


def _filled(table: Table, groups: pl.DataFrame, name: str) -> Filled:
    """The column of a number's means, with the half-width of the interval if there is one."""
    values = groups.select(name, f"{name}_low", f"{name}_high").rows()
    unit, write = writer(table.unit(name), [row[0] for row in values if row[0] is not None])
    cells = []
    for value, low, high in values:
        cell = _NONE if value is None else write(value)
        if value is not None and low is not None and high is not None:
            cell += f" ±{write((high - low) / 2)}"
        cells.append(cell)
    title = "\n".join(textwrap.wrap(words(name), _TITLE))
    if unit and unit != _TERMS.get(words(name).split(" ")[-1], ("",))[0]:
        title += "\n" + "\n".join(textwrap.wrap(f"({unit})".replace("/", "/ "), _TITLE))
    return Filled(title, cells)


def _legend(
    table: Table, groups: pl.DataFrame, axes: Sequence[str], numbers: Sequence[str]
) -> list[str]:
    facts = []
    if groups[SPEEDUP].is_not_null().any():
        facts.append(f"speedup: over {table.study.reference} on the same, by each seed")
    ends = [f"{name}_{end}" for name in numbers for end in ("low", "high")]
    if any(groups[name].is_not_null().any() for name in ends):
        sure = "±, interval: with 95 % confidence, by Student's t over seeds"
        sampled = table.frame["samples"].is_not_null().any()
        facts.append(f"{sure}; of one seed, by its samples" if sampled else sure)
        if groups["distinguishable"].is_not_null().any():
            facts.append("unlike 1: whether the interval excludes it")
    if over := table.averaged(axes):
        facts.append(f"means are over {', '.join(over)}, of speedups the geometric ones")
        if (groups["seeds"] == 0).any():
            facts.append(f"{_NONE}: where no seed has all of them")
    ends_so = {words(name).split(" ")[-1] for name in numbers}
    facts += [f"{term}: {meaning}" for term, (_, meaning) in _TERMS.items() if term in ends_so]
    long = [name for name, title in short(axes).items() if title != name]
    return facts + [f"{short(axes)[name]}: {name}" for name in long]


def _print_failed(table: Table, out: Console) -> None:
    """Prints the reasons of failures, with the runs that failed for each."""
    failed = table.frame.filter(pl.col("status") != COMPLETE)
    if failed.is_empty():
        return
    out.print()
    out.print(line("Failed", style="bold"))
    named = [name for name in table.study.layout.axes if table.frame[name].n_unique() > 1]
    reasons: dict[str, list[str]] = {}
    for row in failed.iter_rows(named=True):
        why = row["why"] or row["status"].replace("_", " ")
        reasons.setdefault(why, []).append(_which(table, row, named or [DESIGN]))
    for why, runs in reasons.items():
        number = "1 run" if len(runs) == 1 else f"{len(runs):,} runs"
        out.print(Padding(line((f"{number}: ", "cyan"), why), (0, 0, 0, 2), expand=False))
        more = [f"and {len(runs) - _FAILED:,} more"] if len(runs) > _FAILED else []
        print_flow([*runs[:_FAILED], *more], " · ", out)


def _which(table: Table, row: dict[str, Any], named: Sequence[str]) -> str:
    return ", ".join(
        f"seed {row[name]}" if name == SEED else table.value(name, row[name]) for name in named
    )


def _print_missing(table: Table, out: Console) -> None:
    missing = table.counted()[2]
    if missing:
        out.print()
        runs = "1 run is" if missing == 1 else f"{missing:,} runs are"
        out.print(
            line(
                f"{runs} missing: the study is running, or 'pagewalk sweep' goes on with it.",
                style="yellow",
            )
        )
