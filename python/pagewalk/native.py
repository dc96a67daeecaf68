"""The border to the engine: JSON in and out, errors translated.

A simulation runs in a thread of its own without Python's lock, so that the
main thread can draw progress and take Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from pagewalk.errors import Failure, UserError

if TYPE_CHECKING:
    from pagewalk.answers import (
        Check,
        Definitions,
        Explanation,
        Host,
        Key,
        Program,
        Resolved,
        Shipped,
    )
    from pagewalk.custom import Streams

Json = dict[str, Any]
P = ParamSpec("P")
DATA = Path(__file__).parent / "_data"

_ready = False


class Observer(Protocol):
    """Somebody who watches a simulation."""

    def update(self, progress: Json) -> None:
        """Told about five times a second, from another thread."""

    def stopping(self) -> None:
        """Told when a stop was asked for."""


def engine() -> ModuleType:
    """The native module, told where the shipped files lie."""
    global _ready  # noqa: PLW0603 - a module is loaded once
    try:
        from pagewalk import _native
    except ImportError as error:
        raise Failure(
            f"the engine pagewalk._native cannot be loaded ({error}); build it with 'make build'"
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


def _asked(question: Callable[P, str], *arguments: P.args, **named: P.kwargs) -> Any:
    """What the engine answers, read; its errors are ours."""
    try:
        answer = question(*arguments, **named)
    except _engine.UserError as error:
        raise UserError(str(error)) from None
    except _engine.Failure as error:
        raise Failure(str(error)) from None
    return json.loads(answer)


def version() -> str:
    """The version of engine and package, which are one."""
    return _engine.version()


def designs() -> list[Shipped]:
    """The shipped designs."""
    answer: list[Shipped] = _asked(_engine.designs)
    return answer


def machines() -> list[Shipped]:
    """The shipped machines."""
    answer: list[Shipped] = _asked(_engine.machines)
    return answer


def workloads() -> list[Program]:
    """The built-in programs."""
    answer: list[Program] = _asked(_engine.workloads)
    return answer


def explain(name: str) -> Explanation:
    """What a name means."""
    answer: Explanation = _asked(_engine.explain, name)
    return answer


def nearest(given: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt one is nearest to, if any is near."""
    return _engine.nearest(given, list(names))


def resolve(machine: str, design: str) -> Resolved:
    """The whole configuration of a design on a machine, both by name or file."""
    answer: list[Resolved] = _asked(
        _engine.resolve, json.dumps({"machine": machine, "designs": [design]})
    )
    return answer[0]


def shortcut_buffers() -> dict[str, int]:
    """Entries of a core's buffers for a shortcut from keys to records (STLT), by name."""
    answer: dict[str, int] = _asked(_engine.shortcut_buffers)
    return answer


def statistics() -> Definitions:
    """Every number of results with unit and definition."""
    answer: Definitions = _asked(_engine.statistics)
    return answer


def config_keys() -> list[Key]:
    """Every configuration key."""
    answer: list[Key] = _asked(_engine.config_keys)
    return answer


def schema() -> Json:
    """JSON Schema of the configuration."""
    answer: Json = _asked(_engine.schema)
    return answer


def trace_info(path: str) -> Json:
    """What is in a trace: counts, and what its header says."""
    answer: Json = _asked(_engine.trace_info, path)
    return answer


def trace_check(path: str) -> Check:
    """Reads a trace to its end."""
    answer: Check = _asked(_engine.trace_check, path)
    return answer


def trace_convert(source: str, target: str, *, keep_good: bool = False) -> Json:
    """Writes a trace in the format that the target's name ends in; what was written, and lost."""
    answer: Json = _asked(_engine.trace_convert, source, target, keep_good)
    return answer


def doctor() -> Host:
    """What is present on this host."""
    answer: Host = _asked(_engine.doctor)
    return answer


def _spec(spec: Json) -> str:
    """A specification as the engine reads it: text that is no UTF-8 goes as its bytes."""
    return json.dumps(_bordered(spec))


def _bordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bordered(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_bordered(one) for one in value]
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return {"bytes": list(os.fsencode(value))}
    return value


def run(spec: Json, observer: Observer | None = None) -> Json:
    """Simulates what `spec` describes; a first Ctrl-C gives the result up to there."""
    text = _spec(spec)
    return _watched(lambda progress: _asked(_engine.run, text, progress), observer)


def run_custom(spec: Json, streams: Streams, observer: Observer | None = None) -> Json:
    """The same for a program of the user's own."""
    text = _spec(spec)
    return _watched(lambda progress: _asked(_engine.run_custom, text, streams, progress), observer)


def record(spec: Json, out: str, observer: Observer | None = None) -> Json:
    """Writes the stream of a source into a trace."""
    text = _spec(spec)
    return _watched(lambda progress: _asked(_engine.record, text, out, progress), observer)


def _watched(work: Callable[[Callable[[str], bool]], Json], observer: Observer | None) -> Json:
    stop = threading.Event()
    done = threading.Event()
    outcome: list[Json | BaseException] = []

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

    def ask_to_stop() -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if observer is not None:
            observer.stopping()

    # A daemon, so that a second Ctrl-C can leave it behind.
    thread = threading.Thread(target=body, name="pagewalk", daemon=True)
    with _interruptible(ask_to_stop):
        thread.start()
        while not done.wait(0.1):
            pass
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


@contextmanager
def _interruptible(ask_to_stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and a polite kill ask to stop; only the main thread can hear them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(_signal: int, _frame: FrameType | None) -> None:
        ask_to_stop()

    before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
