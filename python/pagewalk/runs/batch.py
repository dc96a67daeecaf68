"""Runs that share one stream of one program, and about how long they take."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewalk.config import is_path
from pagewalk.runs.plan import Run

Json = dict[str, Any]

BATCH_SECONDS = 40.0
"""About how long a batch takes at most, where its runs allow: what a kill can lose."""
DESIGN_MEMORY = 300 << 20
"""Bytes of the host that a design takes, about, beside its program."""


@dataclass(frozen=True)
class Batch:
    """Runs over one stream of one program."""

    runs: tuple[Run, ...]

    @property
    def seconds(self) -> float:
        """About what it takes on one host core, as planned."""
        return self.runs[0].program.start + sum(run.seconds for run in self.runs)

    @property
    def memory(self) -> int:
        """About what it takes of the host, bytes."""
        return self.runs[0].program.memory + DESIGN_MEMORY * len(self.runs)

    def spec(self) -> Json:
        """What the engine's `run` reads, but for the files of designs."""
        first = self.runs[0]
        within = first.precision
        machine = first.machine
        return {
            "machine": str(Path(machine).resolve()) if is_path(machine) else machine,
            "set": [],
            "source": first.program.source(),
            "limits": {**first.limits, "sample": None},
            "precision": None if within is None else {"within": within, "metrics": []},
            "seed": first.seed,
            "host_threads": 1,
            "mappings": first.mappings,
            "interval": first.interval,
            # What is kept must not depend on which designs happened to run together.
            "alone": False,
        }

    def designs(self) -> list[Json]:
        """The designs as files: what each is called, and its text."""
        return [{"label": run.design.label, "text": run.design.text()} for run in self.runs]


class Pace:
    """How much longer runs take than planned, by what has been measured of others."""

    def __init__(self) -> None:
        self._planned: dict[str, float] = {}
        self._taken: dict[str, float] = {}

    def learn(self, batch: Batch, seconds: float) -> None:
        """A batch has taken so long."""
        for kind in ("", batch.runs[0].program.workload):
            self._planned[kind] = self._planned.get(kind, 0.0) + batch.seconds
            self._taken[kind] = self._taken.get(kind, 0.0) + seconds

    def of(self, workload: str) -> float:
        """Of a program's runs: of its own where there were some, else of all; 1 before any."""
        kind = workload if workload in self._planned else ""
        return self._taken[kind] / self._planned[kind] if kind in self._planned else 1.0

    def seconds(self, batch: Batch) -> float:
        """About how long a batch takes, by what has been measured."""
        return batch.seconds * self.of(batch.runs[0].program.workload)

    @property
    def measured(self) -> bool:
        """Whether anything has been."""
        return bool(self._planned)


@dataclass
class _Stream:
    runs: deque[Run] = field(default_factory=deque)
    seconds: float = 0.0


class Waiting:
    """Runs that nobody simulates yet, by stream; the longest stream comes first.

    A sampled run is alone: of several together, the least sure says how many samples all have.
    """

    def __init__(self, runs: Iterable[Run], pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._streams: dict[str, _Stream] = {}
        self._first: list[tuple[float, int, str]] = []
        self._alone: deque[Run] = deque()
        self._by_workload: dict[str, float] = {}
        for run in runs:
            stream = self._streams.setdefault(run.stream, _Stream())
            stream.runs.append(run)
            stream.seconds += run.seconds
            self._count(run, 1)
        for name, stream in self._streams.items():
            self._push(name, stream)

    def _push(self, name: str, stream: _Stream) -> None:
        start = stream.runs[0].program.start
        heapq.heappush(self._first, (-(start + stream.seconds), len(self._first), name))

    def _count(self, run: Run, sign: int) -> None:
        kind = run.program.workload
        self._by_workload[kind] = self._by_workload.get(kind, 0.0) + sign * run.seconds

    def again(self, runs: Iterable[Run]) -> None:
        """Runs that have failed beside others: each by itself, before all else."""
        for run in runs:
            self._alone.append(run)
            self._count(run, 1)

    def __bool__(self) -> bool:
        return bool(self._alone or self._first)

    @property
    def seconds(self) -> float:
        """About what they take on one host core, by what has been measured so far."""
        return sum(max(s, 0.0) * self._pace.of(kind) for kind, s in self._by_workload.items())

    def take(self) -> Batch:
        """The next batch: of one stream as many as do not take too long."""
        if self._alone:
            runs = [self._alone.popleft()]
        else:
            _, _, name = heapq.heappop(self._first)
            stream = self._streams[name]
            runs = list(self._cut(stream))
            stream.seconds -= sum(run.seconds for run in runs)
            if stream.runs:
                self._push(name, stream)
        for run in runs:
            self._count(run, -1)
        return Batch(tuple(runs))

    def _cut(self, stream: _Stream) -> Iterator[Run]:
        first = stream.runs.popleft()
        yield first
        if first.precision is not None:
            return
        pace = self._pace.of(first.program.workload)
        # A long start is worth sharing, whatever follows.
        limit = BATCH_SECONDS + 2 * first.program.start * pace
        together = first.seconds * pace
        while stream.runs and together + stream.runs[0].seconds * pace <= limit:
            run = stream.runs.popleft()
            together += run.seconds * pace
            yield run


def batches(runs: Iterable[Run]) -> list[Batch]:
    """All batches of some runs, as they are planned before anything is measured."""
    waiting = Waiting(runs)
    found = []
    while waiting:
        found.append(waiting.take())
    return sorted(found, key=lambda batch: -batch.seconds)
