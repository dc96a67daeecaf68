"""A Dask cluster as an executor: an existing one, or a new one of jobs or pods.

Needs ``pip install pagewalk[cluster]``. A Dask worker runs a batch in a thread that waits for a
process. Memory is the worker resource `MEMORY`, in bytes.
"""

from __future__ import annotations

import itertools
import logging
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

from pagewalk.errors import Failure, RunOption, UserError
from pagewalk.runs.batch import Batch
from pagewalk.runs.jobs import LOST, Jobs
from pagewalk.runs.task import OWN, OnProgress
from pagewalk.view.escape import shown
from pagewalk.view.quantities import parse_bytes, size

Json = dict[str, Any]

MEMORY = "memory"
"""The resource of a Dask worker that counts the host memory of its runs."""
QUEUES = {
    "slurm": "SLURMCluster",
    "pbs": "PBSCluster",
    "lsf": "LSFCluster",
    "sge": "SGECluster",
    "oar": "OARCluster",
    "htcondor": "HTCondorCluster",
}
"""Batch systems, with their classes in dask-jobqueue."""
KUBERNETES = "kubernetes"
CONNECT_SECONDS = 10
STARTS = 4
"""Times that workers may begin an order; Dask itself gives up after as many dead workers."""
SCHEMES = ("tcp", "tls", "ws", "wss", "ucx", "ucxx")
"""Protocols of a scheduler's address."""
NEEDED = "pip install 'pagewalk[cluster]'"


def _address(text: str) -> str:
    """The address of a scheduler. Raises `UserError` for what no client could connect to."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in SCHEMES and parts.hostname and parts.port
    except ValueError:
        good = None
    if not good:
        raise UserError(
            f"{shown(text)} is no address of a Dask scheduler; expected one as "
            f"tcp://host:8786 (or with {', '.join(SCHEMES[1:])})",
            about=RunOption("cluster"),
        )
    return text


@dataclass(frozen=True)
class ClusterOption:
    """The value of ``--cluster``: an address ``tcp://…``, or a system and its options."""

    where: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> ClusterOption | None:
        """Reads ``--cluster``; None of ``local``, this host's processes.

        Raises `UserError` for what is neither an address nor a system.
        """
        if text == "local":
            return None
        if "://" in text:
            return cls(_address(text))
        where, _, pairs = text.partition(":")
        if where not in QUEUES and where != KUBERNETES:
            raise UserError(
                f"{shown(text)} is not understood; expected local, the address of a "
                f"Dask scheduler as tcp://host:8786, or {', '.join(QUEUES)} or {KUBERNETES}, with "
                "options as slurm:queue=long,cores=4,memory=16GB",
                about=RunOption("cluster"),
            )
        options = {}
        for pair in pairs.split(",") if pairs else []:
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise UserError(
                    f"'{pair}' is not understood; expected NAME=VALUE, as memory=16GB",
                    about=(RunOption("cluster"), f" {where}"),
                )
            options[key.strip()] = value.strip()
        return cls(where, options)


def queue(option: ClusterOption) -> Any:
    """The cluster of a batch system, without jobs yet; its `job_script` is what is submitted.

    Options that are not given are those of Dask's own configuration, ``jobqueue.yaml``.
    Raises `UserError` where it lacks some.
    """
    try:
        import dask

        # It sets a handler of SIGINT as it is imported: Ctrl-C would end this process unsaid, and
        # only the main thread may set one.
        with patch.object(signal, "signal"):
            import dask_jobqueue
    except ImportError as error:
        raise UserError(
            f"{error}; {NEEDED}", about=(RunOption("cluster"), f" {option.where}")
        ) from None
    given: Json = dict(option.options)
    for name in ("cores", "processes"):
        if name in given:
            given[name] = _whole(option, name)
    memory = given.get("memory") or dask.config.get(f"jobqueue.{option.where}.memory", None)
    if memory is None:
        raise UserError(
            f"nothing says how much memory a job has; expected "
            f"{option.where}:cores=4,memory=16GB, or both in Dask's jobqueue.yaml",
            about=(RunOption("cluster"), f" {option.where}"),
        )
    # By default one process has all threads of a job; Dask would start several.
    said = dask.config.get(f"jobqueue.{option.where}.processes", None)
    processes = given.setdefault("processes", said or 1)
    try:
        # As it is read for the job itself.
        each = dask.utils.parse_bytes(str(memory)) // processes
    except ValueError:
        raise UserError(
            f"memory: {shown(str(memory))} is not understood; expected a size, as 16GB",
            about=(RunOption("cluster"), f" {option.where}"),
        ) from None
    given["worker_extra_args"] = ["--resources", f"{MEMORY}={each}"]
    try:
        return getattr(dask_jobqueue, QUEUES[option.where])(**given)
    except (TypeError, ValueError) as error:
        raise UserError(str(error), about=(RunOption("cluster"), f" {option.where}")) from None


def pods(option: ClusterOption, workers: int) -> Json:
    """The specification of a Dask cluster on Kubernetes, for its Dask operator.

    Raises `UserError` where no image is named, in which pagewalk is installed.
    """
    try:
        from dask_kubernetes.operator import make_cluster_spec
    except ImportError as error:
        raise UserError(
            f"{error}; {NEEDED}", about=(RunOption("cluster"), f" {KUBERNETES}")
        ) from None
    options = dict(option.options)
    known = {"name", "image", "memory", "cores"}
    if unknown := options.keys() - known:
        raise UserError(
            f"there is no option {shown(min(unknown))}; expected some of "
            f"{', '.join(sorted(known))}",
            about=(RunOption("cluster"), f" {KUBERNETES}"),
        )
    if "image" not in options:
        raise UserError(
            "expected image=…, one in which pagewalk[cluster] is installed",
            about=(RunOption("cluster"), f" {KUBERNETES}"),
        )
    memory = parse_bytes(
        options.get("memory", "8GiB"), (RunOption("cluster"), f" {KUBERNETES}: memory")
    )
    cores = _whole(option, "cores") if "cores" in options else 1
    wanted = {"memory": str(memory), "cpu": str(cores)}
    command = ["dask", "worker", "--nthreads", str(cores), "--resources", f"{MEMORY}={memory}"]
    found: Json = make_cluster_spec(
        name=options.get("name", "pagewalk"),
        image=options["image"],
        n_workers=workers,
        resources={"requests": wanted, "limits": wanted},
        worker_command=command,
    )
    return found


def _whole(option: ClusterOption, name: str) -> int:
    text = option.options[name]
    if not text.isdecimal() or int(text) < 1:
        raise UserError(
            f"{name}={shown(text)} is not possible; expected 1 or more",
            about=(RunOption("cluster"), f" {option.where}"),
        )
    return int(text)


def _on_worker(order: Json, topic: str, number: int) -> Json:
    """Simulates a batch on a Dask worker, and reports its progress."""
    from distributed import get_worker

    worker = get_worker()
    worker.log_event(topic, [number, None])
    return OWN.simulate(order, lambda share: worker.log_event(topic, [number, share]))


class _Died(Exception):
    """Every worker that began an order died."""


@dataclass
class _Handed:
    """An order that the scheduler has, and how often workers began it."""

    on_progress: OnProgress
    answer: Future[Json] = field(default_factory=Future)
    starts: int = 0
    counted: float = -LOST
    future: Future[Json] | None = None
    """The same at Dask."""

    def begin(self, now: float) -> bool:
        """Counts a start; false if it is one too many.

        Jobs that end together hand an order from one to the next: that is one start.
        """
        if now - self.counted >= LOST:
            self.counted, self.starts = now, self.starts + 1
        return self.starts <= STARTS

    def end(self, future: Future[Json]) -> None:
        """Passes the scheduler's answer on."""
        if self.answer.done():
            return
        if future.cancelled():
            self.answer.cancel()
            self.answer.set_running_or_notify_cancel()
        elif error := future.exception():
            self.answer.set_exception(error)
        else:
            self.answer.set_result(future.result())


def _aside(call: Callable[[], object]) -> None:
    """Calls what Dask's own thread could not wait for."""
    threading.Thread(target=call, daemon=True).start()


class Cluster:
    """An executor on a Dask client."""

    def __init__(self, option: ClusterOption, jobs: int | None = None) -> None:
        self._option, self._jobs = option, jobs
        if option.where in QUEUES or option.where == KUBERNETES:
            if jobs is None:
                raise UserError(
                    "expected ",
                    RunOption("jobs", "N"),
                    ", how many workers are wanted",
                    about=(RunOption("cluster"), f" {option.where}"),
                )
        elif jobs is not None:
            raise UserError(
                "a cluster that is there has the workers it has; drop ",
                RunOption("jobs"),
                about=(RunOption("cluster"), f" {option.where}"),
            )
        try:
            import distributed
        except ImportError as error:
            raise UserError(
                f"{error}; {NEEDED}", about=(RunOption("cluster"), f" {option.where}")
            ) from None
        self._dask = distributed
        self._open = ExitStack()
        self._topic = f"pagewalk-{uuid.uuid4().hex}"
        self._handed: dict[int, _Handed] = {}
        self._numbers = itertools.count()
        self._client: Any = None
        self._executor: Any = None
        self._why = ""

    def __enter__(self) -> Cluster:
        self.connect()
        return self

    def connect(self) -> None:
        """Makes the cluster, or finds it, if that has not been done."""
        if self._client is not None:
            return
        # We report each error ourselves, once.
        ours = (f"distributed.{part}" for part in ("batched", "client", "comm", "core", "utils"))
        for name in (*ours, "asyncio", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        where = self._cluster()
        try:
            self._client = self._open.enter_context(
                self._dask.Client(where, timeout=CONNECT_SECONDS, set_as_default=False)
            )
        except (OSError, ValueError) as error:
            self._open.close()
            raise Failure(
                f"there is no Dask scheduler at {self._option.where} ({error}); start one with "
                "'dask scheduler', and workers with 'dask worker'"
            ) from None
        self._client.subscribe_topic(self._topic, self._hear)
        # A worker that dies is a batch that another simulates.
        self._executor = self._client.get_executor(pure=False)

    def _cluster(self) -> Any:
        """The address, or the cluster object, that a client connects to."""
        if "://" in self._option.where:
            return self._option.where
        assert self._jobs is not None
        if self._option.where == KUBERNETES:
            from dask_kubernetes.operator import KubeCluster

            spec = pods(self._option, self._jobs)
            try:
                return self._open.enter_context(KubeCluster(custom_cluster_spec=spec))
            except Exception as error:
                raise Failure(
                    f"no cluster was made: {error}", about=(RunOption("cluster"), f" {KUBERNETES}")
                ) from None
        import dask

        # Jobs that end by their walltime are no fault of a batch: `_Handed` counts instead of Dask.
        with dask.config.set({"distributed.scheduler.allowed-failures": sys.maxsize}):
            made = self._open.enter_context(queue(self._option))
        try:
            Jobs(made, self._option.where, self._give_up).submit(self._jobs)
        except BaseException:
            self._open.close()
            raise
        return made

    def _give_up(self, why: str) -> None:
        """Ends all that waits, with the reason. Dask calls it in its own thread."""
        self._why = why
        _aside(partial(self._executor.shutdown, wait=False))

    def _hear(self, event: tuple[float, Any]) -> None:
        number, share = event[1]
        handed = self._handed.get(number)
        if handed is None:
            return
        if share is not None:
            handed.on_progress(share)
        elif not handed.begin(event[0]) and not handed.answer.done():
            handed.answer.set_exception(_Died())
            if handed.future is not None:
                _aside(handed.future.cancel)

    def _workers(self) -> list[Json]:
        with suppress(OSError, ValueError):
            # A client that has lost its scheduler knows of nothing.
            return list(self._client.scheduler_info(n_workers=-1).get("workers", {}).values())
        return []

    @property
    def empty(self) -> bool:
        """True if there is no worker."""
        return not self._workers()

    @property
    def where(self) -> str:
        """The address or system, without options."""
        return self._option.where

    @property
    def slots(self) -> int:
        """Threads of all workers, or at least the requested number."""
        threads = sum(int(worker["nthreads"]) for worker in self._workers())
        return max(1, self._jobs or 0, threads)

    @property
    def width(self) -> int:
        """Twice the slots, so that no worker waits for its next batch."""
        return 2 * self.slots

    def share(self) -> float:
        """All of a core: the load of other hosts is not known."""
        return 1.0

    def _memories(self) -> list[float]:
        """The memory resource of each worker; empty where one has none."""
        found = [worker["resources"].get(MEMORY) for worker in self._workers()]
        return [] if None in found else found

    def fits(self, _batch: Batch, _handed: Sequence[Batch]) -> bool:
        """Always true: the scheduler holds batches until a worker has memory for them."""
        return True

    def refuses(self, batch: Batch) -> str:
        """The reason if the batch needs more memory than any worker has, else empty."""
        return self.lacks(batch.memory)

    def lacks(self, memory: int) -> str:
        """The reason if no worker declares so many bytes of memory, else empty."""
        most = max(self._memories(), default=None)
        if most is None or memory <= most:
            return ""
        return (
            f"it needs about {size(memory)} of the host, and no worker of the cluster has "
            f"more than {size(int(most))} (resource '{MEMORY}'); start one that has"
        )

    def submit(self, order: Json, batch: Batch, on_progress: OnProgress) -> Future[Json]:
        """Hands a batch to the scheduler."""
        return self.hand(order, batch.memory, on_progress)

    def hand(self, order: Json, memory: int, on_progress: OnProgress) -> Future[Json]:
        """Submits an order that needs `memory` bytes of a worker's host."""
        number = next(self._numbers)
        handed = self._handed[number] = _Handed(on_progress)
        hints: Json = {"resources": {MEMORY: memory}} if self._memories() else {}
        handed.future = self._executor.submit(_on_worker, order, self._topic, number, **hints)
        handed.future.add_done_callback(partial(self._end, number))
        return handed.answer

    def _end(self, number: int, future: Future[Json]) -> None:
        self._handed.pop(number).end(future)

    def gone(self, error: BaseException | None = None) -> str:
        """A message if nothing more can run, by the error or the client's state; else empty."""
        if self._why:
            return self._why
        lost = isinstance(error, CancelledError)
        if lost or self._client.status not in ("running", *([] if error else ["connecting"])):
            return f"the scheduler at {self._option.where} is gone"
        return ""

    def lost(self, error: BaseException) -> str:
        """A message with a remedy if the scheduler is gone, else empty."""
        gone = self.gone(error)
        again = "" if self._why else "start it again, and "
        return gone and f"{gone}; what has finished is kept: {again}repeat the command"

    def why(self, error: BaseException) -> str:
        """The error of a worker or of the scheduler, in words."""
        name = type(error).__name__
        if isinstance(error, _Died) or name == "KilledWorker":
            ended = ", or its job ended by the walltime" if self._option.where in QUEUES else ""
            return f"each worker that simulated it died (killed, or out of host memory{ended}?)"
        if isinstance(error, ModuleNotFoundError):
            return f"a worker cannot import pagewalk ({error}); install the same there as here"
        return f"{name}: {error}"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the cluster, and ends one that was made."""
        with suppress(Exception):
            self._executor.shutdown(wait=False)
        with suppress(Exception):
            self._open.close()
