"""Text on a terminal: text from outside is shown literally and has no effect there.

Names, arguments, paths and messages may hold any text. They are never markup, and none of their
control characters reaches the terminal.
"""

from __future__ import annotations

import errno
import os
import re
import textwrap
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from pagewalk.view.escape import visible
from pagewalk.view.output import OutputLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import ConsoleOptions, HighlighterType, JustifyMethod, OverflowMethod
    from rich.style import Style

_UNBOUNDED = 200
"""Width without a terminal: more than any table needs."""


def console(stream: TextIO) -> Console:
    """A console that prints numbers and names as they are.

    Without a terminal lines are as long as needed, so that programs that read them get complete
    values. COLUMNS sets the width there, too.
    """
    if not stream.isatty():
        given = os.environ.get("COLUMNS", "")
        width = int(given) if given.isdecimal() and int(given) > 0 else _UNBOUNDED
        return _Console(cast("TextIO", _Trimmed(stream)), width)
    out = _Console(stream)
    if out.is_dumb_terminal:
        # Rich assumes a width of 80 columns for such terminals.
        columns, rows = os.get_terminal_size(stream.fileno())
        out.size = ConsoleDimensions(columns or out.width, rows or out.height)
    return out


class _Console(Console):
    """A console that treats a plain string as text from outside."""

    def __init__(self, stream: TextIO, width: int | None = None) -> None:
        super().__init__(file=stream, width=width, markup=False, emoji=False, highlight=False)

    def render_str(
        self,
        text: str,
        *,
        style: str | Style = "",
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        emoji: bool | None = None,
        markup: bool | None = None,
        highlight: bool | None = None,
        highlighter: HighlighterType | None = None,
    ) -> Text:
        return super().render_str(
            visible(text),
            style=style,
            justify=justify,
            overflow=overflow,
            emoji=emoji,
            markup=markup,
            highlight=highlight,
            highlighter=highlighter,
        )

    def on_broken_pipe(self) -> None:
        # Rich's own handler ends the process.
        raise OutputLost(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))


class _Trimmed:
    """A stream that removes trailing blanks, with which tables are padded."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +(?=\n|$)", "", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def colours_of(out: Console) -> int:
    """Number of colours: none on a pipe, in a file, or where NO_COLOR is set."""
    if out.no_color or out.color_system is None:
        return 0
    return 16 if out.color_system == "standard" else 256


def line(*parts: str | tuple[str, str], style: str = "") -> Text:
    """One line of parts, each a text or a text with its style."""
    shown = [visible(p) if isinstance(p, str) else (visible(p[0]), p[1]) for p in parts]
    return Text.assemble(*shown, style=style)


def sentence(text: str, width: int) -> Text:
    """A sentence in lines of `width` cells, none of which begins with a number's percent sign."""
    if not text.isascii():
        # Letters may be wider than a cell, which only the console knows.
        return line(text)
    joined = textwrap.wrap(visible(text).replace(" %", "\0%"), width, break_on_hyphens=False)
    return Text("\n".join(joined).replace("\0", " "))


def label(name: str, width: int, style: str = "") -> Text:
    """A name in exactly `width` cells."""
    text = Text(visible(name), style=style)
    text.truncate(width, overflow="ellipsis", pad=True)
    return text


def grid() -> Table:
    """A table of bare columns two blanks apart; see `names`, `numbers` and `words`."""
    return Table.grid(padding=(0, 2))


def names(table: Table, style: str = "", *, width: int | None = None) -> None:
    """Adds a column of names, at least `width` cells wide; folded as a last resort."""
    table.add_column(style=style, overflow="fold", min_width=width)


def numbers(table: Table, title: str = "", style: str = "", *, width: int | None = None) -> None:
    """Adds a column of numbers, at least `width` cells wide; they are never cut."""
    table.add_column(Text(title), justify="right", no_wrap=True, style=style, min_width=width)


def words(table: Table, style: str = "") -> None:
    """Adds a column of prose, which takes the remaining width."""
    table.add_column(style=style, overflow="fold")


_BREAKS = re.compile(r"[^+=/_]*[+=/_]+|[^+=/_]+")


class Settings:
    """A line of settings, ``key=value, …``, that breaks between them, or else in a key or list.

    A number is only cut if it is wider than the whole line.
    """

    def __init__(self, text: str) -> None:
        self._text = visible(text)

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        whole = cell_len(self._text)
        return Measurement(min(1, whole), whole).with_maximum(options.max_width)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = max(options.max_width, 1)
        lines = [""]
        for word in self._text.split(" "):
            blank = " " if lines[-1] else ""
            if cell_len(lines[-1]) + len(blank) + cell_len(word) <= width:
                lines[-1] += blank + word
                continue
            if lines[-1]:
                lines.append("")
            for piece in _BREAKS.findall(word):
                if lines[-1] and cell_len(lines[-1]) + cell_len(piece) > width:
                    lines.append("")
                lines[-1] += piece
        yield Text("\n".join(lines), overflow="fold")
