"""Standard output and standard error, which may be closed, full or gone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from pagewalk.errors import Failure


class OutputLost(Failure):
    """Standard output has failed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"could not write to standard output: {reason(error)}; send it elsewhere")
        self.reader_left = isinstance(error, BrokenPipeError)
        """True if the reader has closed the pipe, as ``head`` does."""


def reason(error: OSError) -> str:
    """The reason of a failed write, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space is left on the device"
    if error.errno == errno.EBADF:
        return "it is closed"
    return (error.strerror or str(error)).lower()


@contextmanager
def guarded() -> Iterator[None]:
    """Raises `OutputLost` if standard output fails, and ignores failures of standard error.

    A failed stream is redirected to /dev/null. So buffered text, other libraries and Python's own
    shutdown find a stream that works.
    """
    before = sys.stdout, sys.stderr
    _occupy(0, os.O_RDONLY)
    # Open for reading only, so that writing fails as it does on a closed one.
    closed = _occupy(1, os.O_RDONLY)
    _occupy(2, os.O_WRONLY)
    out = before[0] or os.fdopen(closed, "w", encoding="utf-8", closefd=False)
    error = before[1] or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (out, error):
        # A terminal that cannot show a bar's character gets another one.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    sys.stdout = cast("TextIO", _Guarded(out, raises=True))
    sys.stderr = cast("TextIO", _Guarded(error, raises=False))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _occupy(number: int, mode: int) -> int:
    """Opens /dev/null for a closed standard stream: the next file would take its number."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, mode)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        # A simulated program inherits it.
        os.set_inheritable(number, True)
    return number


def lose(stream: Any) -> None:
    """Redirects a stream to /dev/null."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Guarded:
    """A stream whose write errors raise `OutputLost` if `raises` is true, and else are ignored."""

    def __init__(self, stream: TextIO, *, raises: bool) -> None:
        self._stream = stream
        self._raises = raises

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._lost(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def writelines(self, lines: list[str]) -> None:
        for text in lines:
            self.write(text)

    def _lost(self, error: OSError) -> None:
        lose(self._stream)
        if self._raises:
            raise OutputLost(error) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
