"""The border to the engine: JSON in and out, errors translated.

A simulation runs in a thread of its own without Python's lock, so that the
main thread can draw progress and take Ctrl-C.
"""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from pagewalk.errors import Failure, UserError

if TYPE_CHECKING:
    from pagewalk.custom import Streams

Json = dict[str, Any]
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


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the engine and reads its JSON."""
    native = engine()
    try:
        answer = getattr(native, name)(*arguments)
    except native.UserError as error:
        raise UserError(str(error)) from None
    except native.Failure as error:
        raise Failure(str(error)) from None
    return None if answer is None else json.loads(answer)


def version() -> str:
    """The version of engine and package, which are one."""
    return str(engine().version())


def run(spec: Json, observer: Observer | None = None) -> Json:
    """Simulates what `spec` describes; a first Ctrl-C gives the result up to there."""
    return _watched(lambda progress: call("run", json.dumps(spec), progress), observer)


def run_custom(spec: Json, streams: Streams, observer: Observer | None = None) -> Json:
    """The same for a program of the user's own."""
    of = (streams.name, streams.pulls(), streams.mappings, streams.dependences)
    return _watched(lambda progress: call("run_custom", json.dumps(spec), *of, progress), observer)


def record(spec: Json, out: str, observer: Observer | None = None) -> Json:
    """Writes the stream of a source into a trace."""
    return _watched(lambda progress: call("record", json.dumps(spec), out, progress), observer)


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
