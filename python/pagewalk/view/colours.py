"""Colours of the terminal; those of the page are in `palette`."""

from __future__ import annotations

from pagewalk.view import causes

_FILLS = "█▓▒░▚▜▞▟▙▛▄▖▀▐▌▗▘▂▎"
"""The fill of each cause, in the order of `causes.CAUSES`."""
_OTHER_FILLS = "▝#%"
FASTER, SLOWER, SAME = "bright_blue", "yellow", "bright_black"
"""Colours of a speedup's bar: not red and green, which some readers cannot distinguish."""
ENERGY = {
    "core": "#adb5bd",
    "caches": "#74c0fc",
    "tlbs": "#ffa94d",
    "walk_caches": "#e8590c",
    "engine": "#9775fa",
    "dram": "#1864ab",
}
"""A colour for each kind of part that consumes energy."""

_OTHERS = ["#fcc419", "#be4bdb", "#20c997", "#f783ac", "#5c7cfa"]


def inks(names: list[str], colours: int) -> dict[str, tuple[str, str]]:
    """A fill and a style for each cause of cycles in a terminal with `colours` colours."""
    if colours > 16:
        many = {name: cause.many for name, cause in causes.CAUSES.items()}
        return {name: ("█", colour) for name, colour in causes.each(names, many, _OTHERS).items()}
    few = {name: cause.few for name, cause in causes.CAUSES.items()} if colours else {}
    styles = causes.each(names, few, ["white" if colours else ""])
    fills = causes.each(names, dict(zip(causes.CAUSES, _FILLS, strict=True)), _OTHER_FILLS)
    return {name: (fills[name], styles[name]) for name in names}
