"""Lists and key-value answers in the terminal."""

from __future__ import annotations

from typing import Any, TextIO

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pagewalk.errors import UserError
from pagewalk.quantities import count, exact_bytes, significant, size
from pagewalk.report import console

Json = dict[str, Any]


def catalogue(entries: list[Json], stream: TextIO) -> None:
    """Names with descriptions."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold cyan")
    table.add_column()
    for entry in entries:
        table.add_row(entry["name"], entry["description"])
    console(stream).print(table)


def programs(entries: list[Json], stream: TextIO) -> None:
    """The built-in programs with all that can be asked of them."""
    out = console(stream)
    for i, entry in enumerate(entries):
        if i:
            out.print()
        out.print(Text.assemble((entry["name"], "bold cyan"), f"  {entry['description']}"))
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(style="dim")
        table.add_row("stresses", entry["stresses"])
        table.add_row("from", entry["source"])
        table.add_row(
            "--size", f"{entry['size_range']} (default {exact_bytes(entry['default_size'])})"
        )
        table.add_row("--threads", f"1 to {entry['max_threads']}")
        for parameter in entry["params"]:
            unit = f" {parameter['unit']}" if parameter["unit"] else ""
            table.add_row(
                f"--param {parameter['name']}=",
                f"{parameter['meaning'].rstrip('.')}; {parameter['range']}{unit} "
                f"(default {parameter['default']})",
            )
        out.print(Padding(table, (0, 0, 0, 2), expand=False))


def pairs(answer: Json, stream: TextIO, title: str | None = None) -> None:
    """A flat answer, one key a line."""
    out = console(stream)
    if title:
        out.print(Text(title, style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="bold")
    for key, value in answer.items():
        inner = value.items() if isinstance(value, dict) else [(key, value)]
        for name, part in inner:
            if part is not None and part != []:
                table.add_row(name.replace("_", " "), _value(name, part))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _value(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(v) for v in value) or "none"
    if isinstance(value, (int, float)):
        if key == "bytes" or key.endswith("_bytes"):
            return f"{size(value)}" if value < 1024 else f"{size(value)} ({value:,} bytes)"
        if isinstance(value, float):
            return significant(value)
        return f"{value:,}" if value < 10**6 else f"{count(value)} ({value:,})"
    return str(value)


def explanation(name: str, answer: Json, stream: TextIO) -> None:
    """What a name means, in all senses that it has."""
    if "found" not in answer:
        nearest = answer["nearest"]
        hint = f"did you mean {' or '.join(nearest)}?" if nearest else "check the spelling"
        raise UserError(
            f"nothing is named '{name}'; expected a statistic, design, machine, built-in program "
            f"or configuration key; {hint}"
        )
    out = console(stream)
    for meaning in answer["found"]:
        kind = "configuration key" if meaning["kind"] == "config" else meaning["kind"]
        out.print(Text.assemble((meaning["name"], "bold cyan"), f"  {kind}"))
        if meaning["text"]:
            out.print(Padding(Text(meaning["text"]), (0, 0, 0, 2)))
        unit = "expected" if kind == "configuration key" else "unit"
        for label, key in ((unit, "unit"), ("source", "source")):
            if meaning[key]:
                out.print(Padding(Text.assemble((f"{label}: ", "dim"), meaning[key]), (0, 0, 0, 2)))
