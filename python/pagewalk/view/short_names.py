"""Shortening of long names of designs, which stay distinct."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.cells import cell_len

_CUT = "…"


def shortened(names: Iterable[str], width: int) -> dict[str, str]:
    """A text of at most `width` cells for each name, all of them different.

    Names that fit stay. A variant, ``radix[mmu.l2.main.entries=4096]``, first loses the tables of
    its keys: ``radix[…entries=4096]``. A name that is still too long loses its middle, or, if
    names would then be equal, ends with a number.
    """
    listed = list(dict.fromkeys(names))
    short = {name: name for name in listed if cell_len(name) <= width}
    for way in (_last_keys, *_middles(width)):
        tried = {name: way(name) for name in listed if name not in short}
        texts = [*short.values(), *tried.values()]
        short |= {
            name: text
            for name, text in tried.items()
            if cell_len(text) <= width and texts.count(text) == 1
        }
    for number, name in enumerate(listed, start=1):
        if name not in short:
            mark = f"{_CUT}{number}"
            short[name] = f"{_start(name, width - cell_len(mark))}{mark}"
    return {name: short[name] for name in listed}


def _last_keys(name: str) -> str:
    design, bracket, changes = name.partition("[")
    if not bracket:
        return name
    parts = []
    for change in changes.split(","):
        key, equals, value = change.partition("=")
        table, dot, last = key.rpartition(".")
        parts.append(f"{_CUT if dot and table else ''}{last}{equals}{value}")
    return f"{design}[{','.join(parts)}"


def _middles(width: int) -> list[Callable[[str], str]]:
    """Ways to cut a middle out: half of each end, then more of the start, then of the end."""
    room = width - 1
    starts = [room // 2, 2 * room // 3, room // 3]

    def way(start: int) -> Callable[[str], str]:
        return lambda name: f"{_start(name, start)}{_CUT}{_end(name, room - start)}"

    return [way(start) for start in starts]


def _start(name: str, width: int) -> str:
    while name and cell_len(name) > width:
        name = name[:-1]
    return name


def _end(name: str, width: int) -> str:
    while name and cell_len(name) > width:
        name = name[1:]
    return name
