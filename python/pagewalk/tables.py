"""Lists and key-value answers in the terminal."""

from __future__ import annotations

from typing import Any, TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pagewalk.errors import UserError
from pagewalk.quantities import count, significant, size
from pagewalk.report import console

Json = dict[str, Any]


def catalogue(entries: list[Json], stream: TextIO) -> None:
    """Names with descriptions, and parameters where there are any."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column()
    for entry in entries:
        table.add_row(entry["name"], entry["description"])
        for parameter in entry.get("params") or []:
            default = parameter.get("default")
            known = "" if default is None else f" (default {default})"
            table.add_row(
                "", Text(f"--param {parameter['name']}=…  {parameter['description']}{known}", "dim")
            )
    console(stream).print(table)


def pairs(answer: Json, stream: TextIO, title: str | None = None) -> None:
    """A flat answer, one key a line."""
    out = console(stream)
    if title:
        out.print(Text(title, style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="bold")
    for key, value in answer.items():
        if value is not None:
            table.add_row(key.replace("_", " "), _value(key, value))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    if isinstance(value, (int, float)):
        if key.startswith("bytes") or key.endswith("bytes"):
            return f"{size(value)}" if value < 1024 else f"{size(value)} ({value:,} bytes)"
        if isinstance(value, float):
            return significant(value)
        return f"{value:,}" if value < 10**6 else f"{count(value)} ({value:,})"
    return str(value)


def explanation(name: str, answer: Json | None, stream: TextIO) -> None:
    """What a name means, in all senses that it has."""
    meanings = (answer or {}).get("meanings") or ([answer] if answer and "text" in answer else [])
    if not meanings:
        nearest = (answer or {}).get("nearest") or []
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        raise UserError(
            f"nothing is named '{name}'{hint} (a statistic, design, machine, built-in program "
            f"or configuration key was expected)"
        )
    out = console(stream)
    for meaning in meanings:
        out.print(Text.assemble((meaning["name"], "bold cyan"), f"  {meaning['kind']}"))
        out.print(Padding(Text(meaning["text"]), (0, 0, 0, 2)))
        for key in ("unit", "default", "file", "expected"):
            if meaning.get(key) is not None:
                out.print(Text.assemble(f"  {key}: ", (str(meaning[key]), "bold")))
        if meaning.get("config"):
            out.print(Text("\n  " + str(meaning["config"]).replace("\n", "\n  "), style="dim"))
