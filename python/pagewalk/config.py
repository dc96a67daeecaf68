"""A design or machine as an object whose fields can be changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, MutableMapping
from difflib import get_close_matches
from typing import Any

from pagewalk.errors import UserError

Json = dict[str, Any]


class Section(MutableMapping[str, Any]):
    """A table of a configuration: fields as attributes or as keys.

    >>> section = Section({"l2_tlb": {"entries": 2048}}, "mmu")
    >>> section.l2_tlb.entries = 4096
    >>> section["l2_tlb"]["entries"]
    4096

    A field that is not there cannot be set, so that a slip of the pen is seen.
    """

    __slots__ = ("_fields", "_path")

    _fields: Json
    _path: str

    def __init__(self, fields: Mapping[str, Any], path: str = "") -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(
            self,
            "_fields",
            {
                key: Section(value, f"{path}.{key}" if path else key)
                if isinstance(value, Mapping)
                else copy.deepcopy(value)
                for key, value in fields.items()
            },
        )

    def __getitem__(self, key: str) -> Any:
        self._check(key)
        return self._fields[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._check(key)
        if isinstance(value, Mapping):
            value = Section(value, f"{self._path}.{key}" if self._path else key)
        self._fields[key] = value

    def __delitem__(self, key: str) -> None:
        self._check(key)
        del self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __repr__(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def __deepcopy__(self, _memo: object) -> Section:
        return Section(self.to_dict(), self._path)

    def to_dict(self) -> Json:
        """Plain nested dictionaries."""
        return {
            key: value.to_dict() if isinstance(value, Section) else copy.deepcopy(value)
            for key, value in self._fields.items()
        }

    def _check(self, key: str) -> None:
        if key in self._fields:
            return
        where = f"'{self._path}'" if self._path else "this configuration"
        near = get_close_matches(key, self._fields, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(self._fields)}"
        # An AttributeError would make copy and pickle ask in vain for hooks.
        raise UserError(f"{where} has no field '{key}'; {hint}")


class Config(Section):
    """A shipped design or machine, or a file's, with changes on top."""

    __slots__ = ("_original", "base", "label")

    _original: Json
    base: str
    label: str

    def __init__(self, base: str, fields: Mapping[str, Any], label: str | None = None) -> None:
        super().__init__(fields)
        object.__setattr__(self, "_original", copy.deepcopy(dict(fields)))
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "label", label or base)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "label":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __deepcopy__(self, _memo: object) -> Config:
        twin = Config(self.base, self._original, self.label)
        for key, value in self.items():
            twin[key] = value.to_dict() if isinstance(value, Section) else value
        return twin

    def copy(self, label: str | None = None) -> Config:
        """An independent copy, to change further."""
        twin = copy.deepcopy(self)
        if label is not None:
            twin.label = label
        return twin

    @property
    def changes(self) -> list[str]:
        """What differs from the original, as ``--set`` writes it."""
        return list(_differences("", self._original, self.to_dict()))


def _differences(path: str, before: Json, after: Json) -> Iterator[str]:
    for key, value in after.items():
        here = f"{path}.{key}" if path else key
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            yield from _differences(here, old, value)
        elif value != old:
            yield f"{here}={toml(value)}"


def toml(value: Any) -> str:
    """A value as TOML writes it; JSON's strings, numbers and lists are TOML's."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)
