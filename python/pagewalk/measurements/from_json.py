"""Dataclasses that are read from JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

Read = Callable[[Any], Any]
Made = TypeVar("Made", bound="FromJson")


class FromJson:
    """A dataclass that is read from JSON: keys are its fields', `metadata` may name another key.

    Type hints name classes. A class that is defined later stands for an earlier one of its name.
    Keys without a field are ignored. A key that is missing, or null where its type has no None,
    leaves the field's default. A missing key that may be null and has no default is None.
    """

    _named: ClassVar[dict[str, type[FromJson]]] = {}

    def __init_subclass__(cls) -> None:
        FromJson._named[cls.__name__] = cls

    @classmethod
    def from_json(cls: type[Made], data: dict[str, Any]) -> Made:
        """Makes an object from JSON."""
        given = {}
        for name, key, optional, required, read in _keys(cls):  # type: ignore[arg-type]
            value = data.get(key)
            if value is not None:
                given[name] = value if read is None else read(value)
            elif optional and (required or key in data):
                given[name] = None
        return cls(**given)


class _Key(NamedTuple):
    field: str
    key: str
    optional: bool
    required: bool
    read: Read | None


@cache
def _keys(cls: type[Any]) -> list[_Key]:
    hints = get_type_hints(cls, localns=dict(FromJson._named))
    return [
        _Key(
            field.name,
            field.metadata.get("key", field.name),
            NoneType in get_args(hints[field.name]) or hints[field.name] is Any,
            field.default is MISSING and field.default_factory is MISSING,
            _reader(hints[field.name]),
        )
        for field in fields(cls)
    ]


def _reader(hint: Any) -> Read | None:
    """Makes a value of JSON one of this type; None where it is one already."""
    origin, inner = get_origin(hint), [one for one in get_args(hint) if one is not NoneType]
    if origin is tuple:
        return tuple
    if origin is None:
        return getattr(hint, "from_json", None)
    item = _reader(inner[-1])
    if item is None or origin is UnionType:
        return item if len(inner) == 1 else None
    return partial(_each_by_name if origin is dict else _each, item)


def _each(read: Read, values: list[Any]) -> list[Any]:
    return [read(value) for value in values]


def _each_by_name(read: Read, values: dict[str, Any]) -> dict[str, Any]:
    return {name: read(value) for name, value in values.items()}
