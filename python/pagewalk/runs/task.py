"""Simulation of a batch in a process of its own, on this host or on a cluster's worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagewalk import native

Json = dict[str, Any]

OnProgress = Callable[[float], None]
"""Called from time to time with the share of a batch that is done."""


class Workers:
    """Processes that each simulate batches in turn; a failed process is not used again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[str]] = []
        self._all: set[subprocess.Popen[str]] = set()
        self._closed = False

    def simulate(self, order: Json, on_progress: OnProgress | None = None) -> Json:
        """Simulates a batch; returns its report.

        ``kept``: keys of runs whose results were stored in the cache. ``there``: keys of runs that
        had results there before. ``elsewhere``: keys of runs that other processes simulate.
        ``results``: results by key that were not stored, with the reasons in ``unkept``.
        ``error``: the reason why runs have no result, or None. ``refused``: true if the order is
        for another package version or other files. ``seconds``: time of the batch. ``engine``:
        time of the engine. ``shard``: the engine's answer, if the order was a shard of a run.
        """
        start = time.monotonic()
        report: Json = {
            **{"kept": [], "there": [], "elsewhere": []},
            **{"results": {}, "unkept": [], "error": None, "engine": 0.0, "refused": False},
        }
        process = self._process()
        if on_progress is not None:
            on_progress(0.0)
        if self._spoken(process, order, report, on_progress):
            with self._lock:
                self._idle.append(process)
        else:
            self._ended(process, report)
        report["seconds"] = time.monotonic() - start
        return report

    def _process(self) -> subprocess.Popen[str]:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.poll() is None:
                    return process
                self._all.discard(process)
        process = subprocess.Popen(
            [sys.executable, "-m", "pagewalk.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
        )
        with self._lock:
            self._all.add(process)
            if self._closed:
                process.kill()
        return process

    def _spoken(
        self,
        process: subprocess.Popen[str],
        order: Json,
        report: Json,
        on_progress: OnProgress | None,
    ) -> bool:
        """Sends an order and reads messages; true if the process takes another order."""
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that has died is noticed below, by the end of its output.
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # A worker that died in a message.
            message = json.loads(line)
            if "finished" in message:
                return bool(message["finished"])
            _hear(message, report, on_progress)
        return False

    def _ended(self, process: subprocess.Popen[str], report: Json) -> None:
        """Waits for the end of a process, and reports its error."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.read().strip()
        status = process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            # Closing flushes an order that a dead worker has not read.
            with suppress(BrokenPipeError):
                stream.close()
        with self._lock:
            self._all.discard(process)
        if status != 0 and report["error"] is None:
            report["error"] = _why(status, said)

    def close(self) -> None:
        """Ends all processes, busy ones too."""
        with self._lock:
            self._closed = True
            left = list(self._all)
            idle, self._idle = self._idle, []
        for process in left:
            with suppress(OSError):
                process.kill()
        for process in idle:
            self._ended(process, {"error": ""})


OWN = Workers()
"""The worker processes of this process; on a cluster's worker they outlive a client."""


def _hear(message: Json, report: Json, on_progress: OnProgress | None) -> None:
    for what in ("kept", "there", "elsewhere"):
        if what in message:
            report[what].append(message[what])
            return
    if "result" in message:
        report["results"][message["key"]] = message["result"]
        if message["unkept"]:
            report["unkept"].append(message["unkept"])
    elif "refused" in message:
        report["error"], report["refused"] = message["refused"], True
    elif "shard" in message:
        report["shard"] = message["shard"]
    elif "engine" in message:
        report["engine"] += message["engine"]
    elif "error" in message:
        report["error"] = message["error"]
    elif message.get("total") and on_progress is not None:
        on_progress(min(1.0, message["done"] / message["total"]))


def _why(status: int, said: str) -> str:
    if status < 0:
        return f"the simulation was killed by signal {-status} (out of host memory?)"
    return said.splitlines()[-1] if said else f"the simulation ended with status {status}"


def _environment() -> dict[str, str]:
    """The worker imports the package that runs here, installed or not."""
    package = str(Path(native.__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package}
