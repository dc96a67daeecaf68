"""Jobs of a batch system that run a Dask cluster's workers.

Dask submits a job once. These are submitted again when they end, as by their walltime.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pagewalk.errors import Failure, RunOption

LOOK = 5.0
"""Seconds between looks at the jobs."""
LOST = 15.0
"""Seconds without its worker after which a job that had one has ended, as in Dask."""
EARLY = 3
"""Times that a job may end before its worker comes; then it is not submitted again."""


class Jobs:
    """Jobs of a cluster of dask-jobqueue.

    `give_up` is called with the reason when no job is left to submit.
    """

    def __init__(self, cluster: Any, system: str, give_up: Callable[[str], None]) -> None:
        self._cluster, self._system, self._give_up = cluster, system, give_up
        # By the job's name: when its worker was last seen, and how often it ended without one.
        self._seen: dict[str, float] = {}
        self._early: dict[str, int] = {}

    def submit(self, count: int) -> None:
        """Submits the jobs. Raises `Failure` with the answer of a batch system that refuses one."""
        self._cluster.scale(jobs=count)
        try:
            self._cluster.sync(self._submitted)
        except (OSError, RuntimeError) as error:
            raise Failure(
                f"no job was submitted: {_reason(error)}",
                about=(RunOption("cluster"), f" {self._system}"),
            ) from None
        self._cluster.loop.add_callback(self._watch)

    async def _submitted(self) -> None:
        with suppress(OSError, RuntimeError):
            await self._cluster
        for job in self._cluster.workers.values():
            try:
                # One that was refused is submitted once more, for the reason.
                await job
            except (OSError, RuntimeError):
                _refused(*self._cluster.workers.values())
                raise

    async def _watch(self) -> None:
        while self._cluster.status.name == "running":
            await asyncio.sleep(LOOK)
            self._look(await self._queued(), time.monotonic())

    async def _queued(self) -> set[str] | None:
        """The user's jobs in the queue; None where the system does not say."""
        if self._system != "slurm":
            return None
        with suppress(OSError):
            process = await asyncio.create_subprocess_exec(
                *("squeue", "--me", "--noheader", "--format=%A"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            out, _ = await process.communicate()
            if process.returncode == 0:
                return set(out.decode().split())
        return None

    def _look(self, queued: set[str] | None, now: float) -> None:
        """Submits jobs again that have ended."""
        cluster = self._cluster
        present = {one["name"] for one in cluster.scheduler_info["workers"].values()}
        last = ""
        for name, spec in list(cluster.worker_spec.items()):
            if any(f"{name}{part}" in present for part in spec.get("group", [""])):
                self._seen[name] = now
                self._early.pop(name, None)
                continue
            job = cluster.workers.get(name)
            # Dask forgets jobs of lost workers, too.
            if job is not None and job.job_id is None:
                _refused(job)
            elif job is not None:
                gone = queued is not None and job.job_id not in queued
                if not gone and now - self._seen.get(name, now) < LOST:
                    continue
                if name not in self._seen:
                    last = job.job_id
                    self._early[name] = self._early.get(name, 0) + 1
                asyncio.ensure_future(job.close())  # noqa: RUF006
            self._seen.pop(name, None)
            cluster.workers.pop(name, None)
            if self._early.get(name, 0) >= EARLY:
                del cluster.worker_spec[name]
        if cluster.worker_spec:
            cluster.scale(jobs=len(cluster.worker_spec))
        elif last:
            self._give_up(
                f"all jobs of {self._system} have ended {EARLY} times before their workers came; "
                f"the output of job {last} says why"
            )


def _refused(*jobs: Any) -> None:
    """Marks jobs that were not submitted, so that Dask ends without them."""
    for job in jobs:
        if job.job_id is None:
            job.status = type(job.status).failed


def _reason(error: OSError | RuntimeError) -> str:
    """The batch system's own words, of Dask's error about a command."""
    if isinstance(error, FileNotFoundError):
        return f"there is no command '{error.filename}' here; expected a host that submits jobs"
    said = str(error).rpartition("stderr:\n")[2]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return "; ".join(lines) or "its command failed; expected a host that submits jobs"
