"""Temporary folders for the files of one run.

The owner of a folder holds the lock of a file in it. The kernel releases locks when a process
ends in any way. So a folder whose lock is free has no owner, and the next run removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pagewalk.errors import Failure
from pagewalk.view.output import reason

PREFIX = "pagewalk-"
LOCK = "in-use"


@contextmanager
def folder() -> Iterator[Path]:
    """A new empty folder, removed at the end. Raises `Failure` if none can be made."""
    _sweep()
    try:
        made = tempfile.TemporaryDirectory(prefix=PREFIX)
    except OSError as error:
        raise _unmade(error) from None
    with made as name:
        try:
            lock = _locked(Path(name))
        except OSError as error:
            raise _unmade(error) from None
        try:
            yield Path(name)
        finally:
            os.close(lock)


def _unmade(error: OSError) -> Failure:
    return Failure(
        f"could not make a folder for the files of this run: {reason(error)}; make room, or "
        "name another place in TMPDIR"
    )


def _locked(place: Path) -> int:
    """Makes the lock of a folder and holds it."""
    # The lock gets its name after it is held: another process could take it before.
    new = place / f"{LOCK}.new"
    lock = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    new.rename(place / LOCK)
    return lock


def _sweep() -> None:
    """Removes folders that killed runs of this user have left."""
    with suppress(OSError):
        for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            with suppress(OSError):
                if place.lstat().st_uid == os.getuid():
                    _remove_if_left(place)


def _remove_if_left(place: Path) -> None:
    lock = os.open(place / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)
