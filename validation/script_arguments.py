"""What the scripts here are asked for on their command lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

NONE = "-"
"""In the place of names: nothing is run, and what is kept is told."""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Of a script whose text begins with what it does; it may write a page."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else "")
    made.add_argument("--write", action="store_true")
    return made


def names(
    parser: argparse.ArgumentParser, flag: str, given: str, known: Iterable[str]
) -> list[str]:
    """Those with commas between them; one that is not known ends the script."""
    chosen, expected = given.split(","), list(known)
    if unknown := [name for name in chosen if name not in expected]:
        parser.error(f"{flag} {','.join(unknown)}: expected some of {', '.join(expected)}")
    return chosen


def again(doc: str | None, known: Iterable[str]) -> tuple[list[str], bool]:
    """What to run again of all that is kept, and whether to write the page."""
    every, made = list(known), parser(doc)
    made.add_argument(
        "--only", default=",".join(every), help=f"programs, with commas; {NONE} for none"
    )
    arguments = made.parse_args()
    chosen = [] if arguments.only == NONE else names(made, "--only", arguments.only, every)
    return chosen, arguments.write
