"""Colours of the terminal, and causes in words; those of the page are in `palette`."""

from __future__ import annotations

_CAUSES = {
    "base": "#aac2b9",
    "compute": "#928e83",
    # What data waits for, darker the farther away.
    "l1d": "#a1ddff",
    "l2": "#6fc8ff",
    "l3": "#0986cf",
    "remote": "#06acb8",
    "dram": "#323786",
    "dram_queue": "#0c7284",
    "miss_register": "#869eff",
    # What translation costs.
    "tlb": "#f7ab5c",
    "walker": "#ff780a",
    "walk": "#e1550e",
    "kernel": "#be235c",
    "branch": "#91e828",
    "fetch": "#309a40",
    "store_queue": "#7362f2",
    "idle": "#dee2e6",
}
"""Different for those who see no red, no green or no blue as well (a test has the distances)."""
_SIXTEEN = {
    "base": "white",
    "compute": "bright_black",
    "l1d": "bright_cyan",
    "l2": "cyan",
    "l3": "bright_blue",
    "remote": "cyan",
    "dram": "blue",
    "dram_queue": "bright_blue",
    "miss_register": "bright_cyan",
    "tlb": "bright_yellow",
    "walker": "yellow",
    "walk": "red",
    "kernel": "bright_magenta",
    "branch": "bright_green",
    "fetch": "green",
    "store_queue": "magenta",
    "idle": "bright_white",
}
"""For terminals of sixteen colours, which are told apart by fills as well."""
_FILLS = "█▓▒░▚▞▄▀▌▐▙▟▛▜▖▗▘"
FASTER, SLOWER, SAME = "bright_blue", "yellow", "bright_black"
"""Of a speedup's bar; no pair of red and green."""
ENERGY = {
    "core": "#adb5bd",
    "caches": "#74c0fc",
    "tlbs": "#ffa94d",
    "walk_caches": "#e8590c",
    "engine": "#9775fa",
    "dram": "#1864ab",
}
"""A colour for each kind of part that takes energy."""

_OTHERS = ["#fcc419", "#be4bdb", "#20c997", "#f783ac", "#5c7cfa"]


def causes(names: list[str]) -> dict[str, str]:
    """A colour for each cause of cycles."""
    unknown = [name for name in names if name not in _CAUSES]
    return {
        name: _CAUSES.get(name) or _OTHERS[unknown.index(name) % len(_OTHERS)] for name in names
    }


def inks(names: list[str], colours: int) -> dict[str, tuple[str, str]]:
    """A fill and a style for each cause of cycles in a terminal of so many colours, 0 for none."""
    if colours > 16:
        return {name: ("█", colour) for name, colour in causes(names).items()}
    styles = {name: _SIXTEEN.get(name, "white") if colours else "" for name in names}
    return {name: (_FILLS[i % len(_FILLS)], styles[name]) for i, name in enumerate(names)}


def words(name: str) -> str:
    """A name as it is read: ``store_queue`` is store queue, ``dram`` DRAM."""
    return {
        "l1d": "L1D",
        "l2": "L2",
        "l3": "L3",
        "dram": "DRAM",
        "dram_queue": "DRAM queue",
        "tlb": "TLB lookups",
        "walker": "for a walker",
    }.get(name, name.replace("_", " "))
