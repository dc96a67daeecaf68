"""Colours that mean the same in the terminal and on the page."""

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

DESIGNS = [
    "#4c6ef5", "#f59f00", "#e03131", "#2f9e44", "#9c36b5", "#1098ad", "#868e96", "#d6336c",
    "#74b816", "#7950f2",
]  # fmt: skip
_SHADES = ((255, 0.5), (0, 0.4))
"""Behind the last of them: the same, mixed with white, then with black."""


def designs(count: int) -> list[str]:
    """So many colours, thirty of them different."""
    shades = [_mixed(colour, *shade) for shade in _SHADES for colour in DESIGNS]
    every = [*DESIGNS, *shades]
    return [every[i % len(every)] for i in range(count)]


def _mixed(colour: str, other: int, share: float) -> str:
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + share * (other - part)):02x}" for part in parts)


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
