"""Progress of all runs together: an estimate before they start, a bar while they run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TextIO

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from pagewalk.errors import Terminated
from pagewalk.view.escape import visible
from pagewalk.view.quantities import duration
from pagewalk.view.terminal import console, line


class Bar:
    """Writes progress to a stream for people; a `Watcher` of `pagewalk.runs.scheduler`.

    After an interrupt it says what is kept, and the `command` that goes on.
    """

    def __init__(self, stream: TextIO, command: str = "the same call") -> None:
        self._out = console(stream)
        self._live = stream.isatty()
        self._missing = self._there = self._kept = 0
        self._command = command
        self._tenths = 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
        if kind in (KeyboardInterrupt, Terminated) and self._missing:
            kept, all_ = self._there + self._kept, self._there + self._missing
            said = f"{kept} of {all_} runs are kept; to go on: {self._command}"
            # One line, however long, so that it can be copied.
            self._out.print(visible(said), soft_wrap=True, markup=False, highlight=False)

    def planned(self, there: int, missing: int, seconds: float) -> None:
        """Writes the estimate."""
        self._missing, self._there = missing, there
        are = "is" if there == 1 else "are"
        if missing == 0:
            if there:
                self._out.print(f"nothing to simulate: {_runs(there)} {are} there from before")
            return
        have = f", {there} {are} there from before" if there else ""
        self._out.print(f"{_runs(missing)} to simulate{have}: about {duration(seconds)}")

    def damaged(self, paths: list[Path]) -> None:
        """Writes once that cached runs are unreadable."""
        what = (
            f"the kept run {paths[0]} cannot be read, and counts as not there"
            if len(paths) == 1
            else f"{len(paths)} kept runs cannot be read, and count as not there: {paths[0]}, …"
        )
        self._out.print(line(what, style="yellow"))

    def progress(self, share: float, left: float | None, running: list[str], done: int) -> None:
        """Moves the bar; without one, writes a line at each tenth."""
        of = f"{done} of {self._missing} runs"
        if not self._live:
            self._line(share, of, left)
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.fields[running]}", style="bold", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[done]}", markup=False),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._out,
                transient=True,
                refresh_per_second=2,
            )
            self._task = self._progress.add_task("", total=1.0, running="", done="", left="")
            self._progress.start()
        assert self._task is not None
        self._progress.update(
            self._task,
            completed=share,
            running=visible(", ".join(dict.fromkeys(running))),
            done=of,
            left=f"{duration(left)} left" if left is not None else "",
        )

    def stopped(self, kept: int) -> None:
        """Keeps the number, for the end."""
        self._kept = kept

    def _line(self, share: float, done: str, left: float | None) -> None:
        tenths = int(10 * share)
        if self._tenths < tenths < 10 and left is not None:
            self._tenths = tenths
            self._out.print(f"{done} done, about {duration(left)} left")


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


def same_command() -> str:
    """The command line of this process, which goes on where it was stopped."""
    words = [word for word in sys.argv[1:] if word != "--fresh"]
    return shlex.join(["pagewalk", *words])
