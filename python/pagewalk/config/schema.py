"""The types of configuration values, by the engine's schema."""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any

from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.view.escape import shown

Json = dict[str, Any]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": Integral,
    "number": Real,
    "boolean": bool,
    "string": str,
    "array": (list, tuple),
    "object": Mapping,
    "null": type(None),
}


def check(path: str, value: Any, config: Json | None = None) -> None:
    """Refuses a value of the wrong type or outside its range; unknown keys pass.

    Ranges are the engine's: `config` is a valid configuration, in which it checks the value.
    The engine checks relations between keys when it builds the machine.

    Raises `UserError` with the expected form.
    """
    found = _at(path)
    if found is None:
        return
    if config is not None and isinstance(value, Real) and not isinstance(value, bool):
        _check_range(found, path, value, config)
    if _accepts(found, value):
        return
    bounds = next((one for one in _alternatives(found) if "minimum" in one), None)
    within = "" if bounds is None else f" from {bounds['minimum']}"
    if bounds is not None and "maximum" in bounds:
        within += f" to {bounds['maximum']}"
    raise UserError(
        f"{shown(value)} is not possible; expected {_expected(path)}{within}",
        about=path,
        option=path,
    )


_LARGEST = {f"uint{bits}": 2**bits - 1 for bits in (8, 16, 32, 64)}
"""The largest value of a type, by the schema's name of it."""
_ALONE = re.compile(r"is [^ ,]+; (expected [^(]+)")
"""An error about a value that no other key can make right: it names no other value in brackets."""


def _check_range(schema: Json, path: str, value: Any, config: Json) -> None:
    """Raises the engine's `UserError` for a number that it refuses whatever the other keys are."""
    number = next((one for one in _alternatives(schema) if _is_kind(one, value)), None)
    if number is None:
        return
    # JSON has no infinity, and a type of the engine no number outside its bounds.
    largest = number.get("maximum", _LARGEST.get(number.get("format", ""), sys.float_info.max))
    least = number.get("minimum", -sys.float_info.max)
    nearest = largest if math.isnan(value) else min(max(value, least), largest)
    changed = copy.deepcopy(config)
    *tables, key = path.split(".")
    table = changed
    for name in tables:
        table = table.get(name, {})
    if key not in table:
        return
    table[key] = int(nearest) if isinstance(value, Integral) else float(nearest)
    try:
        native.check_config(changed)
    except UserError as error:
        alone = _ALONE.fullmatch(error.text)
        if error.option == path and alone:
            raise UserError(f"is {value}; {alone[1]}", lead=(path, " "), option=path) from None


@cache
def _root() -> Json:
    return native.schema()


def _resolved(schema: Json) -> Json:
    while ref := schema.get("$ref"):
        schema = _root()["$defs"][ref.rsplit("/", 1)[-1]]
    return schema


def _alternatives(schema: Json) -> list[Json]:
    """The schemas of which a value must match one: those of a choice, or the schema itself."""
    schema = _resolved(schema)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return [inner for one in schema[word] for inner in _alternatives(one)]
    if "allOf" in schema:
        return _alternatives(schema["allOf"][0])
    return [schema]


def _at(path: str) -> Json | None:
    """The schema of a key; None if the schema has no such key."""
    here: Json = _root()
    for name in path.split("."):
        inner = None
        for one in _alternatives(here):
            inner = one.get("properties", {}).get(name)
            rest = one.get("additionalProperties")
            inner = inner or (rest if isinstance(rest, dict) else None)
            if inner is not None:
                break
        if inner is None:
            return None
        here = inner
    return here


def _accepts(schema: Json, value: Any) -> bool:
    return any(_is(one, value) for one in _alternatives(schema))


def _is(schema: Json, value: Any) -> bool:
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if "type" not in schema:
        return True
    if not _is_kind(schema, value):
        return False
    if isinstance(value, Real) and not isinstance(value, bool):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def _is_kind(schema: Json, value: Any) -> bool:
    """True for a value of the schema's types, in its range or not."""
    names = schema.get("type", ())
    if isinstance(value, bool):
        return "boolean" in names
    listed = [names] if isinstance(names, str) else names
    return any(isinstance(value, _TYPES[name]) for name in listed)


def _expected(path: str) -> str:
    """The form of a key's values, as ``pagewalk explain`` has it."""
    parts = path.split(".")
    for key in native.config_keys():
        names = key["path"].split(".")
        if len(names) == len(parts) and all(
            own.startswith("<") or own == given for own, given in zip(names, parts, strict=True)
        ):
            return key["expected"]
    return "a table"
