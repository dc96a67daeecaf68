"""A process that simulates batches of runs, one after the other; spoken to in lines of JSON.

It reads what to do from its standard input and tells what became of it on its standard
output. It ends when its standard input does: it does not outlive who started it.
"""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import sys
import threading
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from pagewalk import native, scratch
from pagewalk.errors import PagewalkError
from pagewalk.runs.cache import Cache
from pagewalk.runs.plan import place

Json = dict[str, Any]


LARGE = 1 << 20
"""KiB of memory after which a process takes no other batch."""


class _Reporter:
    """Tells progress, not oftener than somebody can look."""

    def __init__(self) -> None:
        self._last = 0.0

    def update(self, progress: Json) -> None:
        now = time.monotonic()
        if now - self._last >= 0.2:
            self._last = now
            say({"done": progress["done"], "total": progress["total"]})

    def stopping(self, number: int) -> None:
        pass


def say(message: Json) -> None:
    """Tells the parent something."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Simulates batches and keeps each design's result."""
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
        # What a large program leaves behind is the next one's no more.
        another = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < LARGE
        say({"finished": another})


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    # Whoever gave orders is gone.
    os._exit(1)


def _simulate(order: Json) -> str:
    """Does so; returns why runs have no result, empty where all have one."""
    if order["model"] != native.model_version():
        return (
            f"the worker's pagewalk has model version {native.model_version()}, that of who asks "
            f"{order['model']}; install the same on both"
        )
    cache = Cache(Path(order["cache"]), make=False)
    shared = cache.is_of(order["mark"])
    runs = list(zip(order["keys"], order["designs"], strict=True))
    with ExitStack() as claimed:
        if shared:
            runs = [run for run in runs if _claim(run[0], cache, order, claimed)]
        return _run(order, runs, cache if shared else None) if runs else ""


def _claim(key: str, cache: Cache, order: Json, claimed: ExitStack) -> bool:
    """Whether a run is ours to simulate; says what is with it where it is not."""
    if not claimed.enter_context(cache.claimed(key)):
        say({"elsewhere": key})
        return False
    # Somebody may have finished it since it was planned.
    if not order["fresh"] and cache.read(key) is not None:
        say({"there": key})
        return False
    return True


def _run(order: Json, runs: list[tuple[str, Json]], cache: Cache | None) -> str:
    # Who has started this process may have a folder that outlives it.
    given = order.get("folder")
    with nullcontext(Path(given)) if given else scratch.folder() as folder:
        designs = [str(place(one["label"], one["text"], folder)) for _, one in runs]
        data = native.run({**order["spec"], "designs": designs}, _Reporter())
    told = {key: data[key] for key in ("version", "seed", "source", "machine", "limits")}
    for (key, _), design in zip(runs, data["designs"], strict=True):
        if design["status"] == "partial":
            return "the run was stopped before its end"
        result = {
            "name": f"{data['source']['name']}, {design['name']}",
            **told,
            "warnings": data["warnings"],
            "host": data["host"],
            "design": design,
        }
        unkept = ""
        if cache is not None:
            try:
                cache.write(key, result)
            except PagewalkError as error:
                # What has been computed is not lost: the parent has it at least.
                unkept = str(error)
            else:
                say({"kept": key})
                continue
        say({"unkept": unkept, "key": key, "result": {"key": key, **result}})
    return ""


if __name__ == "__main__":
    main()
