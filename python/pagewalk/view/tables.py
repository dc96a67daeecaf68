"""Lists and key-value answers in the terminal."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Group
from rich.padding import Padding
from rich.table import Table

from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.view.quantities import count, exact_bytes, significant, size
from pagewalk.view.terminal import Settings, console, grid, line, names, numbers, words

if TYPE_CHECKING:
    from pagewalk.engine_types import Explanation, Program, Sense, Setting, Shipped
    from pagewalk.programs.regions import Found

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
    """Prints the built-in programs by group: memory, description, and the stressed parts."""
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
    out.print("The memory is the default of --size. 'pagewalk explain NAME' lists the parameters.")


def _program(entry: Program) -> Table:
    """Purpose, size, threads and parameters of a built-in program."""
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


def pairs(answer: Mapping[str, Any], stream: TextIO, title: str | None = None) -> None:
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


_SHORT = 10**10
"""Instructions that are warmed in a few minutes."""
_FAINT = 0.01
"""A spread that does not matter much."""


def regions(found: Found, trace: str, stream: TextIO, file: str | None = None) -> None:
    """Prints the regions of a trace, their quality, and advice for a better choice.

    `file` is the file that they were written to.
    """
    out = console(stream)
    chosen = found.regions
    each = chosen.regions
    total, length = chosen.instructions or 0, chosen.length or 0
    table = grid()
    titles = ("region", "first instruction", "instructions", "weight", "stretches")
    for title in titles:
        numbers(table, style="bold" if title == "weight" else "")
    table.add_row(*titles, style="dim")
    for number, region in enumerate(each):
        share = f"{significant(region.weight * 100)} %"
        cells = (str(number), f"{region.at:,}", f"{region.instructions:,}", share)
        table.add_row(*cells, str(region.stretches))
    out.print(table)
    inside = sum(region.instructions for region in each)
    out.print(
        f"{len(each)} of {found.stretches:,} stretches of {count(length)} instructions stand for "
        f"{count(total)}, with {significant(100 * inside / total)} % of them."
    )
    spread, of_all = (chosen.spread or 0.0, chosen.spread_of_all or 0.0)
    out.print(
        f"Spread: stretches have {_percent(spread)} of their instructions in other blocks than the "
        f"mean of their kind, {_percent(of_all)} in others than the mean of all."
    )
    if spread > _FAINT:
        enough = next((n for n, left in enumerate(found.spreads, 1) if left <= _FAINT), None)
        needs = f"it takes {enough}" if enough else f"{len(found.spreads)} are too few"
        out.print(f"For a spread of {_percent(_FAINT)} {needs} regions.")
    if found.stretches < 2 * len(found.spreads) + 2:
        out.print(f"So few stretches hide phases; --length {max(length // 10, 1)} would make more.")
    if file not in (None, "-"):
        words = ["pagewalk", "run", "--trace", trace, "--regions", file]
        out.print(f"'{shlex.join(words)}' simulates them alone.")
    better = ", and is the better choice for a trace as short as this" if total < _SHORT else ""
    out.print(
        f"No error bound comes with regions. 'pagewalk run --trace {shlex.quote(trace)} --sample "
        f"100K/10M' has one{better}."
    )


def _percent(share: float) -> str:
    return f"{significant(share * 100)} %"


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
        f"nothing is named '{name}'; expected a word of a report, a statistic, design, machine, "
        f"built-in program, paper or configuration key ('pagewalk explain' lists them); {hint}"
    )


_KINDS = {
    "term": "Words of reports and pages",
    "metric": "Numbers of the summary",
    "design": "Designs",
    "machine": "Machines",
    "workload": "Built-in programs",
    "paper": "Papers",
    "config": "Configuration keys",
}
_CALLED = {"config": "configuration key", "metric": "statistic"}


def topics(named: dict[str, list[str]], stream: TextIO) -> None:
    """Prints the names that can be explained; of configuration keys only the first part."""
    out = console(stream)
    for kind, title in _KINDS.items():
        names_of_kind = [n for n in named.get(kind, []) if "." not in n]
        out.print(line(title, style="bold"))
        out.print(Padding(Settings(", ".join(names_of_kind)), (0, 0, 1, 2), expand=False))
    out.print(
        "'pagewalk explain NAME' explains one, 'pagewalk explain mmu.l2' a table of the "
        "configuration, 'pagewalk explain energy' all that energy is computed with. Counters of "
        "components are in docs/statistics.md, and are explained, too: 'pagewalk explain os.oom'."
    )


def explanation(found: list[Sense], stream: TextIO) -> None:
    """Prints all senses of a name."""
    out = console(stream)
    for number, meaning in enumerate(found):
        if number and (meaning.get("settings") or "workload" in meaning):
            out.print()
        kind = meaning["kind"]
        out.print(line((meaning["name"], "bold cyan"), f"  {_CALLED.get(kind, kind)}"))
        if meaning["text"]:
            out.print(Padding(line(meaning["text"]), (0, 0, 0, 2)))
        default = meaning.get("default")
        facts = [
            ("expected" if kind == "config" else "unit", meaning["unit"]),
            ("default", "" if default is None or isinstance(default, dict) else _written(default)),
            ("read by", meaning.get("reader", "")),
            ("source", meaning["source"]),
        ]
        for label, text in facts:
            if text:
                out.print(Padding(line((f"{label}: ", "dim"), text), (0, 0, 0, 2)))
        if "workload" in meaning:
            out.print(Padding(_program(meaning["workload"]), (0, 0, 0, 2), expand=False))
        if settings := meaning.get("settings"):
            title = "what it simulates:" if kind == "paper" else "what it sets:"
            out.print(Padding(line(title, style="dim"), (0, 0, 0, 2)))
            out.print(Padding(_settings(settings), (0, 0, 0, 2), expand=False))
        if kind == "config" and (below := _below(meaning["name"])):
            out.print(Padding(line("its keys:", style="dim"), (0, 0, 0, 2)))
            out.print(Padding(below, (0, 0, 0, 2), expand=False))


def _settings(settings: list[Setting]) -> Table:
    """A row a key: its value, the default where it is another, and the file's comment."""
    table = grid()
    names(table, "cyan")
    words(table)
    for setting in settings:
        usual = ""
        if "default" in setting and not isinstance(setting["default"], dict):
            same = setting["default"] == setting["value"]
            usual = " (the default)" if same else f" (default {_written(setting['default'])})"
        value = _written(setting["value"]) or "chosen"
        comment = f"  {setting['comment']}" if setting["comment"] else ""
        table.add_row(setting["key"], line((value, "bold"), usual, (comment, "dim")))
    return table


def _below(path: str) -> Table | None:
    """The keys of a table of the configuration, a row each; None for a key that is no table."""
    # For a table with user-chosen names, the keys below such a name.
    start = re.compile(re.escape(f"{path}.") + r"(<name>\.)?[^.]+")
    keys = [key for key in native.config_keys() if start.fullmatch(key["path"])]
    if not keys:
        return None
    table = grid()
    names(table, "cyan")
    words(table)
    for key in keys:
        plain = "default" in key and not isinstance(key["default"], dict)
        default = f" (default {_written(key['default'])})" if plain else ""
        table.add_row(key["path"], line(key["text"], (default, "dim")))
    return table


def _written(value: Any) -> str:
    """A value of a configuration as a file would have it, on one line."""
    if isinstance(value, dict):
        return (
            f"{{ {', '.join(f'{k} = {_written(v)}' for k, v in value.items())} }}" if value else ""
        )
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
