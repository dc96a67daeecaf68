"""A batch, simulated in a process of its own: here, or where a cluster's worker runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagewalk import native

Json = dict[str, Any]

Tell = Callable[[float], None]
"""Told now and then which share of a batch is done."""


def simulate(
    order: Json,
    tell: Tell | None = None,
    started: Callable[[subprocess.Popen[str]], object] | None = None,
) -> Json:
    """Simulates a batch; returns what became of it.

    ``kept`` are the keys of runs whose results are in the cache now, ``there`` of those that had
    them before, ``elsewhere`` of those that
    somebody else simulates, ``results`` has by key what was not kept there, ``unkept`` why it could
    not be, and ``error`` is why runs have no result; the last is None where all is well.
    ``seconds`` is how long it took.
    """
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pagewalk.runs.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    )
    if started is not None:
        started(process)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    report: Json = {
        "kept": [],
        "there": [],
        "elsewhere": [],
        "results": {},
        "unkept": [],
        "error": None,
    }
    finished = False
    if tell is not None:
        tell(0.0)
    # It may have died; its end is noticed where all ends are.
    with suppress(BrokenPipeError):
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
    for line in process.stdout:
        if not line.endswith("\n"):
            break  # A worker that died in a message.
        message = json.loads(line)
        finished = finished or "finished" in message
        _hear(message, report, tell)
    said = process.stderr.read().strip()
    status = process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        # An order that a dead worker has not read is written once more.
        with suppress(BrokenPipeError):
            stream.close()
    if not finished and report["error"] is None:
        report["error"] = _why(status, said)
    report["seconds"] = time.monotonic() - start
    return report


def _hear(message: Json, report: Json, tell: Tell | None) -> None:
    for what in ("kept", "there", "elsewhere"):
        if what in message:
            report[what].append(message[what])
            return
    if "result" in message:
        report["results"][message["key"]] = message["result"]
        if message["unkept"]:
            report["unkept"].append(message["unkept"])
    elif "error" in message:
        report["error"] = message["error"]
    elif message.get("total") and tell is not None:
        tell(min(1.0, message["done"] / message["total"]))


def _why(status: int, said: str) -> str:
    if status < 0:
        return f"the simulation was killed by signal {-status} (out of host memory?)"
    return said.splitlines()[-1] if said else f"the simulation ended with status {status}"


def _environment() -> dict[str, str]:
    """The worker imports the package that runs here, installed or not."""
    package = str(Path(native.__file__).resolve().parent.parent)
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{path}" if path else package}
