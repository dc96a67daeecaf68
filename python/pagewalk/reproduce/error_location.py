"""File and line of errors in the Python files of a paper."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pagewalk.errors import Failure, UserError


class Placed(UserError):
    """An error whose sentence begins with its file and line."""


@contextmanager
def on(folder: Path) -> Iterator[None]:
    """Turns an exception whose traceback has a file of the folder into a `Placed` error.

    Other exceptions pass unchanged.
    """
    try:
        yield
    except (Failure, Placed):
        raise
    except Exception as error:
        place = _place(error, folder.resolve())
        if place is None:
            raise
        what = str(error)
        if not isinstance(error, UserError):
            what = f"{type(error).__name__}: {what}" if what else type(error).__name__
        raise Placed(f"{place}: {what}") from error


def _place(error: Exception, folder: Path) -> str | None:
    """The innermost line of the folder's files in the traceback."""
    if isinstance(error, SyntaxError) and error.filename and _within(error.filename, folder):
        return f"{error.filename}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if _within(frame.filename, folder):
            return f"{frame.filename}:{frame.lineno}"
    return None


def _within(file: str, folder: Path) -> bool:
    return Path(file).parent == folder
