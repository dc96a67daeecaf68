"""Simulates what is missing, several batches side by side, each in a process of its own."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagewalk import native, scratch
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.plan import Run, keys, written

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
        """About what it takes on one host core."""
        return self.runs[0].program.start + sum(run.seconds for run in self.runs)

    @property
    def memory(self) -> int:
        """About what it takes of the host, bytes."""
        return self.runs[0].program.memory + DESIGN_MEMORY * len(self.runs)

    def spec(self, folder: Path) -> Json:
        """What the engine's `run` reads."""
        first = self.runs[0]
        within = first.precision
        return {
            "machine": first.machine,
            "designs": [str(written(run.design, folder)) for run in self.runs],
            "set": [],
            "source": first.program.source(),
            "limits": {**first.limits, "sample": None},
            "precision": None if within is None else {"within": within, "metrics": []},
            "seed": first.seed,
            "host_threads": 1,
            "mappings": first.mappings,
            # What is kept must not depend on which designs happened to run together.
            "alone": False,
        }


def batches(runs: Iterable[Run]) -> list[Batch]:
    """Runs of one stream together, as long as that does not take too long; longest first.

    A sampled run is alone: of several together, the least sure says how many samples all have.
    """
    streams: dict[str, list[Run]] = {}
    for run in runs:
        streams.setdefault(run.stream, []).append(run)
    result = []
    for members in streams.values():
        # A long start is worth sharing, whatever follows.
        limit = BATCH_SECONDS + 2 * members[0].program.start
        current: list[Run] = []
        for run in members:
            full = sum(r.seconds for r in current) + run.seconds > limit
            if current and (full or run.precision is not None):
                result.append(Batch(tuple(current)))
                current = []
            current.append(run)
        result.append(Batch(tuple(current)))
    return sorted(result, key=lambda batch: -batch.seconds)


class Watcher(Protocol):
    """Somebody who shows how far it is."""

    def planned(self, there: int, missing: int, work: float, seconds: float) -> None:
        """Told once, before anything runs: the work in seconds of one core, and the time."""

    def damaged(self, paths: list[Path]) -> None:
        """Told before that of kept runs that cannot be read, where there are any."""

    def progress(self, work: float, running: list[str], finished: int) -> None:
        """Told now and then: the work that is done, what runs, and the runs that finished."""


class Silent:
    """A watcher that shows nothing."""

    def planned(self, there: int, missing: int, work: float, seconds: float) -> None:
        """Nothing."""

    def damaged(self, paths: list[Path]) -> None:
        """Nothing."""

    def progress(self, work: float, running: list[str], finished: int) -> None:
        """Nothing."""


@dataclass
class _Job:
    batch: Batch
    process: subprocess.Popen[str]
    fraction: float = 0.0
    error: str | None = None
    finished: bool = False


def simulate(
    runs: Iterable[Run],
    cache: Cache,
    *,
    jobs: int | None = None,
    fresh: bool = False,
    watcher: Watcher | None = None,
) -> Callable[[Run], Outcome]:
    """Simulates what the cache does not have; returns what became of each run.

    `fresh` simulates all. What has finished stays when this is interrupted; what could not be
    kept is there for this time, and `cache.unkept` says why.
    """
    watcher = watcher or Silent()
    wanted = {run.identity: run for run in runs}
    outcomes: dict[str, Outcome] = {}
    with scratch.folder() as folder:
        found, wrong = keys(wanted.values(), folder)
        for identity, error in wrong.items():
            outcomes[identity] = Outcome("", None, error)
        missing: dict[str, Run] = {}
        for identity, key in found.items():
            kept = None if fresh else cache.read(key)
            if kept is not None:
                outcomes[identity] = kept
            else:
                # Two spellings of one configuration are one run.
                missing.setdefault(key, wanted[identity])
        if cache.damaged:
            watcher.damaged(cache.damaged)
        planned = batches(missing.values())
        cores = os.cpu_count() or 1
        workers = jobs or cores
        longest = planned[0].seconds if planned else 0.0
        work = sum(batch.seconds for batch in planned)
        there = sum(outcome.data is not None for outcome in outcomes.values())
        watcher.planned(there, len(missing), work, max(longest, work / min(workers, cores)))
        pool = _Pool(cache, folder, found, workers, watcher)
        errors = pool.run(planned)
        for identity, key in found.items():
            if identity not in outcomes:
                result = pool.unkept.get(key) or cache.read(key)
                error = errors.get(key, "the result could not be read back")
                outcomes[identity] = result or Outcome(key, None, error)
    return lambda run: outcomes[run.identity]


class _Pool:
    """The processes: as many as there are jobs, as long as their memory fits the host."""

    def __init__(
        self, cache: Cache, folder: Path, found: dict[str, str], workers: int, watcher: Watcher
    ) -> None:
        self._cache, self._folder, self._keys = cache, folder, found
        self._workers, self._watcher = workers, watcher
        self._memory = available()
        self._waiting: list[Batch] = []
        self._jobs: list[_Job] = []
        self._done = 0.0
        self._finished = 0
        self._errors: dict[str, str] = {}
        self.unkept: dict[str, Outcome] = {}
        """Results that are not in the cache, since they could not be written."""
        self._selector = selectors.DefaultSelector()

    def run(self, waiting: list[Batch]) -> dict[str, str]:
        """Runs all; returns by key why a run has no result."""
        self._waiting = list(waiting)
        try:
            while self._waiting or self._jobs:
                self._start()
                self._listen()
                self._watcher.progress(
                    self._done + sum(j.fraction * j.batch.seconds for j in self._jobs),
                    [j.batch.runs[0].program.workload for j in self._jobs],
                    self._finished,
                )
        finally:
            for job in self._jobs:
                job.process.kill()
                job.process.wait()
            self._selector.close()
        return self._errors

    def _start(self) -> None:
        for batch in list(self._waiting):
            if len(self._jobs) >= self._workers:
                return
            used = sum(job.batch.memory for job in self._jobs)
            if self._jobs and used + batch.memory > self._memory:
                continue
            self._waiting.remove(batch)
            self._launch(batch)

    def _launch(self, batch: Batch) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagewalk.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "spec": batch.spec(self._folder),
            "keys": [self._keys[run.identity] for run in batch.runs],
            "cache": str(self._cache.folder.resolve()),
        }
        job = _Job(batch, process)
        self._jobs.append(job)
        self._selector.register(process.stdout, selectors.EVENT_READ, job)
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # It has died; its end is noticed where all ends are.

    def _listen(self) -> None:
        deadline = time.monotonic() + 0.5
        while (left := deadline - time.monotonic()) > 0 and self._jobs:
            for key, _ in self._selector.select(left):
                job: _Job = key.data
                assert job.process.stdout is not None
                line = job.process.stdout.readline()
                if not line.endswith("\n"):  # also of a worker that died in a message
                    self._end(job)
                    return
                self._hear(job, json.loads(line))

    def _hear(self, job: _Job, message: Json) -> None:
        if "unkept" in message:
            self._cache.unkept.append(message["unkept"])
            self.unkept[message["key"]] = Outcome(message["key"], message["result"])
        elif "error" in message:
            job.error = message["error"]
        elif "finished" in message:
            job.finished = True
        elif message.get("total"):
            job.fraction = min(1.0, message["done"] / message["total"])

    def _end(self, job: _Job) -> None:
        assert job.process.stdout is not None
        assert job.process.stderr is not None
        assert job.process.stdin is not None
        self._selector.unregister(job.process.stdout)
        said = job.process.stderr.read().strip()
        status = job.process.wait()
        for stream in (job.process.stdin, job.process.stdout, job.process.stderr):
            # An order that a dead worker has not read is written once more.
            with suppress(BrokenPipeError):
                stream.close()
        self._jobs.remove(job)
        if not job.finished and len(job.batch.runs) > 1:
            # One that fails takes those beside it along; alone they may do.
            self._waiting.extend(Batch((run,)) for run in job.batch.runs)
            return
        self._done += job.batch.seconds
        self._finished += len(job.batch.runs)
        if job.finished:
            return
        why = job.error or _why(status, said)
        for run in job.batch.runs:
            self._errors[self._keys[run.identity]] = why


def _why(status: int, said: str) -> str:
    if status < 0:
        return f"the simulation was killed by signal {-status} (out of host memory?)"
    return said.splitlines()[-1] if said else f"the simulation ended with status {status}"


def _environment() -> dict[str, str]:
    """The worker imports the package that runs here, installed or not."""
    package = str(Path(native.__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package}


def available() -> int:
    """Bytes of host memory that can be used."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return int(0.9 * 1024 * kilobytes["MemAvailable"])
    except (OSError, KeyError, ValueError, IndexError):
        return 4 << 30
