"""Runs that share one stream of one program, and about how long they take."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewalk.config.config import is_path
from pagewalk.runs.plan import Run

Json = dict[str, Any]

BATCH_SECONDS = 10.0
"""Longest time of a batch, about, if its runs can be split: a kill loses as much.

Against 40 s it costs 4 to 6 % more processor time (8 runs of gups or bfs, 40 M instructions each).
"""
DESIGN_MEMORY = 300 << 20
"""Estimate of a design's host memory without its program, bytes."""


@dataclass(frozen=True)
class Batch:
    """Runs over one stream of one program: some designs, on each of some machines."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """Estimated seconds on one host core, before any measurement."""
        return self.runs[0].program.start + sum(run.seconds for run in self.runs)

    @property
    def memory(self) -> int:
        """Estimated host memory, bytes."""
        return self.runs[0].program.memory + DESIGN_MEMORY * len(self.runs)

    def spec(self) -> Json:
        """The specification for the engine's `run`, without designs and machines."""
        first = self.runs[0]
        within = first.precision
        return {
            "set": [],
            "source": first.program.source(),
            "limits": {**first.limits, "sample": None},
            "precision": None if within is None else {"within": within, "metrics": []},
            "seed": first.seed,
            "host_threads": 1,
            "mappings": first.mappings,
            "interval": first.interval,
            # A cached result must not depend on the other designs of its batch.
            "alone": False,
        }

    def order(self, keys: Mapping[str, str]) -> list[Json]:
        """For each run its key, its machine, and the label and text of its design file.

        `keys` are those of runs by their identity.
        """
        return [
            {
                "key": keys[run.identity],
                "machine": _anywhere(run.machine),
                "label": run.design.label,
                "text": run.design.text(),
            }
            for run in self.runs
        ]


def _anywhere(machine: str) -> str:
    """A machine's name, or its path from wherever it is read."""
    return str(Path(machine).resolve()) if is_path(machine) else machine


class Pace:
    """Ratio of measured to planned times, from batches that have ended."""

    def __init__(self) -> None:
        self._planned: dict[str, float] = {}
        self._taken: dict[str, float] = {}

    def learn(self, batch: Batch, seconds: float) -> None:
        """Records the time of a batch."""
        for kind in ("", batch.runs[0].program.workload):
            self._planned[kind] = self._planned.get(kind, 0.0) + batch.seconds
            self._taken[kind] = self._taken.get(kind, 0.0) + seconds

    def of(self, workload: str) -> float:
        """The ratio for a program: from its own batches, else from all, else 1."""
        kind = workload if workload in self._planned else ""
        return self._taken[kind] / self._planned[kind] if kind in self._planned else 1.0

    def seconds(self, batch: Batch) -> float:
        """Estimated seconds of a batch, corrected by measured times."""
        return batch.seconds * self.of(batch.runs[0].program.workload)

    @property
    def measured(self) -> bool:
        """True if a time has been recorded."""
        return bool(self._planned)


Row = list[Run]
"""Runs of one design, each on a machine of its own."""


@dataclass
class _Stream:
    rows: deque[Row] = field(default_factory=deque)
    seconds: float = 0.0


class Waiting:
    """Runs that wait for simulation, by stream; the longest stream comes first.

    One stream of each program precedes all others: its time improves the estimate of the rest.

    A sampled run is alone in its batch: the least certain of several would set the number of
    samples of all.
    """

    def __init__(self, runs: Iterable[Run], pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._streams: dict[str, _Stream] = {}
        self._first: list[tuple[bool, float, int, str]] = []
        self._alone: deque[Run] = deque()
        self._by_workload: dict[str, float] = {}
        rows: dict[tuple[str, str], Row] = {}
        for run in runs:
            rows.setdefault((run.stream, run.design.identity), []).append(run)
            self._count(run, 1)
        for (name, _), row in rows.items():
            stream = self._streams.setdefault(name, _Stream())
            stream.rows.append(row)
            stream.seconds += sum(run.seconds for run in row)
        longest = sorted(self._streams.items(), key=lambda one: -one[1].seconds)
        measured: set[str] = set()
        for name, stream in longest:
            # Rows on the same machines stand together, so that they share a batch.
            stream.rows = deque(sorted(stream.rows, key=_machines))
            workload = stream.rows[0][0].program.workload
            self._push(name, stream, soon=workload not in measured)
            measured.add(workload)

    def _push(self, name: str, stream: _Stream, *, soon: bool = False) -> None:
        """Puts a stream in its place; the first of each program is `soon`, to be measured."""
        start = stream.rows[0][0].program.start
        rank = (not soon, -(start + stream.seconds))
        heapq.heappush(self._first, (*rank, len(self._first), name))

    def _count(self, run: Run, sign: int) -> None:
        kind = run.program.workload
        self._by_workload[kind] = self._by_workload.get(kind, 0.0) + sign * run.seconds

    def again(self, runs: Iterable[Run]) -> None:
        """Adds runs that failed in a batch of several: each runs alone, before all else."""
        for run in runs:
            self._alone.append(run)
            self._count(run, 1)

    def __bool__(self) -> bool:
        return bool(self._alone or self._first)

    @property
    def seconds(self) -> float:
        """Estimated seconds of all runs on one host core, corrected by measured times."""
        return sum(max(s, 0.0) * self._pace.of(kind) for kind, s in self._by_workload.items())

    def take(self) -> Batch:
        """The next batch: runs of one stream, as many as the longest time allows."""
        if self._alone:
            runs = [self._alone.popleft()]
        else:
            *_, name = heapq.heappop(self._first)
            stream = self._streams[name]
            runs = self._cut(stream)
            stream.seconds -= sum(run.seconds for run in runs)
            if stream.rows:
                self._push(name, stream)
        for run in runs:
            self._count(run, -1)
        return Batch(tuple(runs))

    def _cut(self, stream: _Stream) -> list[Run]:
        row = stream.rows.popleft()
        first = row[0]
        pace = self._pace.of(first.program.workload)
        # A long start is worth sharing, however long the runs are.
        limit = BATCH_SECONDS + 2 * first.program.start * pace
        most = 1 if first.precision is not None else max(1, int(limit / (first.seconds * pace)))
        if len(row) >= most:
            if rest := row[most:]:
                stream.rows.appendleft(rest)
            return row[:most]
        found, machines = list(row), _machines(row)
        while (
            stream.rows and len(found) + len(row) <= most and _machines(stream.rows[0]) == machines
        ):
            found += stream.rows.popleft()
        return found


def _machines(row: Row) -> list[str]:
    return [run.machine for run in row]


def batches(runs: Iterable[Run]) -> list[Batch]:
    """All batches of some runs, as they are planned before anything is measured."""
    waiting = Waiting(runs)
    found = []
    while waiting:
        found.append(waiting.take())
    return sorted(found, key=lambda batch: -batch.seconds)
