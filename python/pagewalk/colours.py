"""Colours of the terminal, and causes in words; those of the page are in `palette`."""

from __future__ import annotations

_CAUSES = {
    "base": "#adb5bd",
    "compute": "#868e96",
    # What data waits for, darker the farther away.
    "l1d": "#a5d8ff",
    "l2": "#74c0fc",
    "l3": "#339af0",
    "remote": "#15aabf",
    "dram": "#1864ab",
    "dram_queue": "#0b7285",
    "miss_register": "#748ffc",
    # What translation costs.
    "tlb": "#ffa94d",
    "walker": "#fd7e14",
    "walk": "#e8590c",
    "kernel": "#c2255c",
    "branch": "#94d82d",
    "fetch": "#37b24d",
    "store_queue": "#9775fa",
    "idle": "#dee2e6",
}
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
