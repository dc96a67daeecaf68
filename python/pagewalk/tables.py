"""Lists and key-value answers in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Group
from rich.padding import Padding
from rich.table import Table

from pagewalk.errors import UserError
from pagewalk.quantities import count, exact_bytes, significant, size
from pagewalk.terminal import console, grid, line, names, numbers, words

if TYPE_CHECKING:
    from pagewalk.answers import Explanation, Program, Sense, Shipped

Json = dict[str, Any]


def catalogue(entries: list[Shipped], stream: TextIO) -> None:
    """Names with descriptions."""
    table = grid()
    names(table, "bold cyan")
    words(table)
    for entry in entries:
        table.add_row(entry["name"], entry["description"])
    console(stream).print(table)


def studies(entries: list[Json], stream: TextIO) -> None:
    """The papers that can be reproduced, with their figures and scales."""
    out = console(stream)
    for entry in entries:
        out.print(line((entry["name"], "bold cyan"), "  ", entry["description"]))
        table = grid()
        names(table, "dim")
        words(table)
        table.add_row("figures", " ".join(entry["figures"]))
        table.add_row("scales", " ".join(entry["scales"]))
        out.print(Padding(table, (0, 0, 0, 2), expand=False))


def programs(entries: list[Program], stream: TextIO) -> None:
    """The built-in programs in their groups: memory, what each does and stresses."""
    out = console(stream)
    groups: dict[str, list[Program]] = {}
    for entry in entries:
        groups.setdefault(entry["group"], []).append(entry)
    width = max(len(entry["name"]) for entry in entries)
    for group, members in groups.items():
        out.print(line(group, style="bold"))
        table = grid()
        names(table, "bold cyan", width=width)
        numbers(table, width=8)
        words(table)
        for entry in members:
            about = Group(
                entry["description"],
                line(f"stresses {entry['stresses']}", style="dim"),
                line(f"from {entry['source']}", style="dim"),
            )
            table.add_row(entry["name"], size(entry["default_size"]), about)
        out.print(Padding(table, (0, 0, 1, 2), expand=False))
    out.print("The memory is the default of --size. 'pagewalk explain NAME' tells the parameters.")


def _program(entry: Program) -> Table:
    """All that can be asked of a built-in program."""
    table = grid()
    names(table)
    words(table, "dim")
    table.add_row("stresses", entry["stresses"])
    table.add_row("--size", f"{entry['size_range']} (default {exact_bytes(entry['default_size'])})")
    table.add_row("--threads", f"1 to {entry['max_threads']} (default 1)")
    for parameter in entry["params"]:
        unit = f" {parameter['unit']}" if parameter["unit"] else ""
        table.add_row(
            f"--param {parameter['name']}=",
            f"{parameter['meaning'].rstrip('.')}; {parameter['range']}{unit} "
            f"(default {parameter['default']})",
        )
    return table


def pairs(answer: Json, stream: TextIO, title: str | None = None) -> None:
    """A flat answer, one key a line."""
    out = console(stream)
    if title:
        out.print(line(title, style="bold"))
    table = grid()
    names(table)
    words(table, "bold")
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


def meanings(name: str, answer: Explanation) -> list[Sense]:
    """All senses that `name` has; refuses one that has none."""
    if "found" in answer:
        return answer["found"]
    nearest = answer["nearest"]
    hint = f"did you mean {' or '.join(nearest)}?" if nearest else "check the spelling"
    raise UserError(
        f"nothing is named '{name}'; expected a statistic, design, machine, built-in program "
        f"or configuration key; {hint}"
    )


def explanation(found: list[Sense], stream: TextIO) -> None:
    """What a name means, in all its senses."""
    out = console(stream)
    for meaning in found:
        kind = "configuration key" if meaning["kind"] == "config" else meaning["kind"]
        out.print(line((meaning["name"], "bold cyan"), f"  {kind}"))
        if meaning["text"]:
            out.print(Padding(line(meaning["text"]), (0, 0, 0, 2)))
        unit = "expected" if kind == "configuration key" else "unit"
        for label, text in ((unit, meaning["unit"]), ("source", meaning["source"])):
            if text:
                out.print(Padding(line((f"{label}: ", "dim"), text), (0, 0, 0, 2)))
        if "workload" in meaning:
            out.print(Padding(_program(meaning["workload"]), (0, 0, 0, 2), expand=False))
