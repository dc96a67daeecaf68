"""Writing results so that a file is either whole or not there."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from pagewalk.errors import Failure, UserError, Words
from pagewalk.view.output import OutputLost, lose, reason

LONGEST = 200
"""Longest name, in bytes, that a file's name may contain: file systems allow 255 bytes."""


def can_name(text: str) -> bool:
    """True if the text and an ending can be the name of a file in a folder."""
    return "/" not in text and "\0" not in text and 0 < len(text.encode()) <= LONGEST


def there(name: str | os.PathLike[str]) -> bool:
    """True if there is a file or a folder of this name, however long the name is."""
    return _mode(name) is not None


def is_file(name: str | os.PathLike[str]) -> bool:
    """True if there is a regular file of this name, however long the name is."""
    mode = _mode(name)
    return mode is not None and stat.S_ISREG(mode)


def is_pipe(name: str | os.PathLike[str]) -> bool:
    """True for a named pipe and a shell's ``<(…)``: it can be read once, and may have to wait."""
    mode = _mode(name)
    return mode is not None and stat.S_ISFIFO(mode)


def refuse_pipe(path: str | os.PathLike[str], about: Words, reader: str) -> None:
    """Raises `UserError` for a pipe where `reader` reads a trace more than once."""
    if is_pipe(path):
        raise UserError(
            f"'{path}' is a pipe (FIFO), and {reader} reads a trace more than once; "
            f"write it to a file first: cat {path} > FILE",
            about=about,
        )


def _mode(name: str | os.PathLike[str]) -> int | None:
    try:
        return Path(name).stat().st_mode
    except (OSError, ValueError):
        return None


def naming(given: str, fits: object, refusal: str) -> str:
    """The name, if it fits and can name a file. Raises `UserError` with the refusal otherwise."""
    if not (fits and can_name(given)):
        raise UserError(refusal)
    return given


def check_writable(path: str, flag: str) -> None:
    """Refuses a place where nothing can be written, before a long run starts."""
    if path == "-":
        return
    target = Path(path)
    if target.is_dir():
        raise UserError(f"{flag}: '{path}' is a folder; give the name of a file in it")
    folder = target.parent
    if not folder.is_dir():
        raise UserError(f"{flag}: there is no folder '{folder}'; create it or name another")
    if special(target):
        if not os.access(target, os.W_OK):
            raise UserError(f"{flag}: '{target}' is not writable; name another file")
        return
    # A link keeps pointing where it points, so the file is made beside its target.
    _try(target.resolve().parent, flag)


def check_folder(folder: Path, flag: str) -> None:
    """Refuses a file where a folder is expected, and a place where no file can be made."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{flag}: '{folder}' is a file; name a folder")
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    if not there.is_dir():
        raise UserError(f"{flag}: '{there}' is a file; name a folder")
    _try(there, flag)


def _try(folder: Path, flag: str) -> None:
    """Makes and removes a file: permissions do not tell for all file systems."""
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{flag}: no file can be made in '{folder}' ({reason(error)}); name another folder"
        ) from None


def write(path: str, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Writes `content` to `path` (``-`` is standard output), whole or not at all.

    Raises `Failure` when the disk is full or the place is gone, and `OutputLost`
    when standard output is.
    """
    produce = content if callable(content) else lambda out: _put(out, content)
    if path == "-":
        sys.stdout.flush()
        try:
            produce(sys.stdout.buffer)
            sys.stdout.buffer.flush()
        except OSError as error:
            lose(sys.stdout)
            raise OutputLost(error) from None
        return
    try:
        if special(Path(path)):
            # A device or a pipe is written, not replaced.
            with Path(path).open("wb") as out:
                produce(out)
        else:
            _replace(Path(path), produce)
    except OSError as error:
        raise Failure(
            f"could not write '{path}': {reason(error)}; no file was left behind"
        ) from None


_MOST_NAME = 60
"""Characters of a file's name in the name of its partial file: 255 bytes are allowed."""


def _put(out: BinaryIO, content: bytes) -> None:
    out.write(content)


def special(path: Path) -> bool:
    """True for a device or a pipe, which is written and not replaced."""
    return path.exists() and not path.is_file()


def _replace(path: Path, produce: Callable[[BinaryIO], None]) -> None:
    # A link keeps pointing where it points.
    path = path.resolve()
    import tempfile

    # The name is unique, and its ending marks what a killed process leaves behind.
    handle, name = tempfile.mkstemp(
        prefix=f".{path.name[:_MOST_NAME]}.", suffix=".partial", dir=path.parent
    )
    try:
        with os.fdopen(handle, "wb") as out:
            produce(out)
            out.flush()
            # A full disk may show only when the data goes out.
            os.fsync(out.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
