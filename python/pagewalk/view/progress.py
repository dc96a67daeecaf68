"""The progress bar: on standard error, for a person, on anything over two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from pagewalk.view.escape import visible
from pagewalk.view.quantities import count, duration

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from pagewalk import engine_types

PATIENCE = 2.0
"""Seconds that pass without a bar."""


class Bar:
    """Shows the progress of a simulation; silent when standard error is no terminal.

    It is also silent if it is not `alone`: a simulated program writes to the terminal, too.
    After a stop it prints that a result follows, if the caller `reports` one. With `shown` false,
    there is no bar.
    """

    def __init__(self, *, alone: bool = True, reports: bool = True, shown: bool = True) -> None:
        self._start = time.monotonic()
        self._terminal = shown and sys.stderr is not None and sys.stderr.isatty()
        self._reports = reports
        self._visible = self._terminal and alone
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._phase = ""
        self._closed = False
        self.stopped_by = 0
        """The signal that requested a stop, 0 without one."""
        # Time and work at the start of the present phase, for its speed.
        self._origin = (0.0, 0.0)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()

    def update(self, progress: engine_types.Progress) -> None:
        """Takes the engine's report of its progress."""
        with self._lock:
            now = time.monotonic()
            done, total = progress["done"], progress["total"]
            if progress["phase"] != self._phase:
                self._phase = progress["phase"]
                self._origin = (now, done)
            if self._closed or not self._visible or now - self._start < PATIENCE:
                return
            bar, task = self._open()
            seconds = now - self._origin[0]
            speed = (done - self._origin[1]) / seconds if seconds > 0.5 else 0.0
            left = (total - done) / speed if total and speed > 0 else None
            bar.update(
                task,
                completed=done,
                total=total,
                phase=visible(self._phase),
                speed=f"{count(round(speed))}/s" if speed else "",
                left=f"{duration(max(left, 0))} left" if left is not None else "",
                done=f"{count(done)} of {count(total)}" if total else count(done),
            )

    def stopping(self, number: int) -> None:
        """Says that a signal, such as Ctrl-C's, was heard."""
        self.stopped_by = number
        self._phase = "stopping"
        if self._terminal:
            what = "stopping: the result so far follows" if self._reports else "stopping"
            sys.stderr.write(f"\n{what} (Ctrl-C again abandons it)\n")

    def _open(self) -> tuple[Progress, TaskID]:
        if self._bar is None or self._task is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.fields[phase]}", style="bold", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[done]}", markup=False),
                TextColumn("{task.fields[speed]}", style="cyan", markup=False),
                TextColumn("{task.fields[left]}", markup=False),
                console=Console(stderr=True),
                transient=True,
                refresh_per_second=5,
            )
            self._task = self._bar.add_task("", total=None, phase="", speed="", left="", done="")
            self._bar.start()
        return self._bar, self._task
