"""Colours as those see them who lack a kind of cone."""

from __future__ import annotations

Channels = tuple[float, ...]

# Matrices from linear RGB to linear RGB for eyes without one kind of cone. Machado, Oliveira and
# Fernandes, "A physiologically-based model for simulation of color vision deficiency", 2009,
# table 1, severity 1.
SIGHT: dict[str, tuple[Channels, ...]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(colour: str) -> Channels:
    """Linear RGB of a colour of sRGB."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return tuple(p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)


def through(matrix: tuple[Channels, ...], channels: Channels) -> Channels:
    """The product of both."""
    return tuple(sum(a * b for a, b in zip(row, channels, strict=True)) for row in matrix)


def seen(colour: str, sight: str) -> Channels:
    """Linear RGB of a colour as it is seen; nothing is darker than black."""
    return tuple(max(0.0, part) for part in through(SIGHT[sight], linear(colour)))
