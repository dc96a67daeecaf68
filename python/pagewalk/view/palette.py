"""Colours of charts and pages, each for a light and for a dark background.

A chart is drawn for a light one; a page's style replaces each colour on a dark one
(`DARK`). Each mark stands out from its background with a contrast of 3:1, and text with 4.5:1,
as WCAG 2.2 asks (1.4.11, 1.4.3).
"""

from __future__ import annotations

from pagewalk.view.causes import CAUSES, each

LIGHT_PANEL, DARK_PANEL = "#ffffff", "#1b1e24"
"""Backgrounds of charts and tables."""

INK, FAINT, GRID = "#343a40", "#5c636a", "#e3e7eb"
"""Labels, titles of axes, and lines behind the marks."""
SLOWER = "#c92a2a"
"""Bars of slower designs, and marks of missing values."""

_DESIGNS = [
    ("#1d61f6", "#728cf6"), ("#e36a11", "#fb940f"), ("#367463", "#b2c09b"),
    ("#a12daf", "#8d44d7"), ("#1f95ef", "#9ce2fe"), ("#653b1c", "#a15565"),
    ("#be5aaf", "#bc8598"), ("#3a5065", "#82b7eb"), ("#c4400b", "#dc5314"),
    ("#a68a7c", "#e6e7ab"),
]  # fmt: skip
"""Colours of designs, chosen by search for the largest smallest distance between two of them, also
for readers who lack one kind of cone."""
_SHADES = ((0, 0.45, 255, 0.5), (110, 0.55, 150, 0.5))
"""Further rounds of these colours, mixed with a grey: which and how much, on light and on dark."""

_OTHERS = [
    ("#a67c00", "#fcc419"), ("#be4bdb", "#da77f2"), ("#0f8f6a", "#38d9a9"),
    ("#d6528f", "#faa2c1"), ("#5c7cfa", "#91a7ff"),
]  # fmt: skip
ENERGY = {
    "core": "base",
    "caches": "l2",
    "tlbs": "tlb",
    "walk_caches": "walk",
    "engine": "store_queue",
    "dram": "dram",
}
_ON = [
    ("#fefefe", "#fefefe"), ("#fdfdfd", "#010101"), ("#020202", "#fefefe"), ("#010101", "#010101"),
]  # fmt: skip
"""Text on a mark, on light and on dark: white or black, by the larger contrast."""

DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [4, 1], [1, 3]]
"""Dash patterns of lines, one for every five colours, so that similar colours differ in it."""


def designs(count: int) -> list[str]:
    """`count` colours of designs; they repeat when the palette is used up."""
    every = [light for light, _ in _EVERY]
    return [every[i % len(every)] for i in range(count)]


def dashes(count: int) -> list[list[int]]:
    """`count` dash patterns, to go with `designs`."""
    return [DASHES[i // 5 % len(DASHES)] for i in range(count)]


def causes(names: list[str]) -> dict[str, str]:
    """A colour for each cause of cycles."""
    light = {name: cause.light for name, cause in CAUSES.items()}
    return each(names, light, [colour for colour, _ in _OTHERS])


def energy(group: str) -> str:
    """The colour of a kind of part that takes energy."""
    return CAUSES[ENERGY[group]].light


def on(colour: str) -> str:
    """The colour of text that lies on a mark of one of these colours."""
    whites = [
        contrast(here, "#ffffff") > contrast(here, "#000000") for here in (colour, DARK[colour])
    ]
    return _ON[(not whites[0]) * 2 + (not whites[1])][0]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2.2 defines it: 1 to 21."""
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in _parts(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _mixed(colour: str, other: int, share: float) -> str:
    mixed = (round(part + share * (other - part)) for part in _parts(colour))
    return "#" + "".join(f"{part:02x}" for part in mixed)


_EVERY = [
    *_DESIGNS,
    *(
        (_mixed(light, *shade[:2]), _mixed(dark, *shade[2:]))
        for shade in _SHADES
        for light, dark in _DESIGNS
    ),
]

DARK: dict[str, str] = {
    LIGHT_PANEL: DARK_PANEL,
    "#000000": "#f1f3f5",
    INK: "#dee2e6",
    FAINT: "#a9b1b9",
    GRID: "#343941",
    SLOWER: "#ff7b72",
    **dict(_ON),
    **dict(_OTHERS),
    **{cause.light: cause.dark for cause in CAUSES.values()},
    **dict(_EVERY),
}
"""For each colour of a chart its counterpart on a dark background."""
