"""Axes of a study: what a name stands for, and the values that a text gives it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pagewalk import native, options
from pagewalk.config import listed, parse
from pagewalk.errors import UserError
from pagewalk.quantities import parse_bytes, parse_count
from pagewalk.studies.point import DESIGN, MACHINE, SEED, Column, Value
from pagewalk.visible import shown

PROGRAMS = ("workload", "trace", "mix")
PARAM = "param."
LIMITS = {
    "skip": "Instructions passed over",
    "warmup": "Instructions simulated, not counted",
    "instructions": "Instructions measured",
    "warmup_requests": "Requests simulated, not counted",
    "requests": "Requests measured",
}
_TEXTS = {
    MACHINE: "The simulated machine",
    DESIGN: "The translation design",
    "workload": "The built-in program",
    "trace": "The recorded trace",
    "mix": "The programs side by side",
}
_OWN = {
    **{name: Column(name, "", str, meaning) for name, meaning in _TEXTS.items()},
    "size": Column("size", "bytes", int, "Memory of the program"),
    "threads": Column("threads", "threads", int, "Threads of the program"),
    **{
        name: Column(
            name, "requests" if name.endswith("requests") else "instructions", int, meaning
        )
        for name, meaning in LIMITS.items()
    },
    SEED: Column(SEED, "", int, "Of all random choices"),
}
"""Names that are no keys of a configuration."""
_MOST = 100_000
"""Values of one axis: more are a slip of the pen."""


@dataclass(frozen=True)
class Axis:
    """Columns whose values step together, and the values of each step."""

    names: tuple[str, ...]
    steps: tuple[tuple[Value, ...], ...]


@cache
def _keys() -> dict[str, dict[str, Any]]:
    return {key["path"]: dict(key) for key in native.config_keys()}


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Keys with a part that somebody names, as ``mmu.l2.<name>.entries``."""
    parts = ((path, re.split(r"<\w+>", path)) for path in _keys() if "<" in path)
    return [(re.compile("[^.]+".join(map(re.escape, texts))), path) for path, texts in parts]


def key_of(name: str) -> dict[str, Any] | None:
    """What the engine says of a configuration key."""
    found = _keys().get(name)
    if found is not None:
        return found
    return next((_keys()[path] for form, path in _patterns() if form.fullmatch(name)), None)


@cache
def column(name: str) -> Column:
    """What a name of an axis stands for. Raises `UserError` for one that stands for nothing."""
    if name in _OWN:
        return _OWN[name]
    if name.startswith(PARAM) and len(name) > len(PARAM):
        return Column(name, "", str, f"Parameter {name.removeprefix(PARAM)} of the program")
    key = key_of(name)
    if key is None:
        near = native.nearest(name, [*_OWN, *_keys()])
        hint = f"; did you mean '{near}'?" if near else ""
        raise UserError(
            f"'{name}' is nothing that a study can vary; expected design, machine, workload, size, "
            f"threads, param.NAME, instructions and other limits, or a configuration key{hint}"
        )
    kinds: tuple[tuple[str, Any], ...] = (
        ("whole number", int), ("number", float), ("true or false", bool),
    )  # fmt: skip
    kind = next((kind for words, kind in kinds if words in key["expected"]), str)
    if "list" in key["expected"] or "one of" in key["expected"]:
        kind = str
    return Column(name, key["unit"], kind, key["text"].split("\n")[0])


def read(name: str, text: object, where: str) -> Value:
    """One value of an axis. Raises `UserError`, beginning with `where`, for what is none."""
    kind = column(name)
    if name == "size":
        return parse_bytes(text, f"{where}: size")  # type: ignore[arg-type]
    if name in LIMITS or name in (SEED, "threads"):
        return parse_count(text, f"{where}: {name}")  # type: ignore[arg-type]
    if name.startswith(PARAM):
        return str(text).lower() if isinstance(text, bool) else str(text)
    if name in _TEXTS:
        if isinstance(text, str):
            return text
        raise UserError(f"{where}: {name}: {shown(text)} is no name; expected a text")
    return _of_key(kind, text, where)


def _of_key(kind: Column, text: object, where: str) -> Value:
    """A value of a configuration key."""
    value = _toml(text) if isinstance(text, str) else text
    if kind.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind.kind is str:
        # As it would be written: lists and tables too.
        return text if isinstance(text, str) else str(value)
    if isinstance(value, bool) is not (kind.kind is bool) or not isinstance(value, kind.kind):
        expected = (key_of(kind.name) or {})["expected"]
        raise UserError(f"{where}: {kind.name}: {shown(text)} is not possible; expected {expected}")
    return value


def _toml(text: str) -> Any:
    """What a text says in TOML; itself where it says nothing there."""
    try:
        return parse(f"value = {text}")["value"]
    except ValueError:
        return text


_RANGE = re.compile(r"(?P<first>[^.]+(?:\.\d+)?)\.\.(?P<last>.+?)(?P<way>[*+])(?P<by>[^*+]+)")


def values(name: str, texts: object, where: str) -> list[Value]:
    """The values of a name: a text with commas and ranges, or a list.

    ``512..16384*2`` are 512, 1024 and so on to 16384; ``0..10+2`` are 0, 2 and so on to 10.
    Raises `UserError` for what is none, or for the same value twice.
    """
    if isinstance(texts, str):
        given: Sequence[object] = listed(texts)
    elif isinstance(texts, (list, tuple)):
        given = texts
    else:
        given = [texts]
    found: list[Value] = []
    for one in given:
        ends = _RANGE.fullmatch(one) if isinstance(one, str) and name not in _TEXTS else None
        if ends is not None and column(name).kind in (int, float):
            found += _range(name, ends, where)
        elif name == "trace":
            found += _traces(str(one), where)
        else:
            found.append(read(name, one, where))
    if not found:
        raise UserError(f"{where}: {name} has no value; expected one or more, as {name}=A,B")
    twice = next((value for i, value in enumerate(found) if value in found[:i]), None)
    if twice is not None:
        raise UserError(f"{where}: {name} has {shown(twice)} twice; expected each value once")
    return found


def _range(name: str, ends: re.Match[str], where: str) -> list[Value]:
    first, last = (read(name, ends[part], where) for part in ("first", "last"))
    assert isinstance(first, (int, float))
    assert isinstance(last, (int, float))
    written = f"{where}: {name}: {shown(ends[0])}"
    if ends["way"] == "*":
        try:
            by = float(ends["by"])
        except ValueError:
            by = 0.0
        if by <= 1 or first <= 0 or last < first:
            raise UserError(
                f"{written} is not possible; expected FIRST..LAST*FACTOR with 0 < FIRST <= LAST "
                "and a FACTOR above 1, as 512..16384*2"
            )
        steps: Callable[[int], float] = lambda i: first * by**i  # noqa: E731
    else:
        step = read(name, ends["by"], where)
        assert isinstance(step, (int, float))
        if step <= 0 or last < first:
            raise UserError(
                f"{written} is not possible; expected FIRST..LAST+STEP with FIRST <= LAST and a "
                "STEP above 0, as 0..10+2"
            )
        steps = lambda i: first + step * i  # noqa: E731
    found: list[Value] = []
    # A little room for the last of a range of fractions.
    while (value := steps(len(found))) <= last * (1 + 1e-9):
        found.append(round(value) if column(name).kind is int else value)
        if len(found) > _MOST:
            raise UserError(f"{written} has more than {_MOST} values; expected fewer")
    return list(dict.fromkeys(found))


def _traces(text: str, where: str) -> list[Value]:
    """The files that a name with ``*`` stands for, in order; others as they are."""
    if not any(letter in text for letter in "*?["):
        return [text]
    path = Path(text)
    found = sorted(str(one) for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        raise UserError(f"{where}: there is no file '{text}'; check the name")
    return list(found)


def axis(pairs: Sequence[tuple[str, object]], where: str) -> Axis:
    """Names with their values, which step together where there are several."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise UserError(f"{where}: the same name stands there twice; expected each once")
    lists = [values(name, given, where) for name, given in pairs]
    if len({len(one) for one in lists}) > 1:
        told = ", ".join(f"{len(one)} of {name}" for name, one in zip(names, lists, strict=True))
        raise UserError(
            f"{where}: what steps together needs as many values each, and there are {told}; "
            "expected equally many"
        )
    return Axis(tuple(names), tuple(zip(*lists, strict=True)))


def written(text: str, where: str = "--vary") -> Axis:
    """Reads ``NAME=VALUES``, or several with ``;`` between them that step together."""
    pairs: list[tuple[str, object]] = []
    for part in text.split(";"):
        name, equals, given = part.partition("=")
        if not equals or not name.strip():
            raise UserError(
                f"{where}: {shown(text)} is not understood; expected NAME=VALUES, as size=1GiB,4GiB"
            )
        pairs.append((name.strip(), given.strip()))
    return axis(pairs, where)


def changes(text: str) -> dict[str, Any]:
    """What the brackets of a design's name change, ``mmu.walkers=1,…``, as TOML has it."""
    pairs = options.assignments(listed(text), "--designs")
    return {key: _toml(value) for key, value in pairs.items()}


def parameters(workload: str) -> list[str]:
    """The parameters of a built-in program. Raises `UserError` for one that there is not."""
    programs = {one["name"]: one for one in native.workloads()}
    if workload not in programs:
        near = native.nearest(workload, programs)
        hint = f"; did you mean '{near}'?" if near else ""
        raise UserError(f"there is no program '{workload}'{hint}; 'pagewalk workloads' lists them")
    return [parameter["name"] for parameter in programs[workload]["params"]]


def default_size(workload: str) -> int:
    """Bytes of a built-in program where nobody says how many."""
    return next(int(one["default_size"]) for one in native.workloads() if one["name"] == workload)


_HOST = {
    "micro": (0.01, 0.0),
    "graph": (0.17, 0.05),
    "science": (0.01, 0.05),
    "key-value": (0.3, 5.0),
    "mummer": (2.9, 50.0),
}
"""Of a group of programs, or one: bytes of the host for a byte of its own, and seconds until it
begins for each GiB. Measured with 256 MiB and 1 GiB of each; they steer the order of runs."""
_HOST_LEAST = 60 << 20


def host(workload: str, size: int) -> tuple[int, float]:
    """About how much of the host's memory a program of so many bytes takes, and its start."""
    group = next(one["group"] for one in native.workloads() if one["name"] == workload)
    share, seconds = _HOST.get(workload) or _HOST[group]
    return _HOST_LEAST + int(share * size), 0.1 + seconds * size / 2**30


def setting(name: str, value: Value) -> Any:
    """A value of a configuration key as a design's file has it."""
    return _toml(value) if isinstance(value, str) else value
