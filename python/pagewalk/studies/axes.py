"""Axes of a study: the columns that names stand for, and the values in texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.config import options
from pagewalk.config.config import listed, parse, toml, variant
from pagewalk.errors import UserError
from pagewalk.studies.point import DESIGN, MACHINE, SEED, Column, Value
from pagewalk.view.escape import shown
from pagewalk.view.quantities import parse_bytes, parse_count

if TYPE_CHECKING:
    from pagewalk.engine_types import Program

PROGRAMS = ("workload", "trace", "mix")
PARAM = "param."
LIMITS = {
    "skip": "Instructions fast-forwarded",
    "warmup": "Warm-up instructions, simulated but not measured",
    "instructions": "Instructions measured",
    "warmup_requests": "Warm-up requests, simulated but not measured",
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
    SEED: Column(SEED, "", int, "Random seed"),
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
    """Keys with a user-chosen part, as ``mmu.l2.<name>.entries``."""
    parts = ((path, re.split(r"<\w+>", path)) for path in _keys() if "<" in path)
    return [(re.compile("[^.]+".join(map(re.escape, texts))), path) for path, texts in parts]


def key_of(name: str) -> dict[str, Any] | None:
    """The engine's definition of a configuration key."""
    found = _keys().get(name)
    if found is not None:
        return found
    return next((_keys()[path] for form, path in _patterns() if form.fullmatch(name)), None)


@cache
def column(name: str) -> Column:
    """The column of an axis's name. Raises `UserError` for an unknown name."""
    if name in _OWN:
        return _OWN[name]
    if name.startswith(PARAM):
        return _parameter(name)
    key = key_of(name)
    if key is None:
        hint = native.suggestion(name, [*_OWN, *_keys()])
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


@cache
def _programs() -> dict[str, Program]:
    return {program["name"]: program for program in native.workloads()}


def _parameter(name: str) -> Column:
    """A parameter of some program. Its values are texts, or numbers where all of them are."""
    own = name.removeprefix(PARAM)
    every = [one for program in _programs().values() for one in program["params"]]
    found = [one for one in every if one["name"] == own]
    if not found:
        near = native.nearest(own, [one["name"] for one in every])
        hint = f"; did you mean '{PARAM}{near}'?" if near else ""
        raise UserError(
            f"'{name}' is no parameter of any program{hint}; 'pagewalk explain' with a program's "
            "name lists its own"
        )
    units = {one["unit"] for one in found}
    meanings = {one["meaning"] for one in found}
    meaning = meanings.pop() if len(meanings) == 1 else f"Parameter {own} of the program"
    return Column(name, units.pop() if len(units) == 1 else "", str, meaning)


def read(name: str, text: object, where: str) -> Value:
    """One value of an axis. Raises `UserError`, beginning with `where`, for an invalid one."""
    at = _at(where, name)
    kind = _known(name, where)
    if name == "size":
        return parse_bytes(text, at)  # type: ignore[arg-type]
    if name in LIMITS or name in (SEED, "threads"):
        number = parse_count(text, at)  # type: ignore[arg-type]
        if number == 0 and name in _POSITIVE:
            raise UserError(f"{at}: 0 is not possible; expected 1 or more")
        return number
    if name.startswith(PARAM):
        return _of_parameter(kind, text, at)
    if name in _TEXTS:
        if isinstance(text, str):
            return text
        raise UserError(f"{at}: {shown(text)} is no name; expected a text")
    return _of_key(kind, text, at)


def _known(name: str, where: str) -> Column:
    try:
        return column(name)
    except UserError as error:
        why = str(error).removeprefix(f"'{name}' ")
        raise UserError(f"{_at(where, name)}: {why}") from None


def _at(where: str, name: str) -> str:
    """The place of a value: an option and a name, or a key of a file with dots."""
    if where in (name, f"{name}s"):
        return where
    if where.startswith("-"):
        return f"{where}: {name}"
    return f"{where}.{name.removeprefix(PARAM) if where == 'params' else name}"


def _of_parameter(kind: Column, text: object, at: str) -> Value:
    """A value of a program's parameter: a number where it is written as one."""
    if isinstance(text, bool):
        return "yes" if text else "no"
    if isinstance(text, float):
        return text
    if isinstance(text, int):
        return text if abs(text) < _LARGEST else str(text)
    if not isinstance(text, str):
        raise UserError(f"{at}: {shown(text)} is not possible; expected a text or a number")
    if kind.unit == "bytes":
        with suppress(UserError):
            return parse_bytes(text, at)
    if _WHOLE.fullmatch(text):
        return int(text) if int(text) < _LARGEST else text
    return float(text) if _FRACTION.fullmatch(text) else text


_POSITIVE = ("threads", "instructions", "requests")
_LARGEST = 2**63
"""Numbers of a table's columns lie below it."""
_WHOLE = re.compile(r"0|[1-9]\d{0,18}")
_FRACTION = re.compile(r"(?:0|[1-9]\d*)\.\d+")


def _of_key(kind: Column, text: object, at: str) -> Value:
    """A value of a configuration key; a list or a table as TOML writes it."""
    value: Any = _toml(text) if isinstance(text, str) else text
    expected = (key_of(kind.name) or {})["expected"]
    if kind.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind.kind is str:
        if not isinstance(value, str):
            return text if isinstance(text, str) else toml(value, at)
        choices = re.findall(r'"([^"]*)"', expected) if expected.startswith("one of") else []
        if value in choices:
            return str(value)
        hint = native.suggestion(value, choices)
        raise UserError(f"{at}: {shown(text)} is not possible; expected {expected}{hint}")
    wrong = isinstance(value, bool) is not (kind.kind is bool) or not isinstance(value, kind.kind)
    if wrong or abs(value) >= _LARGEST:
        ends = re.fullmatch(r"(\d+)[-:](\d+)", text) if isinstance(text, str) else None
        hint = f", or a range as {ends[1]}..{ends[2]}+1" if ends else ""
        raise UserError(f"{at}: {shown(text)} is not possible; expected {expected}{hint}")
    return kind.kind(value)


def _toml(text: str) -> Any:
    """The value of a text in TOML, or the text itself if it is no TOML."""
    try:
        return parse(f"value = {text}")["value"]
    except ValueError:
        return text


_BETWEEN = re.compile(r"\d[^./]*(?:\.\d[^./]*)?\.\..*")
"""Matches the beginning of a range, but no path."""
_RANGE = re.compile(r"(?P<first>[^.]+(?:\.\d+)?)\.\.(?P<last>.+?)(?P<way>[*+])(?P<by>[^*+]+)")


def values(name: str, texts: object, where: str) -> list[Value]:
    """The values of a name: a text with commas and ranges, or a list.

    ``512..16384*2`` are 512, 1024 and so on to 16384; ``0..10+2`` are 0, 2 and so on to 10.
    Raises `UserError` for an invalid value, or the same value twice.
    """
    _known(name, where)
    if isinstance(texts, str):
        given: Sequence[object] = _mixes(texts) if name == "mix" else listed(texts)
    elif isinstance(texts, (list, tuple)):
        given = texts
    else:
        given = [texts]
    found: list[Value] = []
    for one in given:
        if isinstance(one, str) and name not in _TEXTS and _BETWEEN.fullmatch(one):
            found += _range(name, one, where)
        elif name == "trace" and isinstance(one, str):
            found += _traces(one, where)
        else:
            found.append(read(name, one, where))
    if not found:
        raise UserError(f"{_at(where, name)}: has no value; expected one or more, as {name}=A,B")
    if name.startswith(PARAM):
        found = _of_one_kind(found)
    if len(set(found)) < len(found):
        twice = next(value for i, value in enumerate(found) if value in found[:i])
        raise UserError(f"{_at(where, name)}: has {shown(twice)} twice; expected each value once")
    return found


def _of_one_kind(found: list[Value]) -> list[Value]:
    """Values of a parameter, all whole numbers, all fractions or all texts."""
    if all(isinstance(value, int) for value in found):
        return found
    if all(isinstance(value, (int, float)) for value in found):
        return [float(value) for value in found if value is not None]
    return [parameter(value) for value in found]


def _mixes(text: str) -> list[str]:
    """The mixes of a text, which is one, or several in brackets: ``[gups,bfs],[gups,gups]``."""
    parts = listed(text)
    if all(part.startswith("[") and part.endswith("]") for part in parts):
        return [part[1:-1] for part in parts]
    return [text]


def _range(name: str, text: str, where: str) -> list[Value]:
    written = f"{_at(where, name)}: {shown(text)}"
    ends = _RANGE.fullmatch(text)
    if ends is None or column(name).kind is bool:
        raise UserError(
            f"{written} is no range; expected FIRST..LAST*FACTOR, as 512..16384*2, or "
            "FIRST..LAST+STEP, as 0..10+2"
        )
    first, last = (_end(name, ends[part], where) for part in ("first", "last"))
    if ends["way"] == "*":
        by = _factor(ends["by"])
        if by <= 1 or first <= 0 or last < first:
            raise UserError(
                f"{written} is not possible; expected FIRST..LAST*FACTOR with 0 < FIRST <= LAST "
                "and a FACTOR above 1, as 512..16384*2"
            )
        steps: Callable[[int], float] = lambda i: first * by**i  # noqa: E731
        whole = isinstance(first, int) and isinstance(last, int)
    else:
        step = _end(name, ends["by"], where)
        if step <= 0 or last < first:
            raise UserError(
                f"{written} is not possible; expected FIRST..LAST+STEP with FIRST <= LAST and a "
                "STEP above 0, as 0..10+2"
            )
        steps = lambda i: first + step * i  # noqa: E731
        whole = isinstance(first, int) and isinstance(step, int)
    found: list[Value] = []
    for i in range(_MOST + 1):
        # Digits that come of binary fractions alone are left out: 0.3, not 0.30000000000000004.
        value = round(steps(i)) if whole else float(f"{steps(i):.12g}")
        if value > last:
            return list(dict.fromkeys(found))
        found.append(value)
    raise UserError(f"{written} has more than {_MOST} values; expected fewer")


def _end(name: str, text: str, where: str) -> int | float:
    """A number of a range. Raises `UserError` for another text."""
    value = read(name, text, where)
    if isinstance(value, str):
        value = parse_count(text, _at(where, name))
    assert isinstance(value, (int, float))
    return value


def _factor(text: str) -> int | float:
    """The factor of a geometric range; 0 if the text is no number."""
    try:
        number = float(text)
    except ValueError:
        return 0
    # Whole numbers stay exact, however large.
    return int(number) if number.is_integer() else number


def _traces(text: str, where: str) -> list[Value]:
    """The files that match a pattern with ``*``, in order; another name as it is."""
    if not any(letter in text for letter in "*?[") or Path(text).exists():
        return [text]
    path = Path(text)
    found = sorted(str(one) for one in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        raise UserError(f"{_at(where, 'trace')}: there is no file '{text}'; check the name")
    return list(found)


def axis(pairs: Sequence[tuple[str, object]], where: str) -> Axis:
    """The axis of names with their values; several names step together."""
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise UserError(f"{where}: the same name stands there twice; expected each once")
    lists = [values(name, given, where) for name, given in pairs]
    if len({len(one) for one in lists}) > 1:
        lengths = ", ".join(f"{len(one)} of {name}" for name, one in zip(names, lists, strict=True))
        raise UserError(
            f"{where}: what steps together needs as many values each, and there are {lengths}; "
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


def changes(design: str) -> dict[str, Any]:
    """The changes in brackets of a design's name, ``thp[mmu.walkers=1,…]``, as TOML values.

    Raises `UserError` for an invalid change, or an unknown key.
    """
    found = {}
    for key, text in options.assignments(listed(variant(design)[1]), "designs").items():
        if key_of(key) is None:
            hint = native.suggestion(key, _keys())
            raise UserError(
                f"designs: {shown(design)}: there is no key '{key}' of the configuration{hint}"
            )
        found[key] = _toml(text)
    return found


def parameters(workload: str) -> list[str]:
    """The parameters of a built-in program. Raises `UserError` for an unknown program."""
    programs = _programs()
    if workload not in programs:
        hint = native.suggestion(workload, programs)
        raise UserError(f"there is no program '{workload}'{hint}; 'pagewalk workloads' lists them")
    return [parameter["name"] for parameter in programs[workload]["params"]]


SIZING = ("scale", "vertices", "keys")
"""Parameters that set the size of a program."""


@cache
def default_size(workload: str) -> int:
    """Default size of a built-in program, bytes."""
    return int(_programs()[workload]["default_size"])


def sized(workload: str, params: Mapping[str, str]) -> int:
    """Estimated bytes of a program by its parameters; they steer the order of runs only."""
    try:
        if "scale" in params or "vertices" in params:
            vertices = int(params.get("vertices") or 2 ** int(params["scale"]))
            return vertices * (16 + 8 * int(params.get("degree", 16)))
        if "keys" in params:
            return int(params["keys"]) * (128 + int(params.get("value", 64)))
    except ValueError:
        # The engine refuses a value that is no number, and names what it expects.
        pass
    return default_size(workload)


def parameter(value: Value) -> str:
    """The value of a parameter as a program reads it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_HOST = {
    "micro": (0.01, 0.0),
    "graph": (0.17, 0.05),
    "science": (0.01, 0.05),
    "key-value": (0.3, 5.0),
    "mummer": (2.9, 50.0),
}
"""For a group of programs, or one program: bytes of host memory for each byte of its own, and
seconds of start for each GiB. They affect the order of runs only."""
_HOST_LEAST = 60 << 20


def host(workload: str, size: int) -> tuple[int, float]:
    """Estimated host memory in bytes and start in seconds of a program of `size` bytes."""
    group = _programs()[workload]["group"]
    share, seconds = _HOST.get(workload) or _HOST[group]
    return _HOST_LEAST + int(share * size), 0.1 + seconds * size / 2**30


def setting(value: Value) -> Any:
    """A value of a configuration key as a design's file has it."""
    return _toml(value) if isinstance(value, str) else value
