"""The reference pages of the documentation, made from the definitions in the code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagewalk import native

if TYPE_CHECKING:
    from pagewalk.engine_types import Definitions, Key

Json = dict[str, Any]

_MADE = "<!-- Made by `make docs` from the definitions in the code; change them there. -->\n"


def pages() -> dict[str, str]:
    """The text of each page by file name."""
    return {
        "statistics.md": statistics(native.statistics()),
        "configuration.md": configuration(native.config_keys(), native.schema()),
    }


def statistics(definitions: Definitions) -> str:
    """`docs/statistics.md`."""
    text = [
        _MADE,
        "# Statistics\n",
        "This page is for readers of results. Afterwards you know the name, the unit and the\n"
        "meaning of each number in a result.\n",
        "A result holds the numbers of the summary, and the counters of each component of the\n"
        "simulated machine. They count the measured part only, after fast-forwarding and\n"
        "warm-up. `pagewalk explain NAME` prints the same definitions.\n",
        "Page tables grow most before the measured part, while a program fills its memory. So\n"
        "the counters under `os` and `page_table` are given a second time, counted since the\n"
        "machine booted: as `since_boot` of each design, in `--json` and in Python.\n",
        "A mean of latencies hides their distribution. A statistic that says *a histogram*\n"
        "therefore has the number of its values, their mean, the largest one, and the values\n"
        "that 50, 90 and 99 % of them do not exceed. It also has the values themselves, in\n"
        "buckets.\n",
        "## Summary\n",
        *_table(["name", "unit", "meaning"], _rows(definitions["metrics"], "meaning")),
        "## Programs of a mix\n",
        "These numbers exist for each program of a mix, or for the mix as a whole.\n",
        *_table(["name", "unit", "meaning"], _rows(definitions["programs"], "meaning")),
        "## Counters\n",
        "`N` stands for a number. Components with the same counters share a table.\n",
    ]
    components: dict[str, list[tuple[str, ...]]] = {}
    for row in definitions["statistics"]:
        path, _, name = row["name"].rpartition(".")
        components.setdefault(path, []).append((f"`{name}`", row["unit"], row["text"]))
    alike: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for path, rows in components.items():
        alike.setdefault(tuple(rows), []).append(path)
    for shared, paths in alike.items():
        heading = ", ".join(f"`{path}`" for path in paths)
        text += [f"### {heading}\n", *_table(["name", "unit", "meaning"], shared)]
    return "\n".join(text)


def configuration(keys: list[Key], schema: Json) -> str:
    """`docs/configuration.md`."""
    text = [
        _MADE,
        "# Configuration\n",
        "A run is configured by a machine file, a design file on top of it and `--set KEY=VALUE` "
        "on top of both; the last word counts. Files are TOML; `[a.b]` followed by `c = 1` is the "
        "key `a.b.c`. A key that is not listed here is refused. `<name>` stands for a name that "
        "the file chooses. Of the tables marked *one of*, exactly one is given. `pagewalk explain "
        "KEY` says the same of one, and which part of the machine reads it.\n",
        str(schema.get("description", "")) + "\n",
    ]
    sections: dict[str, list[Key]] = {}
    for key in keys:
        sections.setdefault(key["path"].split(".")[0], []).append(key)
    for name, rows in sections.items():
        head, *rest = rows
        text += [f"## `{name}`\n", f"{head['text']}\n"]
        if head["expected"] != "a table" or not rest:
            text.append(f"Expected: {_expected(head)}.\n")
        if rest:
            table = [(f"`{r['path']}`", _expected(r), _default(r), r["text"]) for r in rest]
            text += _table(["key", "expected", "default", "meaning"], table)
    return "\n".join(text)


def _expected(key: Key) -> str:
    """The values of a key, with their unit."""
    return f"{key['expected']}, {key['unit']}" if key["unit"] else key["expected"]


def _default(key: Key) -> str:
    """The default of a key; empty for a table, whose keys have their own."""
    default = key.get("default")
    return "" if default is None or isinstance(default, dict) else f"`{json.dumps(default)}`"


def _rows(definitions: Sequence[Mapping[str, Any]], meaning: str) -> list[tuple[str, ...]]:
    return [(f"`{d['name']}`", d["unit"], d[meaning]) for d in definitions]


def _table(head: list[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, ["---"] * len(head), *([_cell(c) for c in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|").replace("\n", " ")
