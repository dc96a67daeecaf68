"""A design or machine as an object whose fields can be changed."""

from __future__ import annotations

import copy
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from pagewalk import native
from pagewalk.config import schema
from pagewalk.errors import UserError
from pagewalk.host import files
from pagewalk.view.escape import visible
from pagewalk.view.output import reason

Json = dict[str, Any]


class Section(Mapping[str, Any]):
    """A table of a configuration: fields as attributes or as keys.

    >>> section = Section({"l2_tlb": {"entries": 2048}}, "mmu")
    >>> section.l2_tlb.entries = 4096
    >>> section["l2_tlb"]["entries"]
    4096

    A field that is not there cannot be set, so that a slip of the pen is seen;
    none can be removed.
    """

    __slots__ = ("_fields", "_path", "_valid")

    _fields: Json
    _path: str
    _valid: Json | None
    """The whole configuration before any change, in which the engine checks a value."""

    def __init__(
        self, fields: Mapping[str, Any], path: str = "", valid: Json | None = None
    ) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_valid", valid)
        object.__setattr__(
            self,
            "_fields",
            {
                key: Section(value, f"{path}.{key}" if path else key, valid)
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
        path = f"{self._path}.{key}" if self._path else key
        schema.check(path, value, self._valid)
        if isinstance(value, Mapping):
            value = Section(value, path, self._valid)
        self._fields[key] = value

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
        return f"<{self._path or 'configuration'}: {self._on_one_line()}>"

    def _on_one_line(self) -> str:
        """The fields on one line: values, and of tables their names."""
        values = [f"{k}={v!r}" for k, v in self._fields.items() if not isinstance(v, Section)]
        tables = [k for k, v in self._fields.items() if isinstance(v, Section)]
        return ", ".join([*values, *(f"{name}…" for name in tables)]) or "empty"

    def _flat(self) -> Iterator[tuple[str, Any]]:
        """Every key with its value; an empty table is a value itself."""
        for key, value in self._fields.items():
            if isinstance(value, Section) and value:
                yield from ((f"{key}.{inner}", v) for inner, v in value._flat())
            else:
                yield key, value

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th>{escape(key)}</th><td>{escape(_shown(value))}</td></tr>"
            for key, value in self._flat()
        )
        return f"<table><caption>{escape(self._path)}</caption>{rows}</table>"

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
        near = native.nearest(key, self._fields)
        hint = f"did you mean '{near}'?" if near else f"there are {', '.join(self._fields)}"
        # An AttributeError would make copy and pickle ask in vain for hooks.
        raise UserError(f"{where} has no field '{key}'; {hint}")


class Config(Section):
    """A shipped design or machine, or a file's, with changes on top.

    The fields are those of the whole resolved configuration, machine and
    design together; what is changed is carried into the run, nothing else is.
    """

    __slots__ = ("_original", "base", "label", "machine", "path")

    _original: Json
    base: str
    label: str | None
    machine: str | None
    """The machine that a design was made for; None where nothing was said, and of a machine."""
    path: Path

    def __init__(
        self,
        base: str,
        path: Path,
        fields: Mapping[str, Any],
        label: str | None = None,
        *,
        original: Mapping[str, Any] | None = None,
        machine: str | None = None,
    ) -> None:
        unchanged = copy.deepcopy(dict(fields if original is None else original))
        super().__init__(fields, valid=unchanged)
        object.__setattr__(self, "_original", unchanged)
        object.__setattr__(self, "machine", machine)
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "label", label)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "label":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key == "cores":
            # Without this, the default value would still follow the program's threads.
            self._original.pop(key, None)

    def __deepcopy__(self, _memo: object) -> Config:
        return Config(
            self.base,
            self.path,
            self.to_dict(),
            self.label,
            original=self._original,
            machine=self.machine,
        )

    def __repr__(self) -> str:
        changes = ", ".join(
            f"{key}={_shown(value)}" for key, value in Section(self.changes)._flat()
        )
        on = f" for {self.machine}" if self.machine else ""
        changed = f"changed {changes}; " if changes else ""
        return visible(f"<pagewalk.Config {self.name}{on}: {changed}{', '.join(self._fields)}>")

    def copy(self, label: str | None = None) -> Config:
        """An independent copy, to change further; `label` names it in results."""
        twin = copy.deepcopy(self)
        if label is not None:
            twin.label = label
        return twin

    @property
    def changes(self) -> Json:
        """The differences from the original, as nested dictionaries."""
        return _differences(self._original, self.to_dict())

    @property
    def name(self) -> str:
        """The name in results: the label, or else the base's name."""
        return self.label or (f"{self.base} (changed)" if self.changes else self.base)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the base's file with the changes on top, as TOML, whole or not at all."""
        merged = read(self.path)
        _merge(merged, self.changes)
        files.write(os.fspath(path), file_of(merged).encode())


def _shown(value: Any) -> str:
    return "{}" if isinstance(value, Section) else str(value)


def read(path: Path) -> Json:
    """A file of the engine as it is, so that it can lie elsewhere: its base's path is whole.

    Raises `UserError` for what cannot be read, or is no TOML.
    """
    try:
        fields = parse(text_of(path))
    except ValueError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
    base = fields.get("base")
    if isinstance(base, str) and is_path(base):
        fields["base"] = str((path.parent / base).resolve())
    return fields


def file_of(fields: Mapping[str, Any]) -> str:
    """The text of a file with such fields."""
    return "".join(f"{json.dumps(key)} = {toml(value, key)}\n" for key, value in fields.items())


LARGEST = 1 << 20
"""Bytes of a configuration file: a hundred times the largest shipped one. The engine has the same.

Ours; a file without end would fill the memory."""


def text_of(path: Path) -> str:
    """The text of a configuration file, which may be standard input or a shell's ``<(…)``.

    Raises `UserError` for a file that cannot be read, is larger than `LARGEST`, or is no text.
    Also raises it for the name of a device or a pipe, which may have no end.
    """
    try:
        # Opening a named pipe would wait for its writer.
        if not path.is_file() and path.exists() and not _is_open(path):
            what = "a folder" if path.is_dir() else "no regular file"
            raise UserError(f"{path}: is {what}; expected a .toml file")
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        rights = "; check its permissions" if isinstance(error, PermissionError) else ""
        raise UserError(f"{path}: cannot be read: {reason(error)}{rights}") from None
    if len(content) > LARGEST:
        raise UserError(f"{path}: is larger than {LARGEST >> 20} MiB; expected a .toml file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: is no text in UTF-8; expected a .toml file") from None


def _is_open(path: Path) -> bool:
    """True if it names an open descriptor: standard input, a shell's ``<(…)``."""
    return path == Path("/dev/stdin") or path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))


def is_path(name: str) -> bool:
    """True if the text names a design or a machine by its file."""
    return "/" in name or name.endswith(".toml")


def variant(name: str) -> tuple[str, str]:
    """A design's name and its changes, which stand in brackets: ``thp[mmu.walkers=1]``."""
    base, bracket, changes = name.strip().partition("[")
    if not bracket or not changes.endswith("]"):
        return name.strip(), ""
    return base.strip(), changes[:-1]


def listed(names: str) -> list[str]:
    """The names of a list with commas between them; those in brackets and quotes divide nothing."""
    found, depth, quote = [""], 0, ""
    for letter in names:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and depth:
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth = max(0, depth - 1)
        elif letter == "," and not depth:
            found.append("")
            continue
        found[-1] += letter
    return [name.strip() for name in found if name.strip()]


def parse(text: str) -> Json:
    """Reads TOML. Raises `ValueError` for what is none."""
    try:
        fields: Json = tomllib.loads(text)
    except RecursionError:
        raise ValueError("lists or tables in one another, too many") from None
    return fields


def _differences(before: Json, after: Json) -> Json:
    changes: Json = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict) and value.keys() == old.keys():
            if inner := _differences(old, value):
                changes[key] = inner
        elif value != old:
            changes[key] = value
    return changes


def _merge(into: Json, changes: Json) -> None:
    for key, value in changes.items():
        old = into.get(key)
        # One alternative in place of another replaces the whole table.
        if isinstance(value, dict) and isinstance(old, dict) and not old.keys().isdisjoint(value):
            _merge(old, value)
        else:
            into[key] = value


def toml(value: Any, key: str) -> str:
    """A value as TOML writes it on one line; JSON's strings and numbers are TOML's."""
    if isinstance(value, Mapping):
        inner = (f"{json.dumps(k)} = {toml(v, f'{key}.{k}')}" for k, v in value.items())
        return "{ " + ", ".join(inner) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(v, key) for v in value) + "]"
    if isinstance(value, bool) or (isinstance(value, (int, float)) and math.isfinite(value)):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    raise UserError(
        f"'{key}' cannot be {value!r}; expected a number, text, true or false, or a list"
    )
