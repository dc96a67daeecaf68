"""`pagewalk sweep`: plan, simulate missing runs, and store all in one table."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from pagewalk import native
from pagewalk.config.source import source
from pagewalk.errors import Failure, RunOption, UserError
from pagewalk.host import files, load, run_folder
from pagewalk.runs.batch import batches
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.executor import Executor, Host
from pagewalk.runs.plan import Run, keys
from pagewalk.runs.progress import Bar, same_command
from pagewalk.runs.scheduler import Watcher, as_finished
from pagewalk.studies import study as studies
from pagewalk.studies.dataset import HISTOGRAMS, INTERVALS, Dataset
from pagewalk.studies.options import DEFINING, HOW
from pagewalk.studies.point import Point
from pagewalk.studies.show import show
from pagewalk.studies.study import Study
from pagewalk.view.output import reason
from pagewalk.view.progress import Bar as Recording
from pagewalk.view.quantities import duration, size
from pagewalk.view.terminal import console, grid, line, names, words

LONGEST_NAME = 40
"""Letters of a program's name that are in that of its recording."""
RUN_BYTES = 80_000
"""Bytes of disk that a run takes, about: its result, and its rows in the study's folder."""
MOST_PRINTED = 5
"""Reasons of failed runs that are printed; the table has all."""


def as_ended(
    study: Study,
    folder: Path,
    cache: Cache,
    *,
    executor: Executor | None = None,
    fresh: bool = False,
    histograms: bool = False,
    watcher: Watcher | None = None,
    again: bool = True,
) -> Iterator[tuple[Point, Outcome]]:
    """Simulates the missing runs of a study, and stores each in its folder as soon as it ends.

    Runs that the folder has are yielded only `again`. The folder gets `histograms` only on request.
    """
    details = {HISTOGRAMS: histograms, INTERVALS: study.interval}
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
        study=study.description,
        details={name for name, wanted in details.items() if wanted},
    ) as dataset:

        def known(run: Run, key: str) -> bool:
            return all(dataset.has(key, point) for point in alike[run.identity])

        for run, outcome in as_finished(
            runs.values(),
            cache,
            executor=executor,
            fresh=fresh,
            watcher=watcher,
            known=None if again else known,
        ):
            for point in alike[run.identity]:
                dataset.add(point, outcome)
                yield point, outcome


@dataclass
class Ended:
    """Outcomes of a study's runs: the number that finished, and the failed ones."""

    finished: int = 0
    failed: list[tuple[Point, str]] = field(default_factory=list)

    def count(self, point: Point, outcome: Outcome) -> None:
        """Counts an outcome."""
        if outcome.failed:
            self.failed.append((point, outcome.why))
        else:
            self.finished += 1

    def show(self, out: Console) -> None:
        """Prints the failed runs with their reasons."""
        for point, why in self.failed[:MOST_PRINTED]:
            out.print(line(("no result: ", "bold red"), f"{point.run.name}: {why}"))
        if len(self.failed) > MOST_PRINTED:
            out.print(f"and {len(self.failed) - MOST_PRINTED} more; their rows say why")


def sweep(
    study: Study,
    folder: Path,
    cache: Cache,
    *,
    executor: Executor | None = None,
    fresh: bool = False,
    histograms: bool = False,
    stream: TextIO = sys.stderr,
) -> Ended:
    """Simulates a study to its end, with a progress bar."""
    ended = Ended()
    with Bar(stream, same_command()) as bar:
        for point, outcome in as_ended(
            study,
            folder,
            cache,
            executor=executor,
            fresh=fresh,
            histograms=histograms,
            watcher=bar,
            again=False,
        ):
            ended.count(point, outcome)
    ended.show(console(stream))
    return ended


def estimate(study: Study, cache: Cache, jobs: int | None) -> Plan:
    """The cost of a study's runs that the cache lacks."""
    points = study.points()
    runs = {point.run.identity: point.run for point in points}
    with run_folder.folder() as folder:
        found, wrong = keys(runs.values(), folder)
    missing = {
        key: runs[identity] for identity, key in found.items() if not cache.path(key).exists()
    }
    planned = batches(missing.values())
    work = sum(batch.seconds for batch in planned)
    longest = max((batch.seconds for batch in planned), default=0.0)
    host = Host(jobs)
    return Plan(
        points=len(points),
        runs=len(set(found.values())) + len(wrong),
        missing=len(missing),
        seconds=load.corrected(max(longest, work / host.slots), host.share),
        memory=max((batch.memory for batch in planned), default=0),
        disk=len(missing) * RUN_BYTES,
        wrong=list(wrong.values()),
    )


@dataclass(frozen=True)
class Plan:
    """The cost of a study, before it runs.

    The cost is the seconds on the given jobs, the memory of the largest batch, and the disk space
    of all missing runs. A plan also has the errors of runs that cannot be simulated.
    """

    points: int
    runs: int
    missing: int
    seconds: float
    memory: int
    disk: int
    wrong: list[str]

    def show(self, stream: TextIO) -> None:
        """Prints the plan as pairs of quantity and value."""
        out = console(stream)
        table = grid()
        names(table)
        words(table)
        table.add_row("points", str(self.points))
        there = self.runs - self.missing - len(self.wrong)
        table.add_row("runs", f"{self.runs}, of which {there} are there")
        table.add_row("time", f"about {duration(self.seconds)} at the load of now, before any run")
        table.add_row("memory", f"about {size(self.memory)} for the largest that run together")
        table.add_row("disk", f"about {size(self.disk)}")
        out.print(table)
        for text in self.wrong[:MOST_PRINTED]:
            out.print(line(("cannot run: ", "bold red"), text))


def recorded(argv: list[str], folder: Path, cpu: str | None = None) -> Path:
    """The trace of a live program, which is recorded in the study's folder if it is missing.

    Raises `UserError` for an unknown program, `Failure` if it cannot be recorded.
    """
    place = folder / "recordings"
    model = {} if cpu is None else {"cpu": cpu}
    about = json.dumps({"argv": argv, "model": native.model_version(), **model}) + "\n"
    name = hashlib.sha256(about.encode()).hexdigest()[:8]
    path = place / f"{Path(argv[0]).name[:LONGEST_NAME]}-{name}.pwt"
    if path.exists():
        return path
    spec = {"source": source(program=argv, cpu=cpu), "instructions": None, "seed": 1}
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"could not make the folder '{place}': {reason(error)}") from None
    part = path.with_suffix(".partial.pwt")
    with Recording() as bar:
        answer = native.record(spec, str(part), bar)
    if answer["partial"] or bar.stopped_by:
        part.unlink(missing_ok=True)
        if answer["died"] and not bar.stopped_by:
            raise Failure(f"no run has a result: {'; '.join(answer['died'])}")
        raise Failure("the program was stopped before its end, so it is not recorded; run it again")
    part.replace(path)
    return path


def from_options(flags: Mapping[str, Any], file: str | None, program: list[str] | None) -> int:
    """Runs the command; returns its exit status, 1 if a run has no result.

    `flags` are values of `options.OPTIONS` by name. They override the study in `file`, and a live
    `program` replaces a trace. Raises `UserError` and `Failure`.
    """
    how = {option.name: option.read(flags[option.name], RunOption(option.name)) for option in HOW}
    folder = Path(how["out"] or "study")
    files.check_folder(folder, "--out")
    given = [option for option in DEFINING if flags.get(option.name) is not None]
    definition = studies.definition(
        {one.name: one.from_flag(flags[one.name]) for one in given}, file
    )
    if program is not None:
        # In a list, since the folder's name may have a comma.
        definition["trace"] = [str(recorded(program, folder, how["cpu"]))]
    elif how["cpu"] is not None:
        raise UserError(
            "belongs to a program that is recorded; add -- PROGRAM or drop ",
            RunOption("cpu"),
            lead=(RunOption("cpu"), " "),
        )
    study = studies.study(definition, file or "")
    cache = Cache.named(how["cache"], make=not how["dry_run"])
    if how["dry_run"]:
        plan = estimate(study, cache, how["jobs"])
        plan.show(sys.stdout)
        return Failure.exit_status if plan.wrong else 0
    ended = sweep(
        study,
        folder,
        cache,
        executor=study.executor(how["cluster"], how["jobs"]),
        fresh=how["fresh"],
        histograms=how["histograms"],
    )
    show(folder, sys.stdout)
    if problems := cache.problems():
        raise Failure("; ".join(problems))
    return Failure.exit_status if ended.failed else 0
