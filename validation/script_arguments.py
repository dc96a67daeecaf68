"""Command-line arguments that several validation scripts share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

NONE = "-"
"""Replaces the names: no program runs, and the script reports the kept results."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser described by the first line of the script's docstring, with `--write`."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    made.add_argument("--write", action="store_true")
    return made


def names(
    parser: argparse.ArgumentParser, flag: str, given: str, known: Iterable[str]
) -> list[str]:
    """The names between commas; an unknown name ends the script."""
    chosen, expected = given.split(","), list(known)
    if unknown := [name for name in chosen if name not in expected]:
        parser.error(f"{flag} {','.join(unknown)}: expected some of {', '.join(expected)}")
    return chosen


def again(
    doc: str | None, usual: Iterable[str], long: Iterable[str] = ()
) -> tuple[list[str], bool]:
    """The programs to run again, and True if the script writes the page.

    Those of `long` run only if they are named.
    """
    every, made = list(usual), parser(doc)
    made.add_argument(
        "--only", default=",".join(every), help=f"programs, with commas; {NONE} for none"
    )
    arguments = made.parse_args()
    chosen = (
        [] if arguments.only == NONE else names(made, "--only", arguments.only, [*every, *long])
    )
    return chosen, arguments.write
