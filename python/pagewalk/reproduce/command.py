"""`pagewalk reproduce`: plan, simulate missing runs, draw, and report."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from typing import TextIO

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from pagewalk.reproduce import drawing, sampled
from pagewalk.reproduce.figure import Figure, Results
from pagewalk.reproduce.paper import Paper
from pagewalk.reproduce.report import Finished, Reproduction, difference, label, ours, printed
from pagewalk.reproduce.seeds import together
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.executor import Executor
from pagewalk.runs.plan import Run, Runs
from pagewalk.runs.progress import Bar, same_command
from pagewalk.runs.scheduler import simulate
from pagewalk.view.terminal import console, line, names, numbers


def reproduce(
    paper: Paper,
    chosen: list[str],
    cache: Cache,
    *,
    executor: Executor | None = None,
    fresh: bool = False,
    seeds: int | None = None,
    precision: float | None = None,
) -> Reproduction:
    """Simulates the runs of the named figures (or all) with each seed, and makes the figures.

    With a `precision`, a share, runs of figures that allow samples are sampled if that costs less.
    """
    figures = paper.figures(chosen)
    drawn = {name: paper.seeds(seeds, fig.seeds) for name, fig in figures.items()}
    papers = {
        name: [paper.at_seed(seed) for seed in of_figure] for name, of_figure in drawn.items()
    }
    needed = {
        name: [sampled.chosen(each.runs_of(fig), fig, precision) for each in papers[name]]
        for name, fig in figures.items()
    }
    everything = [run for of_seeds in needed.values() for runs in of_seeds for run in runs]
    with Bar(sys.stderr, same_command()) as bar:
        results = simulate(everything, cache, executor=executor, fresh=fresh, watcher=bar)
    return Reproduction(
        paper,
        [
            _finished(papers[name], name, fig, needed[name], results, precision)
            for name, fig in figures.items()
        ],
        paper.seeds(seeds),
        precision,
    )


def _finished(
    papers: list[Paper],
    name: str,
    figure: Figure,
    needed: list[Runs],
    results: Results,
    precision: float | None,
) -> Finished:
    def found(run: Run) -> Outcome:
        return results(sampled.from_samples(run, figure, precision))

    explained = [
        [
            replace(row, deviation=row.deviation or figure.deviation)
            for row in sampled.bounded(partial(paper.rows_of, figure), runs, found)
        ]
        for paper, runs in zip(papers, needed, strict=True)
    ]
    rows = together(explained)
    note = papers[0].note(figure)
    outcomes = [(run, results(run)) for runs in needed for run in runs]
    samples = sampled.note(outcomes) if precision is not None and figure.sampled else ""
    if samples:
        note += f"; {samples}"
    if len(papers) > 1:
        note += f"; {len(papers)} seeds: means, and the smallest and largest value"
    return Finished(
        name,
        figure,
        rows,
        drawing.chart(figure, rows, note),
        note,
        outcomes,
        samples,
    )


def show(reproduction: Reproduction, stream: TextIO) -> None:
    """Prints the numbers that the paper's text states, and the remaining results."""
    out = console(stream)
    paper = reproduction.paper
    out.print(line(paper.title, style="bold"))
    out.print(line(f"{paper.source} · scale {paper.scale.name}: {paper.scale.about}", style="dim"))
    for finished in reproduction.figures:
        _show_figure(finished, out)
    for text in reproduction.ended_early:
        out.print(line(("cannot finish: ", "bold yellow"), text))
    for text in reproduction.broken:
        out.print(line(("no result: ", "bold red"), text))
    out.print()


def _show_figure(finished: Finished, out: Console) -> None:
    known = [row for row in finished.rows if row.paper is not None]
    rows = [row for row in known if row.average] or known
    out.print()
    out.print(line((finished.name, "bold cyan"), "  ", finished.figure.title))
    if finished.samples:
        out.print(line(f"  {finished.samples}", style="dim"))
    if not rows:
        out.print(line("  the paper gives no number", style="dim"))
        return
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    names(table)
    for title in ("ours", "paper", "difference"):
        numbers(table, title)
    names(table)
    for row in rows:
        table.add_row(
            label(row),
            "cannot finish" if row.value is None and row.failed else ours(row),
            printed(row),
            difference(row),
            row.status,
        )
    out.print(Padding(table, (0, 0, 0, 2), expand=False))
