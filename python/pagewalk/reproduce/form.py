"""The form of `paper.toml`: tables whose values are read by their kind.

A mistake is a `UserError` whose sentence begins with the key, dotted;
`pagewalk.config.toml_position` puts file and line before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.host import files
from pagewalk.view.escape import shown
from pagewalk.view.quantities import integer, parse_bytes, parse_count

Json = dict[str, Any]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def name(given: str, kind: str) -> str:
    """A name that files and folders can have. Raises `UserError` for another one."""
    return files.naming(
        given,
        _NAME.fullmatch(given),
        f"{kind} cannot be called {shown(given)}; expected letters, digits, '-', '_' and '.', "
        "beginning with none of '-' and '.'",
    )


def _module(given: str, where: str) -> str:
    return files.naming(
        given,
        _MODULE.fullmatch(given),
        f"{where}: {shown(given)} is no name of a figure; expected that of its file without "
        ".py: letters, digits, '-' and '_'",
    )


class Table:
    """A table; `where` is its path. Its methods raise `UserError` for values of another kind."""

    def __init__(self, fields: object, where: str = "") -> None:
        self.where = where
        if not isinstance(fields, dict):
            raise UserError(f"{where}: {shown(fields)} is no table; expected keys with values")
        self.fields: Json = fields

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.where}.{key}" if self.where else key

    def __contains__(self, key: str) -> bool:
        return key in self.fields

    def only(self, known: Iterable[str]) -> None:
        """Refuses keys that are not known, with the nearest that is."""
        names = list(known)
        for key in self.fields:
            if key not in names:
                near = native.nearest(key, names)
                hint = f"did you mean '{near}'? " if near else ""
                raise UserError(f"{self.at(key)} is unknown; {hint}there are {', '.join(names)}")

    def _value(self, key: str, expected: str) -> Any:
        if key not in self.fields:
            where = f"{self.where}: " if self.where else ""
            raise UserError(f"{where}'{key}' is missing; expected {expected}")
        return self.fields[key]

    def _wrong(self, key: str, expected: str) -> UserError:
        return UserError(f"{self.at(key)}: expected {expected}, found {shown(self.fields[key])}")

    def text(self, key: str, default: str | None = None) -> str:
        """A text; without a default it has to be there."""
        expected = "a text in quotes"
        if default is not None and key not in self.fields:
            return default
        value = self._value(key, expected)
        if not isinstance(value, str) or (default is None and not value.strip()):
            raise self._wrong(key, expected)
        return value

    def texts(self, key: str, *, needed: bool = False) -> list[str]:
        """A list of texts."""
        expected = "a list of texts in quotes"
        if not needed and key not in self.fields:
            return []
        value = self._value(key, expected)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._wrong(key, expected)
        return list(value)

    def figures(self, key: str, *, needed: bool = False) -> list[str]:
        """A list of figures, each once."""
        names = [_module(one, self.at(key)) for one in self.texts(key, needed=needed)]
        twice = [one for one in names if names.count(one) > 1]
        if twice:
            raise UserError(f"{self.at(key)}: '{twice[0]}' is there twice; expected it once")
        return names

    def whole(self, key: str, first: int, last: int, default: int) -> int:
        """A whole number from `first` to `last`."""
        if key not in self.fields:
            return default
        number = integer(self.fields[key])
        if number is None or not first <= number <= last:
            raise self._wrong(key, f"a whole number from {first} to {last}")
        return number

    def wholes(self, key: str, first: int, last: int) -> list[int]:
        """A list of whole numbers from `first` to `last`, empty where it is not there."""
        expected = f"a list of whole numbers from {first} to {last}"
        given = self.fields.get(key, [])
        if not isinstance(given, list):
            raise self._wrong(key, expected)
        numbers = [n for n in map(integer, given) if n is not None and first <= n <= last]
        if len(numbers) < len(given):
            raise self._wrong(key, expected)
        return numbers

    def seconds(self, key: str, default: float) -> float:
        """A time in seconds, 0 or more."""
        value = self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(key, "a number of seconds")
        if not (math.isfinite(value) and value >= 0):
            raise self._wrong(key, "a number of seconds, 0 or more")
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.fields.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def count(self, key: str, default: str | None = None, least: int = 0) -> int:
        """A count, as ``"2M"``."""
        if default is not None and key not in self.fields:
            return parse_count(default, self.at(key))
        number = parse_count(self._value(key, 'a count such as "2M"'), self.at(key))
        if number < least:
            raise self._wrong(key, f"a count of at least {least}")
        return number

    def size(self, key: str, default: str | None = None) -> int:
        """A size in bytes, as ``"4GiB"``; 0 where it is not there and has no default."""
        if key not in self.fields:
            return parse_bytes(default, self.at(key)) if default is not None else 0
        return parse_bytes(self.fields[key], self.at(key))

    def table(self, key: str) -> Table:
        """A table in it, empty where it is not there."""
        return Table(self.fields.get(key, {}), self.at(key))

    def tables(self, key: str, *, needed: bool = False) -> dict[str, Table]:
        """A table of tables, by name; `needed` has one at least."""
        expected = f"a table [{self.at(key)}.NAME]"
        if needed and not self._value(key, expected):
            raise self._wrong(key, expected)
        outer = self.table(key)
        return {name: Table(value, outer.at(name)) for name, value in outer.fields.items()}

    def settings(self, key: str) -> Json:
        """Keys of a configuration with their values."""
        _settable(self.table(key).fields, self.at(key))
        return self.table(key).fields


def _settable(value: object, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _settable(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            _settable(inner, where)
    elif not isinstance(value, (str, int, float)) or (
        isinstance(value, float) and not math.isfinite(value)
    ):
        raise UserError(
            f"{where}: expected a number, a text, true or false, found {shown(str(value))}"
        )
