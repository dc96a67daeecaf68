"""The scheduler of runs on an executor of the tests: order, room and estimated times."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pagewalk.host import load
from pagewalk.runs import scheduler
from pagewalk.runs.batch import BATCH_SECONDS, Batch, Pace, Waiting
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.executor import Host
from pagewalk.runs.plan import Design, Program, Run, keys
from pagewalk.runs.scheduler import Silent, as_finished, simulate
from pagewalk.runs.task import OnProgress

Json = dict[str, Any]
MACHINE = "epyc-milan"


def runs_of(
    workload: str, number: int, *, instructions: int = 100_000_000, memory: int = 1 << 28
) -> list[Run]:
    """Runs each of a stream of its own."""
    program = Program(workload, "64MiB", memory=memory, start=0.1)
    design = Design("radix", "radix")
    return [Run(program, design, MACHINE, instructions, seed=i) for i in range(number)]


class Place:
    """Simulates nothing, in a time of its own: `slower` says how much longer than planned."""

    slots, width = 2, 3

    def __init__(self, slower: dict[str, float] | None = None, memory: int = 1 << 40) -> None:
        self.slower = slower or {}
        self.memory = memory
        self.left = 1.0
        """The share of a core that other load leaves."""
        self.now = 0.0
        self.handed: list[Batch] = []
        self.most = 0
        self.breaks: set[int] = set()
        """Seeds of runs that take those beside them along."""
        self._running: list[tuple[Future[Json], Batch, Json, OnProgress, list[float]]] = []

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def share(self) -> float:
        return self.left

    def fits(self, batch: Batch, handed: Sequence[Batch]) -> bool:
        return not handed or sum(b.memory for b in handed) + batch.memory <= self.memory

    def refuses(self, batch: Batch) -> str:
        return "too large" if batch.memory > 100 * self.memory else ""

    def lost(self, _error: BaseException) -> str:
        return ""

    def why(self, error: BaseException) -> str:
        return str(error)

    def submit(self, order: Json, batch: Batch, on_progress: OnProgress) -> Future[Json]:
        future: Future[Json] = Future()
        self.handed.append(batch)
        self._running.append((future, batch, order, on_progress, []))
        self.most = max(self.most, sum(b.memory for _, b, *_ in self._running))
        return future

    def wait(self, _futures: Iterable[Future[Json]], seconds: float, _when: str) -> Any:
        """A while goes by."""
        self.now += seconds
        for one in self._running[: self.slots]:
            future, batch, order, on_progress, began = one
            if not began:
                began.append(self.now - seconds)
                on_progress(0.0)
            takes = batch.seconds * self.slower.get(batch.runs[0].program.workload, 1.0)
            gone = self.now - began[0]
            on_progress(min(1.0, gone / takes))
            if gone >= takes:
                future.set_result(self._report(batch, order, takes))
        done = {future for future, *_ in self._running if future.done()}
        self._running = [one for one in self._running if one[0] not in done]
        return SimpleNamespace(done=done)

    def _report(self, batch: Batch, order: Json, seconds: float) -> Json:
        report = {**scheduler.EMPTY_REPORT, "seconds": seconds, "error": None}
        if self.breaks & {run.seed for run in batch.runs}:
            return {**report, "error": "it broke"}
        return {**report, "results": {one["key"]: {"key": one["key"]} for one in order["runs"]}}


class Left(Silent):
    """Keeps the reports of the remaining time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.reports: list[tuple[float, float | None]] = []
        self.first = 0.0

    def planned(self, there: int, missing: int, seconds: float) -> None:
        self.first = seconds

    def progress(self, share: float, left: float | None, running: list[str], done: int) -> None:
        assert 0 <= share <= 1
        self.reports.append((self.place.now, left))


def go(
    runs: Iterable[Run], place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[int, Outcome], Left]:
    monkeypatch.setattr(scheduler, "wait", place.wait)
    monkeypatch.setattr(
        scheduler, "time", SimpleNamespace(monotonic=lambda: place.now, sleep=time.sleep)
    )
    watcher = Left(place)
    found = as_finished(runs, Cache(folder), executor=place, watcher=watcher)
    return {run.seed: outcome for run, outcome in found}, watcher


@pytest.mark.parametrize("slower", [{"gups": 3.0, "bfs": 0.5}, {"gups": 0.4, "bfs": 2.0}, {}])
def test_the_remaining_time_is_measured(
    slower: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(slower)
    runs = [*runs_of("gups", 20), *runs_of("bfs", 20), *runs_of("kmer", 20)]
    _, watcher = go(runs, place, tmp_path, monkeypatch)
    end = place.now
    # The cores of the last two or three batches are a matter of chance.
    early = [(now, left) for now, left in watcher.reports if end / 4 < now < 0.9 * end]
    assert len(early) > 20
    for now, left in early:
        assert left is not None
        assert 1 / 1.5 < left / (end - now) < 1.5, (now, left, end)


@pytest.mark.parametrize("left", [1.0, 0.25])
def test_the_first_estimate_allows_for_the_load(
    left: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place({"gups": 1 / left})
    place.left = left
    _, watcher = go(runs_of("gups", 40), place, tmp_path, monkeypatch)
    assert 1 / 1.2 < watcher.first / place.now < 1.2


def test_a_short_estimate_is_not_worth_a_measurement() -> None:
    assert load.corrected(load.WORTH_SECONDS, lambda: 0.5) == 2 * load.WORTH_SECONDS
    assert load.corrected(1.0, lambda: 1 / 0) == 1.0


def test_the_share_of_a_core_is_measured_by_a_threads_own_time() -> None:
    clock = iter(n * load.SPIN_SECONDS / 10 for n in range(100))
    now = [0.0]

    def wall() -> float:
        now[0] = next(clock)
        return now[0]

    assert load.cpu_share(1, wall, lambda: 0.3 * now[0]) == pytest.approx(0.3)
    clock = iter(n * load.SPIN_SECONDS / 10 for n in range(100))
    assert load.cpu_share(1, wall, lambda: 2 * now[0]) == 1.0
    clock = iter(n * load.SPIN_SECONDS / 10 for n in range(100))
    assert load.cpu_share(1, wall, lambda: 0.0) == load.LEAST


def test_a_batch_that_fails_is_tried_run_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place()
    program = Program("gups", "64MiB", start=0.1)
    runs = [
        Run(
            program,
            Design(f"d{ways}", "radix", {"mmu.l2.main.latency": ways}),
            MACHINE,
            1000,
            seed=7,
        )
        for ways in (7, 8, 9)
    ]
    place.breaks = {7}
    monkeypatch.setattr(scheduler, "wait", place.wait)
    found = list(as_finished(runs, Cache(tmp_path), executor=place))
    assert [len(batch.runs) for batch in place.handed] == [3, 1, 1, 1]
    assert [outcome.error for _, outcome in found] == ["it broke"] * 3


def test_small_runs_continue_while_large_ones_wait_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(memory=2 << 30)
    large = runs_of("bfs", 3, memory=1 << 30, instructions=300_000_000)
    small = runs_of("gups", 8, memory=1 << 20)
    _, watcher = go([*large, *small], place, tmp_path, monkeypatch)
    assert place.most <= 2 << 30
    assert len(place.handed) == 11
    assert watcher.reports


def test_a_run_that_never_fits_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(memory=1 << 20)
    found, _ = go(runs_of("gups", 2, memory=1 << 40), place, tmp_path, monkeypatch)
    assert [outcome.error for outcome in found.values()] == ["too large"] * 2
    assert not place.handed


def test_batches_are_as_long_as_they_turn_out_to_be() -> None:
    program = Program("gups", "64MiB", start=0.1)
    runs = [
        Run(program, Design(f"d{i}", "radix", {"mmu.l2.main.latency": i + 1}), MACHINE, 50_000_000)
        for i in range(30)
    ]
    planned = Waiting(runs).take()
    assert planned.seconds <= BATCH_SECONDS + 1
    pace = Pace()
    pace.learn(planned, 4 * planned.seconds)
    assert pace.of("gups") == pytest.approx(4)
    # Nothing was measured of others but this.
    assert pace.of("bfs") == pytest.approx(4)
    slow = Waiting(runs, pace).take()
    assert len(slow.runs) == pytest.approx(len(planned.runs) / 4, abs=1)


def test_machines_share_a_stream_where_they_have_the_same_designs() -> None:
    program = Program("gups", "64MiB")
    designs = [Design(name, name) for name in ("radix", "thp")]
    on = [Run(program, design, machine, 1000) for machine in ("a", "b") for design in designs]
    waiting = Waiting(on)
    assert [(run.machine, run.design.label) for run in waiting.take().runs] == [
        ("a", "radix"), ("b", "radix"), ("a", "thp"), ("b", "thp"),
    ]  # fmt: skip
    waiting = Waiting(on[:3])
    assert sorted(len(waiting.take().runs) for _ in range(2)) == [1, 2]
    assert not waiting


def test_a_run_that_another_process_simulates_is_taken_over_when_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = runs_of("gups", 1, instructions=100_000)
    found, _ = keys([run], tmp_path)
    (key,) = found.values()
    cache = Cache(tmp_path)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from pagewalk.runs.cache import Cache\n"
            f"with Cache(Path({str(tmp_path)!r})).claimed({key!r}) as ours:\n"
            "    print(ours, flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    with cache.claimed(key) as ours:
        assert not ours
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 0.1)
    seen: list[int] = []

    class Watcher(Silent):
        def progress(self, share: float, left: float | None, running: list[str], done: int) -> None:
            seen.append(done)
            if len(seen) == 4:
                holder.kill()
                holder.wait()

    outcome = simulate([run], cache, executor=Host(1), watcher=Watcher())(run)
    holder.stdout.close()
    assert len(seen) > 4
    assert set(seen[:4]) == {0}
    assert outcome.result.complete
    # Nothing is left of who held what.
    assert not list(tmp_path.rglob("*.lock"))


def test_a_result_does_not_depend_on_the_runs_beside_it(tmp_path: Path) -> None:
    program = Program("gups", "16MiB", start=0.1)
    runs = [
        Run(program, Design(name, name), machine, 100_000)
        for machine in (MACHINE, "stlt-table3")
        for name in ("radix", "thp")
    ]
    together = simulate(runs, Cache(tmp_path / "together"), executor=Host(1))
    for number, run in enumerate(runs):
        alone = simulate([run], Cache(tmp_path / str(number)), executor=Host(1))(run)
        beside = together(run)
        assert alone.data is not None
        assert beside.data is not None
        assert {**alone.data, "host": None} == {**beside.data, "host": None}
