"""Numbers as people write and read them: ``100M``, ``4GiB``, ``1.3 ns``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import SupportsIndex

from pagewalk.errors import UserError, Words
from pagewalk.view.escape import shown

_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\d{1,3}(?:[_,]\d{3})+)\s*([A-Za-z]*)")
_COUNT = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_BYTES = {
    "": 1,
    "B": 1,
    **_BINARY,
    **{f"{unit}IB": factor for unit, factor in _BINARY.items()},
    **{f"{unit}B": factor for unit, factor in _BINARY.items()},
}
_LIMIT = 2**63


def integer(value: object) -> int | None:
    """A whole number of Python or NumPy as int; None for another value."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of several
        return None


def _as_text(value: object, what: Words, forms: str) -> str:
    """A number as text; a text as it is. Raises `UserError` for another value."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, float):
        return str(value)
    if (number := integer(value)) is not None:
        return str(number)
    raise UserError(f"{shown(value)} is not understood; expected {forms}", about=what)


def _parse(given: object, units: dict[str, int], what: Words, forms: str) -> int:
    text = _as_text(given, what, forms)
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise UserError(f"{shown(text)} is not understood; expected {forms}", about=what)
    whole, _, part = match[1].replace("_", "").replace(",", "").partition(".")
    scaled = int(whole + part) * factor
    denominator: int = 10 ** len(part)
    value, rest = divmod(scaled, denominator)
    if rest or value >= _LIMIT:
        problem = "is not a whole number" if rest else "is too large"
        raise UserError(f"{shown(text)} {problem}; expected {forms}", about=what)
    return value


def parse_count(text: str | int, what: Words) -> int:
    """Reads a count such as ``250000``, ``100M`` or ``1.5G`` (powers of ten)."""
    return _parse(text, _COUNT, what, "a count such as 250000, 100M or 1.5G")


def parse_bytes(text: str | int, what: Words) -> int:
    """Reads a size such as ``4GiB``, ``4GB`` or ``4G``: all powers of two, as memory is sold."""
    value = _parse(text, _BYTES, what, "a size such as 64MiB, 4GiB or 1TiB")
    if value == 0:
        raise UserError("a size of 0 makes no sense; expected one such as 4GiB", about=what)
    return value


def exact_bytes(value: int) -> str:
    """Writes a size without losing any of it: ``4GiB``, ``1536MiB``, ``100B``."""
    for unit in reversed(_BINARY):
        if value % _BINARY[unit] == 0:
            return f"{value // _BINARY[unit]}{unit}iB"
    return f"{value}B"


@dataclass(frozen=True)
class Scale:
    """The units of a quantity, each `step` times the one before."""

    step: int
    units: tuple[str, ...]

    def own(self, value: float) -> str:
        """The value with the unit that suits it."""
        if float(value).is_integer() and abs(value) < self.step:
            return f"{int(value)} {self.units[0]}".rstrip()
        level = self._level(value)
        return f"{significant(value / self.step**level)} {self.units[level]}".rstrip()

    def common(self, values: Iterable[float]) -> tuple[str, Callable[[float], str]]:
        """The unit that suits the largest of the values, and a formatter in that unit.

        If the values are too far apart, the unit is empty, and each value has its own.
        """
        listed = [abs(value) for value in values if value]
        level = self._level(max(listed, default=0))
        factor = self.step**level
        if level and min(listed) < factor / 100:
            return "", self.own
        if level == 0:
            first = self.units[0]
            return first, lambda value: self.own(value).removesuffix(first).rstrip()
        return self.units[level], lambda value: significant(value / factor)

    def _level(self, value: float) -> int:
        level, rest = 0, abs(value)
        while level < len(self.units) - 1 and rest >= self.step:
            rest /= self.step
            level += 1
        # 999.96 K would round to 1000 K.
        if level < len(self.units) - 1 and rest >= self.step * 0.9995:
            level += 1
        return level


COUNTS = Scale(1000, ("", "K", "M", "G", "T", "P"))
SIZES = Scale(1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
JOULES = Scale(1000, ("nJ", "uJ", "mJ", "J", "kJ"))
NANOSECONDS = Scale(1000, ("ns", "us", "ms", "s"))


def count(value: float) -> str:
    """A count in at most seven characters: ``812``, ``43.1 K``, ``2.50 G``."""
    return COUNTS.own(value)


def size(value: float) -> str:
    """A size in binary units: ``512 B``, ``2.00 MiB``."""
    return SIZES.own(value)


_DIGITS = 3


def significant(value: float) -> str:
    """A number with three significant digits, never in exponent form."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    places = max(0, min(6, _DIGITS - 1 - magnitude))
    text = f"{value:.{places}f}"
    # 9.996 has one digit before the point, its rounding 10.00 two.
    if places and len(text.replace("-", "").replace(".", "").lstrip("0")) > _DIGITS:
        text = f"{value:.{places - 1}f}"
    return text


def joules(nanojoules: float) -> str:
    """An energy: ``812 nJ``, ``43.1 mJ``, ``2.50 J``."""
    return JOULES.own(nanojoules)


def duration(seconds: float) -> str:
    """A time of waiting: ``0.4 s``, ``12 s``, ``3:05``, ``1:02:03``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_SCALED: dict[str, Callable[[float], str]] = {
    "bytes": SIZES.own,
    "nJ": JOULES.own,
    "s": lambda seconds: NANOSECONDS.own(seconds * 1e9),
}
"""Formatters of numbers, by unit."""


def with_unit(value: float | None, unit: str) -> str:
    """A statistic with its unit, as the reports print it."""
    if value is None:
        return "–"
    if unit in _SCALED:
        return _SCALED[unit](value)
    if unit in ("%", "percent"):
        return f"{significant(value)} %"
    if unit in ("share", "fraction"):
        return f"{significant(value * 100)} %"
    return count(value)
