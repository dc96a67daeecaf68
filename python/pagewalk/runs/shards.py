"""Shards: parts of a recording's samples that a cluster simulates for one run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.config import options
from pagewalk.config.config import file_of, is_path, read, variant
from pagewalk.errors import RunOption, UserError
from pagewalk.runs.batch import DESIGN_MEMORY
from pagewalk.runs.plan import Program, write_config
from pagewalk.view.escape import visible
from pagewalk.view.output import reason

if TYPE_CHECKING:
    from pagewalk.runs.cluster import Cluster

Json = dict[str, Any]

LOOK = 2.0
"""Seconds between checks for workers."""
PATIENCE = 15
"""Checks without a worker before the user is warned."""
ENDS = 1 << 20
"""Bytes at each end of a trace that identify it."""


class Hosts:
    """Submits the engine's shards to a cluster and returns their events: see `native.Hosts`.

    The cluster is connected to, or made, with the first shard, after all checks of the
    specification. `say` gets a sentence for the user.
    """

    def __init__(self, cluster: Cluster, say: Callable[[str], None] = lambda _: None) -> None:
        self._cluster = cluster
        self._say = say
        self._look_at = 0.0
        # Consecutive checks without a worker.
        self._empty = 0
        self._lock = threading.Lock()
        self._shares: dict[int, float] = {}
        self._pending: dict[int, Future[Json]] = {}
        self._failed: dict[int, str] = {}
        self._of = 0

    def begin(self, text: str, numbers: list[int], of: int) -> None:
        """Submits shards."""
        self._cluster.connect()
        spec = json.loads(text)
        order = {"model": native.model_version(), "files": _files(spec), "of": of, **_same(spec)}
        memory = Program("").memory + DESIGN_MEMORY * _designs(spec)
        if lacks := self._cluster.lacks(memory):
            raise UserError(f"a shard of the samples: {lacks}", about=RunOption("cluster"))
        with self._lock:
            self._shares.clear()
        self._of = of
        # A thread of a worker has one core.
        spec["host_threads"] = 1
        for number in numbers:
            shard = {**order, "spec": spec, "shard": number}
            on_progress = partial(self._set_share, number)
            try:
                self._pending[number] = self._cluster.hand(shard, memory, on_progress)
            except Exception as error:
                # A client that has lost its scheduler takes nothing.
                self._failed[number] = self._cluster.gone(error) or self._cluster.why(error)

    def _set_share(self, number: int, share: float) -> None:
        with self._lock:
            self._shares[number] = share

    def events(self) -> list[tuple[int, str, Any]]:
        """Remote events since the last call.

        Raises `UserError` for an error that every other worker would have, too.
        """
        self._look_for_workers()
        with self._lock:
            shares, self._shares = self._shares, {}
        found: list[tuple[int, str, Any]] = [
            (number, "share", share) for number, share in shares.items() if number in self._pending
        ]
        for number in [n for n, future in self._pending.items() if future.done()]:
            found.append((number, *self._end(number, self._pending.pop(number))))
        if gone := self._cluster.gone():
            # Shards that were submitted while the scheduler went away never end.
            self._failed |= dict.fromkeys(self._pending, gone)
            self._pending.clear()
        found += [(number, "failed", why) for number, why in self._failed.items()]
        self._failed.clear()
        return found

    def _look_for_workers(self) -> None:
        """Warns if no worker comes: a job that the batch system refuses gives no sign."""
        now = time.monotonic()
        if not self._pending or now < self._look_at:
            return
        self._look_at = now + LOOK
        self._empty = self._empty + 1 if self._cluster.empty else 0
        if self._empty == PATIENCE:
            self._say(
                f"--cluster {self._cluster.where}: there has been no worker for "
                f"{LOOK * PATIENCE:.0f} s, and {len(self._pending)} shards of the samples wait "
                "for one: the queue of the batch system, or a worker's log, says why (Ctrl-C ends "
                "this command)"
            )

    def _end(self, number: int, future: Future[Json]) -> tuple[str, str]:
        try:
            report = future.result()
        except BaseException as error:
            return "failed", self._cluster.gone(error) or self._cluster.why(error)
        why = report["error"]
        if why is None:
            return "ended", report["shard"]
        if not report["refused"]:
            return "failed", why
        raise UserError(
            f"shard {number + 1} of {self._of}, on a worker: {why}", about=RunOption("cluster")
        )


@contextmanager
def hosts(cluster: str | None, jobs: int | None, spec: Json) -> Iterator[Hosts | None]:
    """The workers of ``--cluster`` for a run; None for this host alone.

    Raises `UserError` for a run that cannot be split into shards, or an invalid value.
    """
    if cluster is None:
        yield None
        return
    from pagewalk.runs.cluster import Cluster, ClusterOption

    option = ClusterOption.read(options.read("cluster", cluster))
    if option is None:
        yield None
        return
    trace = (spec["source"] or {}).get("trace")
    if trace is None:
        raise UserError(
            "other hosts simulate samples of a recording; expected ",
            RunOption("trace", "FILE"),
            " ('pagewalk record' makes one of any program)",
            about=RunOption("cluster"),
        )
    # Jobs of a batch system are meant, not threads of this host.
    spec["host_threads"] = None
    trace["path"] = str(Path(trace["path"]).absolute())
    with closing(Cluster(option, jobs)) as there:
        yield Hosts(there, _say)


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"warning: {visible(text)}\n")


def _designs(spec: Json) -> int:
    machines = spec["machine"]
    on = len(machines) if isinstance(machines, list) else 1
    return on * (len(spec["designs"]) + bool(spec.get("translation_cost")))


def _files(spec: Json) -> list[tuple[str, str, str]]:
    """Designs and machines that are files: the name as given, the label, and the text."""
    machines = spec["machine"]
    names = {variant(design)[0] for design in spec["designs"]}
    names |= set(machines if isinstance(machines, list) else [machines])
    return [(name, Path(name).stem, _text(Path(name))) for name in sorted(names) if is_path(name)]


def _text(path: Path) -> str:
    """The text of a file, with the absolute path of its base."""
    if not path.is_file():
        raise UserError(
            f"{path} can be read only once; expected a file", about=RunOption("cluster")
        )
    return file_of(read(path))


def _trace(spec: Json) -> str:
    path = spec["source"]["trace"]["path"]
    return path if isinstance(path, str) else os.fsdecode(bytes(path["bytes"]))


def _content(trace: Path) -> str:
    """A hash of a trace's length and both its ends, one of which has the index."""
    with trace.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        code = hashlib.blake2b(str(length).encode(), digest_size=16)
        for at in (0, max(0, length - ENDS)):
            file.seek(at)
            code.update(file.read(ENDS))
    return code.hexdigest()


def _same(spec: Json) -> Json:
    """Hashes that must be equal on every host that simulates a specification."""
    configs = json.dumps([one["config"] for one in native.resolved(spec)], sort_keys=True)
    return {
        "configs": hashlib.blake2b(configs.encode(), digest_size=16).hexdigest(),
        "trace": _content(Path(_trace(spec))),
    }


def differs(order: Json, spec: Json) -> str:
    """The reason if a specification differs from that of the ordering host, else empty."""
    path = _trace(spec)
    try:
        here = _same(spec)
    except OSError as error:
        return f"'{path}' cannot be read ({reason(error)}); expected the trace at the same path"
    if here["trace"] != order["trace"]:
        return f"'{path}' is another trace; expected the same file at the same path"
    if here["configs"] != order["configs"]:
        return (
            "a design or the machine is another one: expected the same Pagewalk, and the same "
            "files that those of designs begin with"
        )
    return ""


def on_worker(order: Json, folder: Path) -> Json:
    """The specification of an order with the files that came with it, as they lie here."""
    here = {name: str(write_config(label, text, folder)) for name, label, text in order["files"]}
    spec: Json = order["spec"]

    def found(name: str) -> str:
        base, changes = variant(name)
        return name if base not in here else here[base] + (f"[{changes}]" if changes else "")

    machines = spec["machine"]
    on = [found(m) for m in machines] if isinstance(machines, list) else found(machines)
    return {**spec, "designs": [found(d) for d in spec["designs"]], "machine": on}
