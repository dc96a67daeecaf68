"""Generated parts of a page, between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "validation.md"


def row(*cells: str) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def number(value: float) -> str:
    """The number with three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.3f}"


def part(name: str) -> str:
    """The present text between the marks of `name`."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    if not found:
        raise SystemExit(f"{PAGE} has no marks for {name}")
    return found[1]


def groups(rows: Iterable[str]) -> dict[str, list[str]]:
    """Rows of a table that belong together, by what the first of them says in two cells."""
    found: dict[str, list[str]] = {}
    key = ""
    for line in rows:
        cells = [cell.strip() for cell in line.split("|")[1:3]]
        key = " ".join(cells) if all(cells) else key
        found.setdefault(key, []).append(line)
    return found


def kept(name: str, table: list[str], last: str = "") -> list[str]:
    """`table` with the rows of other things that stand under its head now; those of `last` last."""
    head, rows = table[:2], table[2:]
    before: list[str] = []
    for old in part(name).split("\n\n"):
        lines = old.splitlines()
        if lines[:2] == head:
            before = lines[2:]
    both = groups(before) | groups(rows)
    ordered = sorted(both, key=lambda key: f"`{last}`" in key)
    return [*head, *(line for key in ordered for line in both[key])]


def write(name: str, text: str, path: Path = PAGE) -> None:
    """Puts `text` between the marks of `name`; the page has to have them."""
    page = path.read_text()
    marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not marked.search(page):
        raise SystemExit(f"{path} has no marks for {name}")
    path.write_text(marked.sub(lambda m: m[1] + text + m[2], page))
