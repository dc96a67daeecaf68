"""Layout of tables in a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pagewalk.view import columns
from pagewalk.view.columns import ALWAYS, Column, Filled
from pagewalk.view.terminal import label, line, numbers

Row = TypeVar("Row")

_BETWEEN = 4
"""Blanks between pairs that stand side by side."""
_LONGEST = 80
"""Cells that pairs side by side fill at most: a longer line is hard to read."""


def print_pairs(rows: Sequence[tuple[str, str]], out: Console) -> None:
    """Prints names with their numbers, side by side where they fit, read downwards."""
    if not rows:
        return
    room = min(out.width, _LONGEST) - 2
    per_line, widths = 1, _pair_widths(rows, len(rows))
    for number in range(2, len(rows) + 1):
        tried = _pair_widths(rows, -(-len(rows) // number))
        if sum(2 + sum(pair) for pair in tried) + _BETWEEN * (len(tried) - 1) > room:
            break
        per_line, widths = number, tried
    height = -(-len(rows) // per_line)
    for first in range(height):
        text = line("  ")
        for column, i in enumerate(range(first, len(rows), height)):
            name_width, number_width = widths[column]
            name_width = max(1, min(name_width, room - 2 - number_width))
            text += line(" " * (_BETWEEN if column else 0))
            text += label(rows[i][0], name_width)
            text += line("  ", (rows[i][1].rjust(number_width), "bold"))
        out.print(text)


def _pair_widths(rows: Sequence[tuple[str, str]], height: int) -> list[tuple[int, int]]:
    """Widest name and number of each column of so many rows."""
    return [
        (
            max(cell_len(name) for name, _ in rows[i : i + height]),
            max(cell_len(number) for _, number in rows[i : i + height]),
        )
        for i in range(0, len(rows), height)
    ]


def print_columns(
    first: str,
    heads: Sequence[Text],
    rows: Sequence[Row],
    listed: Sequence[Column[Row]],
    out: Console,
    *,
    wide: bool,
) -> None:
    """Prints a table of declared columns, without those that have no number.

    In a narrow terminal, less important columns are left out and named below, unless `wide` is
    set.
    """
    filled = [(column, column.filled(rows)) for column in listed]
    filled = [(c, f) for c, f in filled if f.known or c.importance == ALWAYS]
    every = [f for _, f in filled]
    room = out.width - 2 - max(cell_len(first), *(head.cell_len for head in heads))
    shown = every if wide or not out.is_terminal else _fitting(every, room)
    print_table(first, heads, shown, out)
    used = [column for column, f in filled if f in shown]
    terms = columns.legend(used, [f.title for f in shown])
    print_flow([f"{term}: {meaning}" for term, meaning in terms], " · ", out)
    if left := columns.together([column for column, f in filled if f not in shown]):
        named = ", ".join(left).split(" ")
        print_flow(["not shown:", *named, "(--wide shows all)"], " ", out)


def _fitting(every: Sequence[Filled], room: int) -> list[Filled]:
    """The most important columns that fit side by side into `room` cells; at least one."""
    shown = list(every)
    while len(shown) > 1 and sum(2 + _width(f) for f in shown) > room:
        least = max(f.importance for f in shown)
        if least == ALWAYS:
            break
        shown.remove([f for f in shown if f.importance == least][-1])
    return shown


def print_flow(parts: Sequence[str], between: str, out: Console, *, indent: int = 2) -> None:
    """Prints parts on as few lines as possible, broken between parts."""
    lines: list[str] = []
    for part in parts:
        if lines and indent + cell_len(f"{lines[-1]}{between}{part}") <= out.width:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    for text in lines:
        out.print(Padding(line(text, style="dim"), (0, 0, 0, indent), expand=False))


def _width(column: Filled) -> int:
    return max(cell_len(text) for text in [*column.title.split("\n"), *column.cells])


def print_table(first: str, heads: Sequence[Text], filled: Sequence[Filled], out: Console) -> None:
    """Prints a table of names and numbers, split into several blocks if it is too wide."""
    room = out.width - 2
    widths = [_width(column) for column in filled]
    widest = max(cell_len(first), *(head.cell_len for head in heads))
    # A name may be as long as a file's name; it is folded to leave room for numbers.
    for_names = min(widest, max(room // 3, room - sum(2 + width for width in widths)))
    blocks = _blocks(widths, room - for_names)
    # Columns are balanced over the blocks, so that the last block is not left with a single one.
    narrower = room - for_names
    while narrower > max(widths) and len(tighter := _blocks(widths, narrower)) == len(blocks):
        blocks, narrower = tighter, narrower - 1
    for number, block in enumerate(blocks):
        if number:
            out.print()
        table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
        table.add_column(first, vertical="bottom", overflow="fold", width=for_names)
        # Units stand on one line, and so do the last words of titles.
        height = max(filled[i].title.count("\n") for i in block)
        for i in block:
            title = filled[i].title
            numbers(table, "\n" * (height - title.count("\n")) + title)
        for row, head in enumerate(heads):
            table.add_row(head, *(filled[i].cells[row] for i in block))
        out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _blocks(widths: list[int], room: int) -> list[list[int]]:
    """The columns that stand together in each block of at most `room` cells."""
    blocks: list[list[int]] = [[]]
    used = 0
    for i, width in enumerate(widths):
        if blocks[-1] and used + 2 + width > room:
            blocks.append([])
            used = 0
        blocks[-1].append(i)
        used += 2 + width
    return blocks
