"""Settings of designs in the terminal: their own, and their differences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from pagewalk import native
from pagewalk.view.escape import visible
from pagewalk.view.terminal import Settings, grid, names, words

if TYPE_CHECKING:
    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

Json = dict[str, Any]


def flattened(config: Json, path: str = "") -> dict[str, Any]:
    """A configuration as dotted keys; a table without keys stands for itself."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value:
            flat.update(flattened(value, here))
        else:
            flat[here] = {} if isinstance(value, dict) else value
    return flat


def settings(flat: dict[str, Any]) -> str:
    """Dotted keys with values on one line; a key that only is there needs no value."""
    return ", ".join(
        key if value == {} else f"{key}={_value(value)}" for key, value in flat.items()
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return "+".join(_value(v) for v in value) or "[]"
    return value if isinstance(value, str) else json.dumps(value)


_COMPOSED = ("placement", "page_table", "engine", "in_memory_tlb", "shortcut")
_OWN = (*_COMPOSED, "virtual")
_OWN_OF_MMU = ("perfect", "prefetcher")
"""Keys of `mmu` that designs set and no machine does."""


def _kind(key: str) -> str:
    """The kind of a part that a key is of: `page_table.radix`, `mmu.prefetcher.next_page`."""
    parts = key.split(".")
    if parts[0] == "mmu":
        chosen = (
            2 if parts[1] == "prefetcher" else 4 if parts[3:4] == ["replacement"] else len(parts)
        )
        return ".".join(parts[: chosen + 1]) if len(parts) > chosen else ""
    first = parts.index("virtual") + 1 if parts[0] == "virtual" else 0
    found = parts[first : first + 1]
    return ".".join(parts[: first + 2]) if found and found[0] in _COMPOSED else ""


def _is_own(key: str) -> bool:
    """True for a key of the design, not of the machine that it runs on."""
    table, _, rest = key.partition(".")
    return table in _OWN or (table == "mmu" and rest.split(".")[0] in _OWN_OF_MMU)


def _differing(flat: dict[str, Any], usual: dict[str, Any], beside: dict[str, Any]) -> str:
    """Settings that differ from those of `beside`, or from the defaults (`usual`)."""
    shown = {k: v for k, v in flat.items() if v != (beside if k in beside else usual).get(k)}
    known = {_kind(key) for key in beside}
    kinds: dict[str, Any] = {
        kind: {}
        for kind in dict.fromkeys(map(_kind, flat))
        if kind and kind not in known and not any(f"{k}.".startswith(f"{kind}.") for k in shown)
    }
    return settings({**kinds, **shown})


def resolved(result: Result, short: dict[str, str]) -> Table:
    """The settings of each design: of the first its own, of the others the differences.

    Defaults are left out. Each of several machines has a first design. A name that `short`
    shortens stands in full before its settings.
    """
    usual = {key["path"]: key.get("default") for key in native.config_keys()}
    rows = []
    for first, *others in result.on_each:
        base = flattened(first.config)
        own = {k: v for k, v in base.items() if _is_own(k)}
        rows.append((first.name, _differing(own, usual, {})))
        for design in others:
            different = _differing(flattened(design.config), usual, base)
            rows.append((design.name, different or f"as {first.name}"))
    table = grid()
    names(table, "cyan")
    words(table, "dim")
    for name, text in rows:
        whole = "" if short[name] == visible(name) else f"{name}: "
        table.add_row(short[name], Settings(whole + text))
    return table


def print_design(design: DesignResult, out: Console) -> None:
    """One design's own settings and its MMU's, a line a table, without parts that it lacks."""
    lacking = _lacking(design)
    table = grid()
    names(table)
    words(table, "dim")
    for key in (*_OWN, "mmu"):
        if table_of := design.config.get(key):
            for path, values in _tables(key, table_of):
                if path in lacking:
                    continue
                table.add_row(path, Settings(settings(values)))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


_COUNTED = {"mmu.walk_caches": "pwc", "mmu.cuckoo": "cuckoo", "mmu.nested_tlb": "nested"}
"""Tables of machines for parts that not every design has, with the part that counts its uses."""


def _lacking(design: DesignResult) -> set[str]:
    """The tables of parts that the design does not have: they count nothing."""
    parts = {path[3] for s in design.statistics if len(path := s.path.split(".")) > 3}
    return {table for table, part in _COUNTED.items() if parts and part not in parts}


def _tables(path: str, config: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each table of a configuration with its own values."""
    own = {k: v for k, v in config.items() if not isinstance(v, dict)}
    inner = {k: v for k, v in config.items() if isinstance(v, dict)}
    if own or not inner:
        yield path, own
    for key, value in inner.items():
        yield from _tables(f"{path}.{key}", value)
