"""`pagewalk sweep`: plan, simulate what is missing, keep it as one table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from rich.console import Console

from pagewalk import native
from pagewalk.runs.bar import Bar
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.place import Place
from pagewalk.runs.plan import Run
from pagewalk.runs.room import Watcher, as_finished
from pagewalk.sweep.dataset import Dataset
from pagewalk.sweep.point import Point
from pagewalk.sweep.study import Study
from pagewalk.terminal import console, line

MOST_TOLD = 5
"""Reasons of failed runs that are told; the table has all."""


def as_ended(
    study: Study,
    folder: Path,
    cache: Cache,
    *,
    place: Place | None = None,
    fresh: bool = False,
    details: AbstractSet[str] = frozenset(),
    watcher: Watcher | None = None,
) -> Iterator[tuple[Point, Outcome]]:
    """Simulates what a study lacks, and keeps each run in its folder as soon as it has ended."""
    points = study.points()
    runs: dict[str, Run] = {}
    alike: dict[str, list[Point]] = {}
    for point in points:
        runs.setdefault(point.run.identity, point.run)
        alike.setdefault(point.run.identity, []).append(point)
    with Dataset(
        folder,
        study.columns,
        points,
        model=native.model_version(),
        study=study.told,
        details=details,
    ) as dataset:
        for run, outcome in as_finished(
            runs.values(), cache, place=place, fresh=fresh, watcher=watcher
        ):
            for point in alike[run.identity]:
                dataset.add(point, outcome)
                yield point, outcome


@dataclass
class Ended:
    """What became of a study's runs."""

    finished: int = 0
    failed: list[tuple[Point, str]] = field(default_factory=list)

    def count(self, point: Point, outcome: Outcome) -> None:
        """One more."""
        if outcome.failed:
            self.failed.append((point, outcome.why))
        else:
            self.finished += 1

    def show(self, out: Console) -> None:
        """Says how many failed, and why."""
        for point, why in self.failed[:MOST_TOLD]:
            out.print(line(("no result: ", "bold red"), f"{point.run.name}: {why}"))
        if len(self.failed) > MOST_TOLD:
            out.print(f"and {len(self.failed) - MOST_TOLD} more; their rows say why")


def sweep(
    study: Study,
    folder: Path,
    cache: Cache,
    *,
    place: Place | None = None,
    fresh: bool = False,
    details: AbstractSet[str] = frozenset(),
    stream: TextIO = sys.stderr,
) -> Ended:
    """Simulates a study to its end and shows how far it is."""
    ended = Ended()
    with Bar(stream) as bar:
        for point, outcome in as_ended(
            study, folder, cache, place=place, fresh=fresh, details=details, watcher=bar
        ):
            ended.count(point, outcome)
    ended.show(console(stream))
    return ended
