"""A worker process: it simulates batches of runs in turn.

It reads orders from standard input and writes messages to standard output, a line of JSON each.
It ends when its standard input ends, so it does not outlive its parent.
"""

from __future__ import annotations

import json
import os
import queue
import re
import resource
import signal
import sys
import threading
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.errors import PagewalkError
from pagewalk.host import run_folder
from pagewalk.runs.cache import Cache
from pagewalk.runs.plan import write_config
from pagewalk.runs.shards import differs, on_worker

if TYPE_CHECKING:
    from pagewalk.engine_types import Progress

Json = dict[str, Any]


LARGE = 1 << 20
"""KiB of memory after which a process takes no other batch."""


class _Reporter:
    """Reports progress to the parent, a few times a second."""

    def __init__(self) -> None:
        self._last = 0.0

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if now - self._last >= 0.2:
            self._last = now
            say({"done": progress["done"], "total": progress["total"]})

    def stopping(self, number: int) -> None:
        pass


def say(message: Json) -> None:
    """Sends a message to the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Simulates batches, and stores each design's result."""
    # A Ctrl-C reaches the whole process group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    another = True
    while another:
        order = json.loads(orders.get())
        try:
            problem = _simulate(order)
        except PagewalkError as error:
            problem = str(error)
        if problem:
            say({"error": problem})
        # After a large program a new process starts, so that its memory is returned.
        another = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < LARGE
        say({"finished": another})


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    # The parent process is gone.
    os._exit(1)


def _simulate(order: Json) -> str:
    """Does so; returns why runs have no result, empty where all have one."""
    if order["model"] != native.model_version():
        why = (
            f"the worker's pagewalk has model version {native.model_version()}, that of who asks "
            f"{order['model']}; install the same on both"
        )
        say({"refused": why})
        return ""
    if "shard" in order:
        with run_folder.folder() as folder:
            spec = on_worker(order, folder)
            if why := differs(order, spec):
                say({"refused": why})
                return ""
            say({"shard": native.run_shard(spec, order["shard"], order["of"], _Reporter())})
        return ""
    cache = Cache(Path(order["cache"]), make=False)
    shared = cache.is_of(order["mark"])
    runs: list[Json] = order["runs"]
    with ExitStack() as claimed:
        if shared:
            runs = [run for run in runs if _claim(run["key"], cache, order, claimed)]
        problems = (_run(order, some, cache if shared else None) for some in _together(runs))
        return next((problem for problem in problems if problem), "")


def _together(runs: list[Json]) -> list[list[Json]]:
    """Runs that the engine takes at once: the same designs on each machine."""
    found: dict[str, list[Json]] = {}
    for run in runs:
        found.setdefault(run["machine"], []).append(run)
    designs = [[(run["label"], run["text"]) for run in on] for on in found.values()]
    if all(one == designs[0] for one in designs[1:]):
        return [[run for on in found.values() for run in on]] if runs else []
    return list(found.values())


def _claim(key: str, cache: Cache, order: Json, claimed: ExitStack) -> bool:
    """Claims a run; reports why, and gives false, if it need not be simulated here."""
    if not claimed.enter_context(cache.claimed(key)):
        say({"elsewhere": key})
        return False
    # Another process may have finished it since it was planned.
    if not order["fresh"] and cache.read(key) is not None:
        say({"there": key})
        return False
    return True


def _by_itself(design: Json) -> Json:
    """The result of a design, without fields that depend on the other designs of its batch."""
    compared: Json = {"speedup": None, "energy_ratio": None}
    if design.get("programs"):
        compared["programs"] = [{**one, "speedup": None} for one in design["programs"]]
    if "machine" not in design:
        return {**design, **compared}
    own = {k: v for k, v in design.items() if k not in ("machine", "design", "speedup_in_time")}
    numbers = [one for one in design["summary"] if one["name"] not in native.OF_MACHINES]
    return {**own, **compared, "name": design["design"], "summary": numbers}


def _own(warnings: list[str], name: str, names: set[str]) -> list[str]:
    """The warnings that concern design `name` of a batch of `names`, without the names."""
    own = []
    for warning in warnings:
        head, found, rest = warning.partition(": ")
        named = set(re.split(", | and ", head))
        if not (found and named <= names):
            own.append(warning)
        elif name in named:
            own.append(rest)
    return own


def _run(order: Json, runs: list[Json], cache: Cache | None) -> str:
    machines = list(dict.fromkeys(run["machine"] for run in runs))
    # The parent may give a folder that outlives this process.
    given = order.get("folder")
    with nullcontext(Path(given)) if given else run_folder.folder() as folder:
        designs = [
            str(write_config(run["label"], run["text"], folder))
            for run in runs[: len(runs) // len(machines)]
        ]
        where = machines if len(machines) > 1 else machines[0]
        start = time.monotonic()
        data = native.run({**order["spec"], "machine": where, "designs": designs}, _Reporter())
        say({"engine": time.monotonic() - start})
    common = {key: data[key] for key in ("version", "seed", "source", "limits")}
    names = {design["name"] for design in data["designs"]}
    for run, whole in zip(runs, data["designs"], strict=True):
        design = _by_itself(whole)
        key = run["key"]
        if design["status"] == "partial":
            return "the run was stopped before its end"
        result = {
            "name": f"{data['source']['name']}, {design['name']}",
            **common,
            "machine": run["machine"],
            "warnings": _own(data["warnings"], whole["name"], names),
            "host": data["host"],
            "design": design,
        }
        unkept = ""
        if cache is not None:
            try:
                cache.write(key, result)
            except PagewalkError as error:
                # The result is not lost: the parent process gets it.
                unkept = str(error)
            else:
                say({"kept": key})
                continue
        say({"unkept": unkept, "key": key, "result": {"key": key, **result}})
    return ""


if __name__ == "__main__":
    main()
