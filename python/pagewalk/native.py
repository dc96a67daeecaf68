"""The border to the engine: JSON in and out, errors translated.

A simulation runs in a thread of its own without Python's lock, so that the
main thread can draw progress and take Ctrl-C.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Protocol, TypeVar

from pagewalk.errors import Failure, Terminated, UserError
from pagewalk.host import files
from pagewalk.view.escape import visible

if TYPE_CHECKING:
    from pagewalk.engine_types import (
        BlockVectors,
        Converted,
        Definitions,
        Explanation,
        HostProcessor,
        Installed,
        Key,
        Measured,
        Program,
        Progress,
        RecordResult,
        Resolved,
        RunResult,
        Shipped,
        ShortcutBuffers,
        TraceCheck,
        TraceInfo,
    )
    from pagewalk.programs.generators import Streams

Json = dict[str, Any]
P = ParamSpec("P")
Answer = TypeVar("Answer")
DATA = Path(__file__).parent / "_data"
IN_CHECKOUT = (DATA.parents[2] / "Makefile").is_file()
REPAIR = "make build" if IN_CHECKOUT else "install the wheel again (pip install --force-reinstall)"
"""Remedy for a missing file of Pagewalk's own."""

EXTENDED = "PAGEWALK_ENGINE"
"""Environment variable with the path of an engine that extends the packaged one."""

_ready = False


class Observer(Protocol):
    """An observer of a simulation."""

    def update(self, progress: Progress) -> None:
        """Called about five times a second, from another thread."""

    def stopping(self, number: int) -> None:
        """Called when a signal requests a stop."""


def _load(path: str) -> None:
    """Loads the engine at `path` in place of the packaged one. Raises `ImportError`."""
    loader = importlib.machinery.ExtensionFileLoader("pagewalk._native", path)
    spec = importlib.util.spec_from_file_location("pagewalk._native", path, loader=loader)
    if spec is None:
        raise ImportError("no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules["pagewalk._native"] = module
    import pagewalk

    pagewalk._native = module


def engine() -> ModuleType:
    """The native module, with the folder of the shipped files set."""
    global _ready  # noqa: PLW0603 - a module is loaded once
    own = os.environ.get(EXTENDED)
    try:
        if own and "pagewalk._native" not in sys.modules:
            _load(own)
        from pagewalk import _native
    except ImportError as error:
        if own:
            raise UserError(
                f"{EXTENDED}={own}: cannot be loaded as an engine ({error}); build it as "
                "examples/out_of_tree is built, or unset the variable"
            ) from None
        raise Failure(
            f"the engine pagewalk._native cannot be loaded ({error}); to have it: {REPAIR}"
        ) from None
    if not _ready:
        _native.set_data_dir(str(DATA))
        _ready = True
    return _native


class _Late:
    """The native module, loaded when something of it is first used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(engine(), name)


if TYPE_CHECKING:
    from pagewalk import _native as _engine
else:
    _engine = _Late()


def _query(function: Callable[P, str], *arguments: P.args, **named: P.kwargs) -> Any:
    """The engine's answer, decoded from JSON; its errors become `UserError` and `Failure`."""
    return json.loads(_call(function, *arguments, **named))


def _call(function: Callable[P, Answer], *arguments: P.args, **named: P.kwargs) -> Answer:
    try:
        return function(*arguments, **named)
    except _engine.UserError as error:
        raise UserError.of_engine(error.fields) from None
    except _engine.Failure as error:
        raise Failure.of_engine(error.fields) from None


def version() -> str:
    """The version of engine and package, which are one."""
    return _engine.version()


def extended() -> str | None:
    """A hash of the engine that `PAGEWALK_ENGINE` names; `None` for the packaged one."""
    own = os.environ.get(EXTENDED)
    return None if own is None else hashlib.sha256(Path(own).read_bytes()).hexdigest()


def model_version() -> int:
    """Changes whenever results do, and with nothing else."""
    return _engine.model_version()


def designs() -> list[Shipped]:
    """The shipped designs."""
    answer: list[Shipped] = _query(_engine.designs)
    return answer


def machines() -> list[Shipped]:
    """The shipped machines."""
    answer: list[Shipped] = _query(_engine.machines)
    return answer


def workloads() -> list[Program]:
    """The built-in programs."""
    answer: list[Program] = _query(_engine.workloads)
    return answer


_REPORTED = {
    "load to use latency": "load_to_use",
    "statistics of each program": "program",
}
"""Words of reports that the engine knows by another name."""


def explain(name: str) -> Explanation:
    """The definitions of a name, or the names nearest to it."""
    known = _REPORTED.get(" ".join(re.split(r"[\s_-]+", name.strip().lower())), name)
    answer: Explanation = _query(_engine.explain, visible(known))
    return answer


def topics() -> dict[str, list[str]]:
    """All names that can be explained by their kind, but for those of counters."""
    answer: dict[str, list[str]] = _query(_engine.topics)
    return answer


def nearest(given: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt one is nearest to, if any is near."""
    # The engine reads UTF-8 only.
    shown = {visible(name): name for name in names}
    found = _engine.nearest(visible(given), list(shown))
    return None if found is None else shown[found]


def suggestion(given: str, names: Iterable[str]) -> str:
    """The end of a message about a misspelt name: the nearest name, or nothing."""
    near = nearest(given, names)
    return f"; did you mean '{near}'?" if near else ""


def resolve(machine: str, design: str) -> Resolved:
    """The whole configuration of a design on a machine, both by name or file."""
    return resolved({"machine": machine, "designs": [design]})[0]


def resolved(spec: Json) -> list[Resolved]:
    """The whole configuration of each design of a run."""
    answer: list[Resolved] = _query(_engine.resolve, _spec(spec))
    return answer


def run_options() -> dict[str, str]:
    """The flags of all run options that an error of the engine can name, by name."""
    answer: dict[str, str] = _query(_engine.run_options)
    return answer


def shortcut_buffers() -> ShortcutBuffers:
    """Entries of a core's buffers for a shortcut from keys to records (STLT)."""
    answer: ShortcutBuffers = _query(_engine.shortcut_buffers)
    return answer


def statistics() -> Definitions:
    """Every number of results with unit and definition."""
    return _defined(engine())


@cache
def _defined(_engine: ModuleType) -> Definitions:
    # To find all counters takes a machine, which is made once for each engine.
    answer: Definitions = _query(_engine.statistics)
    return answer


OF_MACHINES = ("seconds", "walk_cycles_per_instruction")
"""Numbers that only results of several machines have."""
NOT_OF_INTERVALS = (
    *OF_MACHINES,
    *("table_resizes", "table_reinsertions_mean", "l2p_entries"),
)
"""Numbers that no interval has: `OF_MACHINES`, and counts of page tables since boot."""


def metrics(machines: int) -> list[str]:
    """The names of the numbers in a result's summary, in order."""
    return [name for name in _metrics(engine()) if machines > 1 or name not in OF_MACHINES]


@cache
def _metrics(_engine: ModuleType) -> tuple[str, ...]:
    return tuple(metric["name"] for metric in _defined(_engine)["metrics"])


def config_keys() -> list[Key]:
    """Every configuration key."""
    answer: list[Key] = _query(_engine.config_keys)
    return answer


def schema() -> Json:
    """JSON Schema of the configuration."""
    answer: Json = _query(_engine.schema)
    return answer


def check_config(config: Json) -> None:
    """Raises `UserError` for a whole configuration that no machine can have."""
    _call(_engine.check_config, json.dumps(config))


def result_schema() -> Json:
    """JSON Schema of a result, with all other answers among its definitions."""
    answer: Json = _query(_engine.result_schema)
    return answer


def trace_info(path: str) -> TraceInfo:
    """Counts of a trace's contents, and its header."""
    answer: TraceInfo = _query(_engine.trace_info, path)
    return answer


def trace_check(path: str) -> TraceCheck:
    """Reads a trace to its end."""
    answer: TraceCheck = _query(_engine.trace_check, path)
    return answer


def trace_convert(source: str, target: str, *, keep_good: bool = False) -> Converted:
    """Converts a trace to the format of the target's ending; returns counts of the conversion."""
    answer: Converted = _of_pipe(
        source, lambda: _query(_engine.trace_convert, source, target, keep_good)
    )
    return answer


def block_vectors(
    path: str, length: int, seed: int, observer: Observer | None = None
) -> BlockVectors | None:
    """Basic-block vectors of a trace, one for each interval of `length` instructions.

    None if a signal requested a stop.
    """
    answer: BlockVectors | None = _watched(
        lambda progress: _query(_engine.block_vectors, path, length, seed, progress),
        observer,
        files.is_pipe(path),
    )
    return answer


def host_processor() -> HostProcessor | None:
    """The processor of this host as ``cpuid`` describes it; None where there is none."""
    answer: HostProcessor | None = _query(_engine.host_processor)
    return answer


def measure_host(
    benchmarks: list[Json], rounds: int, observer: Observer | None = None
) -> list[Measured] | None:
    """Times of micro-benchmarks on this host, run in turn, `rounds` times all of them.

    None if a signal requested a stop.
    """
    text = json.dumps(benchmarks)
    answer: list[Measured] | None = _watched(
        lambda progress: _query(_engine.measure_host, text, rounds, progress), observer
    )
    return answer


def doctor() -> Installed:
    """The installed tools that the engine has found on this host."""
    answer: Installed = _query(_engine.doctor)
    return answer


_OF_THE_SYSTEM = (("trace", "path"), ("program", "argv"), ("perfetto",))
"""Places in a specification of file names and arguments, which need not be UTF-8."""


def _spec(spec: Json) -> str:
    """A specification as the engine reads it: a file or argument that is no UTF-8 as its bytes.

    Raises `UserError` for other text that is none.
    """
    return json.dumps(_bordered(spec, ()))


def _bordered(value: Any, place: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {_utf8(key, place): _bordered(one, (*place, key)) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bordered(one, place) for one in value]
    if not isinstance(value, str):
        return value
    if place[-2:] in _OF_THE_SYSTEM:
        try:
            value.encode()
        except UnicodeEncodeError:
            with suppress(UnicodeEncodeError):
                return {"bytes": list(os.fsencode(value))}
    return _utf8(value, place)


def _utf8(text: str, place: tuple[str, ...]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        what = ".".join(key for key in place if key != "source")
        raise UserError(
            f"'{visible(text)}' is not UTF-8; write it in UTF-8", about=visible(what)
        ) from None
    return text


class Hosts(Protocol):
    """Other hosts, which simulate shards of a run by `run_shard`."""

    def begin(self, text: str, numbers: list[int], of: int) -> None:
        """Starts the simulation of shards of a specification, out of `of` in all."""

    def events(self) -> list[tuple[int, str, Any]]:
        """Events of shards since the last call; the engine calls about five times a second.

        Each is ``(number, "share", 0.5)``, ``(number, "ended", text)``, or ``(number, "failed",
        why)``. This host simulates a failed shard.
        """


def run(spec: Json, observer: Observer | None = None, hosts: Hosts | None = None) -> RunResult:
    """Simulates the run of a specification; a first Ctrl-C ends it with a partial result.

    It calls the observer's `stopping`, so that the observer can inform the user.
    """
    text = _spec(spec)
    answer: RunResult = _watched(
        lambda progress: _query(_engine.run, text, progress, hosts), observer, _reads_pipe(spec)
    )
    return answer


def run_shard(spec: Json, number: int, of: int, observer: Observer | None = None) -> str:
    """Simulates a shard for the host whose `Hosts` ordered it; returns the engine's answer."""
    text = _spec(spec)
    return _watched(lambda progress: _call(_engine.run_shard, text, number, of, progress), observer)


def run_custom(spec: Json, streams: Streams, observer: Observer | None = None) -> RunResult:
    """Simulates a program of the user's own, as `run` does others."""
    text = _spec(spec)
    answer: RunResult = _watched(
        lambda progress: _query(_engine.run_custom, text, streams, progress), observer
    )
    return answer


def record(spec: Json, out: str, observer: Observer | None = None) -> RecordResult:
    """Writes the stream of a source into a trace."""
    text = _spec(spec)
    answer: RecordResult = _watched(
        lambda progress: _query(_engine.record, text, out, progress), observer, _reads_pipe(spec)
    )
    return answer


PATIENCE = 1.0
"""Seconds that a run of a pipe may take to end after a signal. The pipe's writer may be idle."""


def _reads_pipe(spec: Json) -> bool:
    """True if a run's trace is a pipe."""
    return files.is_pipe(spec["source"].get("trace", {}).get("path", "/"))


def _of_pipe(path: str, work: Callable[[], Answer]) -> Answer:
    """The answer of work that reports no progress. If it reads a pipe, a signal ends the wait."""
    return _watched(lambda _progress: work(), None, pipe=True) if files.is_pipe(path) else work()


def _watched(
    work: Callable[[Callable[[str], bool]], Answer],
    observer: Observer | None,
    pipe: bool = False,
) -> Answer:
    stop = threading.Event()
    done = threading.Event()
    outcome: list[Answer | BaseException] = []

    def progress(text: str) -> bool:
        if observer is not None:
            observer.update(json.loads(text))
        return not stop.is_set()

    def body() -> None:
        try:
            outcome.append(work(progress))
        except BaseException as error:  # handed to the caller's thread
            outcome.append(error)
        finally:
            done.set()

    stopped_by, deadline = 0, math.inf

    def leave(number: int) -> NoReturn:
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    def ask_to_stop(number: int) -> None:
        nonlocal stopped_by, deadline
        if stop.is_set():
            leave(number)
        stop.set()
        if pipe:
            stopped_by, deadline = number, time.monotonic() + PATIENCE
        if observer is not None:
            observer.stopping(number)

    # A daemon, so that a second Ctrl-C can leave it behind.
    thread = threading.Thread(target=body, name="pagewalk", daemon=True)
    with _interruptible(ask_to_stop):
        try:
            thread.start()
        except RuntimeError:
            raise Failure(
                "a thread could not be started; raise the limit of memory or of processes "
                "(ulimit -v, ulimit -u)"
            ) from None
        while not done.wait(0.1):
            if time.monotonic() > deadline:
                leave(stopped_by)
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@contextmanager
def _interruptible(ask_to_stop: Callable[[int], None]) -> Iterator[None]:
    """Ctrl-C, a polite kill and the terminal's end ask to stop; only the main thread hears them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, _frame: FrameType | None) -> None:
        ask_to_stop(number)

    heard = [signal.SIGINT, signal.SIGTERM]
    # Under nohup it is ignored, and stays so.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            # None is a handler that Python has not set and cannot name.
            signal.signal(number, signal.SIG_DFL if previous is None else previous)
