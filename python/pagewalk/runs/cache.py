"""The cache of finished runs, by key: one small file each, complete or absent."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pagewalk.errors import Failure
from pagewalk.host import files
from pagewalk.measurements.design import DesignResult
from pagewalk.measurements.histograms import REPORTED
from pagewalk.view.output import reason

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the engine's result, or the error.

    A design that failed (out of memory) has a result, and `why` gives the reason.
    """

    key: str
    data: Json | None
    error: str | None = None

    @property
    def why(self) -> str:
        """The reason why there are no numbers; empty when there are."""
        if self.error is not None:
            return self.error
        design = self.result
        return "" if design.complete else design.message or design.status.replace("_", " ")

    @property
    def failed(self) -> bool:
        """True if the run has no numbers."""
        return bool(self.why)

    @property
    def broken(self) -> bool:
        """True if the cause is not the design: an error, or a program that died or ended early."""
        return self.error is not None or self.result.status in ("died", "program_error")

    @cached_property
    def result(self) -> DesignResult:
        """The design's result. Raises `KeyError` when there is none."""
        if self.data is None:
            raise KeyError(self.error)
        return DesignResult.from_json(self.data["design"])

    @cached_property
    def _statistics(self) -> dict[str, float]:
        found: dict[str, float] = {f"{s.path}.{s.name}": s.value for s in self.result.statistics}
        for h in self.result.histograms:
            parts = {f"{h.path}.{h.name}.{part}": getattr(h, part) for part in REPORTED}
            found |= {name: value for name, value in parts.items() if value is not None}
        return found

    def get(self, name: str, default: float | None = None) -> float | None:
        """A number of the summary, or a statistic by its whole path.

        A histogram has ``core.0.load_to_use.mean`` and the other numbers in `REPORTED`.
        """
        if self.data is None:
            return default
        value = self._statistics.get(name)
        if value is None:
            value = self.result.get(name)
        return default if value is None else float(value)

    @cached_property
    def _ever(self) -> dict[str, int]:
        design = {} if self.data is None else self.data["design"]
        return {f"{s['path']}.{s['name']}": s["value"] for s in design.get("since_boot", [])}

    def since_boot(self, name: str) -> float | None:
        """A statistic of the kernel or a page table since the machine booted, by its path.

        Populating memory, where page tables grow most, lies before the measured part.
        """
        value = self._ever.get(name)
        return None if value is None else float(value)

    def since_boot_of(self, first: str, last: str) -> dict[str, float]:
        """Statistics whose path starts and ends so, by the part between."""
        return {
            name[len(first) : len(name) - len(last)]: float(value)
            for name, value in self._ever.items()
            if name.startswith(first) and name.endswith(last)
        }

    def __getitem__(self, name: str) -> float:
        value = self.get(name)
        if value is None:
            raise KeyError(f"no number '{name}' in the result of {self.data and self.data['name']}")
        return value


_BAD = (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, zlib.error)
"""Exceptions from a damaged file: no gzip, no JSON, or JSON that is no result."""


def _checked(key: str, data: Json) -> Outcome:
    """A result with all fields that figures read. Raises one of `_BAD`."""
    if data["key"] != key:
        raise ValueError("it is of another run")
    outcome = Outcome(key, data)
    design = outcome.result
    numbers = [q.value for q in design.quantities if q.value is not None]
    numbers += [s.value for s in (*design.statistics, *design.since_boot)]
    numbers += [h.count for h in design.histograms]
    if not all(isinstance(number, (int, float)) for number in numbers):
        raise TypeError("a number is none")
    if (
        # One that could not finish may have no numbers.
        (design.complete and not (design.quantities and numbers))
        or not isinstance(data["name"], str)
        or not isinstance(design.status, str)
    ):
        raise TypeError("it holds no result")
    return outcome


MARK = "mark"


class Cache:
    """A folder of finished runs.

    `damaged` are files that could not be read, `unkept` says of results why they could not be
    written.
    """

    def __init__(self, folder: Path, *, make: bool = True) -> None:
        self.folder = folder
        self.damaged: list[Path] = []
        self.unkept: list[str] = []
        try:
            if make:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(
                f"could not make the folder '{folder}': {reason(error)}; name another --cache"
            ) from None

    @classmethod
    def named(cls, folder: str | os.PathLike[str] | None, *, make: bool = True) -> Cache:
        """The one that ``--cache`` names, or the user's own."""
        return cls(Path(folder) if folder else default_folder(), make=make)

    def problems(self) -> list[str]:
        """A sentence on finished runs that could not be written, if there are any."""
        if not self.unkept:
            return []
        return [
            f"{len(self.unkept)} finished runs could not be kept, and will be simulated again "
            f"({self.unkept[0]}); make room, or name another --cache"
        ]

    def mark(self) -> str:
        """A random mark that identifies this folder on other hosts; made if it is missing."""
        path = self.folder / MARK
        with suppress(OSError), path.open("x", encoding="ascii") as file:
            file.write(secrets.token_hex(8))
        try:
            return path.read_text(encoding="ascii")
        except OSError:
            return ""

    def is_of(self, mark: str) -> bool:
        """True if this is the folder with that mark."""
        try:
            return (self.folder / MARK).read_text(encoding="ascii") == mark
        except OSError:
            return False

    @contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Claims a run; false if another process holds its lock.

        The kernel lets go of the lock of a process that ends, however it does. Where the file
        system has no locks, or no room for one, the run is ours.
        """
        path = self.path(key).with_suffix(".lock")
        held: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            held = _locked(path)
        except BlockingIOError:
            yield False
            return
        except OSError:
            pass
        try:
            yield True
        finally:
            if held is not None:
                with suppress(OSError):
                    path.unlink()
                os.close(held)

    def path(self, key: str) -> Path:
        """The file for the result of a key."""
        return self.folder / key[:2] / f"{key}.json.gz"

    def read(self, key: str) -> Outcome | None:
        """A finished run, or None. An unreadable file counts as missing, and is in `damaged`."""
        path = self.path(key)
        try:
            return _checked(key, json.loads(gzip.decompress(path.read_bytes())))
        except FileNotFoundError:
            return None
        except (*_BAD, RecursionError, MemoryError):
            self.damaged.append(path)
            return None

    def write(self, key: str, data: Json) -> None:
        """Stores a finished run. Raises `Failure` when the disk is full or the folder is gone."""
        path = self.path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"could not make the folder '{path.parent}': {reason(error)}") from None
        text = json.dumps({"key": key, **data}).encode()
        files.write(str(path), gzip.compress(text, mtime=0))


def _locked(path: Path) -> int:
    """A descriptor that holds a file's lock. Raises `BlockingIOError` where another does."""
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # An earlier holder may have removed the file. The lock of a removed file is worthless.
            if path.exists() and os.fstat(lock).st_ino == path.stat().st_ino:
                return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def default_folder() -> Path:
    """The default folder of finished runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "pagewalk" / "runs"
