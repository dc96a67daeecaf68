"""A process that simulates one batch of runs; spoken to in lines of JSON.

It reads what to do from its standard input and tells progress on its standard
output. It ends when its standard input does: it does not outlive who started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.errors import PagewalkError
from pagewalk.runs.cache import Cache

Json = dict[str, Any]


class _Reporter:
    def update(self, progress: Json) -> None:
        say(
            {
                "done": progress["done"],
                "total": progress["total"],
                "phase": progress["phase"],
            }
        )

    def stopping(self, number: int) -> None:
        pass


def say(message: Json) -> None:
    """Tells the parent something."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Simulates a batch and keeps each design's result."""
    # A Ctrl-C reaches the whole process group; the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        data = native.run(job["spec"], _Reporter())
    except PagewalkError as error:
        say({"error": str(error)})
        return
    cache = Cache(Path(job["cache"]), make=False)
    shared = {key: data[key] for key in ("version", "seed", "source", "machine", "limits")}
    for key, design in zip(job["keys"], data["designs"], strict=True):
        if design["status"] == "partial":
            say({"error": "the run was stopped before its end"})
            return
        kept = {
            "name": f"{data['source']['name']}, {design['name']}",
            **shared,
            "warnings": data["warnings"],
            "host": data["host"],
            "design": design,
        }
        try:
            cache.write(key, kept)
        except PagewalkError as error:
            # What has been computed is not lost: the parent has it at least for its figures.
            say({"unkept": str(error), "key": key, "result": {"key": key, **kept}})
    say({"finished": data["host"]})


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
