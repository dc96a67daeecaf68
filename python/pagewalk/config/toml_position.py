"""The position of a key in a TOML file, for messages.

A mistake is a `UserError` whose sentence begins with the key, dotted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pagewalk.config.config import parse
from pagewalk.errors import UserError


def placed(error: UserError, file: Path, text: str) -> UserError:
    """The error with its file before it, and its line if the key is in the file."""
    message = str(error)
    if message.startswith(f"{file}:"):
        return error
    found = [
        (len(key), -line)
        for key, line in lines(text)
        if message.startswith(key) and not re.match(r"[\w-]", message[len(key) :])
    ]
    if not found:
        return error.at(str(file))
    # The longest key, where it is first.
    return error.at(f"{file}:{-max(found)[1]}")


def lines(text: str) -> Iterator[tuple[str, int]]:
    """Every key of a TOML file, dotted, with the line on which its statement begins."""
    header: list[str] = []
    statement, first = "", 1
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not statement:
            first = number
        statement += line
        try:
            fields = parse(statement)
        except ValueError:
            # A text or a list continues on the next line.
            continue
        is_header, statement = statement.lstrip().startswith("["), ""
        paths = list(_paths(fields, []))
        if is_header and paths:
            header = max(paths, key=len)
            yield from ((".".join(header[: n + 1]), first) for n in range(len(header)))
        elif not is_header:
            for path in paths:
                yield ".".join([*header, *path]), first


def _paths(fields: object, before: list[str]) -> Iterator[list[str]]:
    if not isinstance(fields, dict):
        return
    for key, value in fields.items():
        yield [*before, key]
        yield from _paths(value, [*before, key])
