"""Executors of batches: the interface, and the one that starts processes on this host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from pagewalk.host import load, run_folder
from pagewalk.runs.batch import Batch
from pagewalk.runs.task import OnProgress, Workers

Json = dict[str, Any]


class Executor(Protocol):
    """An executor of batches, and the batches that it has room for."""

    @property
    def slots(self) -> int:
        """Batches that run side by side, 1 or more."""

    @property
    def width(self) -> int:
        """Batches that are submitted at a time."""

    def share(self) -> float:
        """The share of a core that a batch gets beside other load, measured now."""

    def fits(self, batch: Batch, handed: Sequence[Batch]) -> bool:
        """True if there is memory for another batch beside those in `handed`."""

    def refuses(self, batch: Batch) -> str:
        """The reason why it can never take a batch, else empty."""

    def submit(self, order: Json, batch: Batch, on_progress: OnProgress) -> Future[Json]:
        """Submits a batch; the future gives the report of `task.simulate`."""

    def lost(self, error: BaseException) -> str:
        """The reason if, after this error, nothing more can run here, else empty."""

    def why(self, error: BaseException) -> str:
        """The error of a batch without a report, in words."""

    def __enter__(self) -> Any:
        """Opens the executor."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends running batches, and closes the executor."""


def executor_for(cluster: str | None, jobs: int | None) -> Executor:
    """The executor of ``--cluster`` and ``--jobs``. Raises `UserError` for invalid values."""
    if cluster is not None:
        from pagewalk.runs.cluster import Cluster, ClusterOption

        option = ClusterOption.read(cluster)
        if option is not None:
            return Cluster(option, jobs)
    return Host(jobs)


class Host:
    """Processes on this host, one for each job, as far as memory suffices."""

    def __init__(self, jobs: int | None = None) -> None:
        cores = os.cpu_count() or 1
        self._jobs = jobs or cores
        self.slots = min(self._jobs, cores)
        # One more, so that no process waits for the next one to be thought of.
        self.width = self._jobs + 1
        self._memory = available()
        self._open = ExitStack()
        self._folder = ""
        self._pool: ThreadPoolExecutor | None = None
        self._workers = Workers()

    def __enter__(self) -> Host:
        # This process owns the folder: it may have to kill the processes that use it.
        self._folder = str(self._open.enter_context(run_folder.folder()))
        self._pool = ThreadPoolExecutor(self._jobs, thread_name_prefix="pagewalk-run")
        return self

    def share(self) -> float:
        """The share of a core that is left for each process."""
        return load.cpu_share(self.slots)

    def fits(self, batch: Batch, handed: Sequence[Batch]) -> bool:
        """True if the host's memory suffices; a batch that runs alone always fits."""
        used = sum(one.memory for one in handed)
        return not handed or used + batch.memory <= self._memory

    def refuses(self, _batch: Batch) -> str:
        """Always empty: the engine itself reports a lack of memory."""
        return ""

    def submit(self, order: Json, _batch: Batch, on_progress: OnProgress) -> Future[Json]:
        """Runs a batch in a process."""
        assert self._pool is not None
        return self._pool.submit(
            self._workers.simulate, {**order, "folder": self._folder}, on_progress
        )

    def lost(self, _error: BaseException) -> str:
        """Never: a process that dies is one batch."""
        return ""

    def why(self, error: BaseException) -> str:
        """The error, which happened before a process was started."""
        return f"{type(error).__name__}: {error}"

    def __exit__(self, *_: object) -> None:
        if self._pool is None:
            return
        # First the batches that wait for a thread, then the processes that threads wait for.
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._workers.close()
        self._pool.shutdown(wait=True)
        self._open.close()


def available() -> int:
    """Bytes of host memory that can be used."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return int(0.9 * 1024 * kilobytes["MemAvailable"])
    except (OSError, KeyError, ValueError, IndexError):
        return 4 << 30
