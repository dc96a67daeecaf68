"""The scheduler: simulates runs that the cache lacks, batch by batch, on an executor."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pagewalk import native
from pagewalk.errors import PagewalkError, Terminated
from pagewalk.host import load, run_folder
from pagewalk.runs.batch import Batch, Pace, Waiting, batches
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.executor import Executor, Host
from pagewalk.runs.plan import Run, keys

Json = dict[str, Any]

AHEAD = 64
"""Batches that may be held back while the scheduler looks for one that fits."""
POLL_SECONDS = 2.0
"""Seconds between polls of a run that another process simulates."""
PAUSE = 0.5
"""Seconds between updates of progress."""
SHOWN_SECONDS = 5.0
"""Seconds until a file in a shared folder is visible on other hosts."""
EMPTY_REPORT: Json = {
    "kept": [],
    "there": [],
    "elsewhere": [],
    "results": {},
    "unkept": [],
    "seconds": 0.0,
}
"""The report of a batch that gave none."""
OWN_SPEED = 0.05
"""Share of a batch after which its own speed gives its remaining time."""


class Watcher(Protocol):
    """An observer of progress."""

    def planned(self, there: int, missing: int, seconds: float) -> None:
        """Called once, before anything runs: numbers of runs, and the estimated seconds."""

    def damaged(self, paths: list[Path]) -> None:
        """Called before `planned`, with the cached runs that cannot be read, if any."""

    def progress(self, share: float, left: float | None, running: list[str], done: int) -> None:
        """Called from time to time.

        `share` of the work is done, about `left` seconds remain (None: no estimate yet),
        `running` are the programs that run, and `done` runs have ended.
        """

    def stopped(self, kept: int) -> None:
        """Called after an interrupt: of the missing runs, so many are kept now."""


class Silent:
    """A watcher that shows nothing."""

    def planned(self, there: int, missing: int, seconds: float) -> None:
        """Shows nothing."""

    def damaged(self, paths: list[Path]) -> None:
        """Shows nothing."""

    def progress(self, share: float, left: float | None, running: list[str], done: int) -> None:
        """Shows nothing."""

    def stopped(self, kept: int) -> None:
        """Shows nothing."""


def simulate(
    runs: Iterable[Run],
    cache: Cache,
    *,
    executor: Executor | None = None,
    fresh: bool = False,
    watcher: Watcher | None = None,
) -> Callable[[Run], Outcome]:
    """Simulates runs that the cache lacks; returns the outcome of each run.

    Without an `executor`, processes on this host simulate. `fresh` simulates all. Finished runs
    stay in the cache after an interruption. An outcome that could not be stored is returned all
    the same, and `cache.unkept` has the reason.
    """
    outcomes: dict[str, Outcome] = {}
    for run, outcome in as_finished(runs, cache, executor=executor, fresh=fresh, watcher=watcher):
        outcomes[run.identity] = outcome
    return lambda run: outcomes[run.identity]


def as_finished(
    runs: Iterable[Run],
    cache: Cache,
    *,
    executor: Executor | None = None,
    fresh: bool = False,
    watcher: Watcher | None = None,
    known: Callable[[Run, str], bool] | None = None,
) -> Iterator[tuple[Run, Outcome]]:
    """Yields each distinct run once, as soon as it has ended.

    Runs that the caller has, which are `known` by their key, are left out.
    """
    watcher = watcher or Silent()
    wanted = {run.identity: run for run in runs}
    with run_folder.folder() as folder:
        found, wrong = keys(wanted.values(), folder)
    for identity, error in wrong.items():
        yield wanted[identity], Outcome("", None, error)
    # Two spellings of one configuration are one run.
    alike: dict[str, list[Run]] = {}
    for identity, key in found.items():
        alike.setdefault(key, []).append(wanted[identity])
    missing: dict[str, Run] = {}
    for key, runs_of_key in alike.items():
        if known is not None and not fresh:
            runs_of_key[:] = [run for run in runs_of_key if not known(run, key)]
            if not runs_of_key:
                continue
        # One at a time: all together would fill the memory.
        outcome = None if fresh or not cache.path(key).exists() else cache.read(key)
        if outcome is None:
            missing[key] = runs_of_key[0]
        else:
            yield from ((run, outcome) for run in runs_of_key)
    if cache.damaged:
        watcher.damaged(cache.damaged)
    here = executor or Host()
    with here:
        scheduler = _Scheduler(cache, here, missing, fresh=fresh)
        watcher.planned(len(alike) - len(missing), len(missing), scheduler.planned)
        try:
            for key, outcome in scheduler.run(watcher):
                for run in alike[key]:
                    yield run, outcome
        except (KeyboardInterrupt, Terminated, GeneratorExit):
            watcher.stopped(sum(cache.path(key).exists() for key in missing))
            raise


@dataclass
class _Job:
    batch: Batch
    start: float | None = None
    share: float = 0.0

    def set_share(self, share: float) -> None:
        """Sets the share that is done; the first call marks the start."""
        if self.start is None:
            self.start = time.monotonic()
        self.share = share

    def elapsed(self, now: float) -> float:
        """Seconds since it started, 0 while it waits in a cluster's queue."""
        return 0.0 if self.start is None else now - self.start

    def left(self, now: float, pace: Pace) -> float:
        """Seconds until it ends: by its own speed, else by that of others."""
        gone = self.elapsed(now)
        if self.share >= OWN_SPEED:
            return gone * (1 / self.share - 1)
        return max(0.0, pace.seconds(self.batch) - gone)


class _Scheduler:
    """Runs batches on an executor until none is left."""

    def __init__(
        self, cache: Cache, executor: Executor, missing: dict[str, Run], *, fresh: bool
    ) -> None:
        self._cache, self._executor, self._fresh = cache, executor, fresh
        self._mark = cache.mark()
        self._keys = {run.identity: key for key, run in missing.items()}
        self._pace = Pace()
        self._waiting = Waiting(missing.values(), self._pace)
        self._held: list[Batch] = []
        self._jobs: dict[Future[Json], _Job] = {}
        self._claimed: dict[str, tuple[Run, float]] = {}
        self._done = 0.0
        self._ended = 0
        self._lost = ""
        planned = batches(missing.values())
        longest = planned[0].seconds if planned else 0.0
        work = sum(batch.seconds for batch in planned)
        self.planned = load.corrected(max(longest, work / executor.slots), executor.share)

    def run(self, watcher: Watcher) -> Iterator[tuple[str, Outcome]]:
        """Runs all batches; yields the outcome of each key."""
        while self._waiting or self._held or self._jobs or self._claimed:
            if self._lost:
                yield from self._give_up()
                return
            yield from self._start()
            yield from self._listen()
            yield from self._poll_claimed()
            running = [job.batch.runs[0].program.workload for job in self._jobs.values()]
            watcher.progress(*self._progress(), running, self._ended)

    def _start(self) -> Iterator[tuple[str, Outcome]]:
        """Submits the batches that fit."""
        running = [job.batch for job in self._jobs.values()]
        for batch in list(self._held):
            if len(running) < self._executor.width and self._executor.fits(batch, running):
                self._held.remove(batch)
                running.append(batch)
                self._submit(batch)
        while self._waiting and len(running) < self._executor.width and len(self._held) < AHEAD:
            batch = self._waiting.take()
            if why := self._executor.refuses(batch):
                if len(batch.runs) > 1:
                    self._waiting.again(batch.runs)
                else:
                    yield from self._failed(batch, why)
            elif self._executor.fits(batch, running):
                running.append(batch)
                self._submit(batch)
            else:
                self._held.append(batch)

    def _submit(self, batch: Batch) -> None:
        order = {
            "spec": batch.spec(),
            "runs": batch.order(self._keys),
            "cache": str(self._cache.folder.resolve()),
            "mark": self._mark,
            "model": native.model_version(),
            "fresh": self._fresh,
        }
        job = _Job(batch)
        try:
            self._jobs[self._executor.submit(order, batch, job.set_share)] = job
        except Exception as error:
            self._lost = self._executor.lost(error)
            if not self._lost:
                raise
            self._held.append(batch)

    def _listen(self) -> Iterator[tuple[str, Outcome]]:
        if not self._jobs:
            time.sleep(PAUSE if self._claimed else 0)
            return
        for future in wait(self._jobs, PAUSE, FIRST_COMPLETED).done:
            job = self._jobs.pop(future)
            try:
                report = future.result()
            except (Exception, CancelledError) as error:
                self._lost = self._executor.lost(error)
                if self._lost:
                    self._held.append(job.batch)
                    return
                report = {**EMPTY_REPORT, "error": self._executor.why(error)}
            yield from self._settle(job.batch, report)

    def _settle(self, batch: Batch, report: Json) -> Iterator[tuple[str, Outcome]]:
        """The outcome of each run of a batch, from the batch's report."""
        self._done += report["seconds"]
        if report["error"] is None and len(report["kept"]) + len(report["results"]) == len(
            batch.runs
        ):
            self._pace.learn(batch, report["seconds"])
        self._cache.unkept += report["unkept"]
        failed = []
        for run in batch.runs:
            key = self._keys[run.identity]
            if key in (*report["kept"], *report["there"]):
                outcome = self._read_back(key)
            elif key in report["results"]:
                outcome = self._store(key, report)
            elif key in report["elsewhere"]:
                self._claimed[key] = (run, time.monotonic() + POLL_SECONDS)
                continue
            else:
                failed.append(run)
                continue
            self._ended += 1
            yield key, outcome
        if len(failed) > 1:
            # A failing run ends its whole batch; alone the others may succeed.
            self._waiting.again(failed)
        elif failed:
            yield from self._failed(Batch(tuple(failed)), report["error"])

    def _failed(self, batch: Batch, why: str) -> Iterator[tuple[str, Outcome]]:
        for run in batch.runs:
            self._ended += 1
            yield self._keys[run.identity], Outcome("", None, why)

    def _read_back(self, key: str) -> Outcome:
        """Reads a result that a worker has stored; a shared folder may show it late."""
        deadline = time.monotonic() + SHOWN_SECONDS
        while not self._cache.path(key).exists() and time.monotonic() < deadline:
            time.sleep(PAUSE)
        return self._cache.read(key) or Outcome(key, None, "the result could not be read back")

    def _store(self, key: str, report: Json) -> Outcome:
        """Stores a result that its worker could not store, or that has another folder."""
        data = report["results"][key]
        if not report["unkept"]:
            try:
                self._cache.write(key, {name: v for name, v in data.items() if name != "key"})
            except PagewalkError as error:
                self._cache.unkept.append(str(error))
        return Outcome(key, data)

    def _poll_claimed(self) -> Iterator[tuple[str, Outcome]]:
        """Outcomes of runs that other processes have claimed, as far as they have ended."""
        now = time.monotonic()
        for key, (run, when) in list(self._claimed.items()):
            if now < when:
                continue
            with self._cache.claimed(key) as ours:
                there = not self._fresh and self._cache.path(key).exists()
            outcome = self._cache.read(key) if there else None
            if outcome is not None:
                del self._claimed[key]
                self._ended += 1
                yield key, outcome
            elif ours:
                # The process that had claimed it ended without a result.
                del self._claimed[key]
                self._waiting.again([run])
            else:
                self._claimed[key] = (run, now + POLL_SECONDS)

    def _give_up(self) -> Iterator[tuple[str, Outcome]]:
        """Ends the remaining runs with the executor's error.

        Results that reached the cache, but were not reported any more, are read from it.
        """
        rest = [*self._held, *(job.batch for job in self._jobs.values())]
        rest += [Batch((run,)) for run, _ in self._claimed.values()]
        while self._waiting:
            rest.append(self._waiting.take())
        for run in (run for batch in rest for run in batch.runs):
            key = self._keys[run.identity]
            there = not self._fresh and self._cache.path(key).exists()
            outcome = self._cache.read(key) if there else None
            self._ended += 1
            yield key, outcome or Outcome("", None, self._lost)

    def _progress(self) -> tuple[float, float | None]:
        """The share that is done, and the seconds left (None: no estimate yet)."""
        now = time.monotonic()
        jobs = self._jobs.values()
        known = [job for job in jobs if job.share >= OWN_SPEED]
        elapsed = sum(job.elapsed(now) for job in jobs)
        waiting = self._waiting.seconds
        waiting += sum(self._pace.seconds(batch) for batch in self._held)
        if known and not self._pace.measured:
            planned = sum(job.share * job.batch.seconds for job in known)
            waiting *= sum(job.elapsed(now) for job in known) / planned
        # Remaining seconds of each slot, with its running batch and the submitted ones.
        slots = [job.left(now, self._pace) for job in jobs if job.start is not None]
        slots += [0.0] * (self._executor.slots - len(slots))
        heapq.heapify(slots)
        for job in jobs:
            if job.start is None:
                heapq.heapreplace(slots, slots[0] + self._pace.seconds(job.batch))
        left = waiting + sum(slots)
        done = self._done + elapsed
        share = done / (done + left) if done + left > 0 else 1.0
        if not (known or self._pace.measured):
            return share, None
        return share, max(left / self._executor.slots, *slots)
