"""What the engine answers, key by key. Results of runs are `pagewalk.Result`."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any, TypedDict, TypeVar

Entry = TypeVar("Entry")


class Catalogue(list[Entry]):
    """What is shipped of a kind, an entry each; shown by names, in a notebook with descriptions."""

    def __init__(self, kind: str, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __repr__(self) -> str:
        names = ", ".join(str(entry["name"]) for entry in self)  # type: ignore[index]
        return f"<{len(self)} {self.kind}: {names}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(str(entry['name']))}</th>"  # type: ignore[index]
            f"<td>{escape(str(entry['description']))}</td></tr>"  # type: ignore[index]
            for entry in self
        )
        return f"<table>{rows}</table>"


class Shipped(TypedDict):
    """A design or machine that is shipped."""

    name: str
    description: str
    source: str
    path: str


class Parameter(TypedDict):
    """What ``--param`` takes of a built-in program."""

    name: str
    unit: str
    default: str
    range: str
    meaning: str


class Program(TypedDict):
    """A built-in program; `default_size` in bytes."""

    name: str
    group: str
    description: str
    stresses: str
    source: str
    default_size: int
    size_range: str
    max_threads: int
    params: list[Parameter]


class _Sense(TypedDict):
    kind: str
    name: str
    text: str
    unit: str
    source: str


class _Setting(TypedDict):
    key: str
    value: Any
    comment: str


class Setting(_Setting, total=False):
    """A key that a file sets, with the file's comment; `default` where one is defined."""

    default: Any


class Sense(_Sense, total=False):
    """One sense of a name.

    `workload` is there where it names a built-in program, `settings` of a design, a machine or a
    paper, `default` and `reader` of a configuration key: the part of the machine that it is for.
    """

    workload: Program
    settings: list[Setting]
    default: Any
    reader: str


class Explanation(TypedDict, total=False):
    """All senses of a name in `found`, or the names `nearest` to one that has none."""

    found: list[Sense]
    nearest: list[str]


class Resolved(TypedDict):
    """A design on a machine, with every key of its configuration."""

    name: str
    description: str | None
    config: dict[str, Any]


class _Key(TypedDict):
    path: str
    text: str
    expected: str
    unit: str
    reader: str


class Key(_Key, total=False):
    """A configuration key: its path, what it means, the values it takes, and their unit.

    `reader` is the part of the machine that it is for; `default` is there where a file may leave
    the key out.
    """

    default: Any


class Metric(TypedDict):
    """A number of the summary."""

    name: str
    unit: str
    meaning: str


class Definitions(TypedDict):
    """Everything that results count."""

    metrics: list[Metric]
    programs: list[Metric]
    statistics: list[Sense]


class Check(TypedDict):
    """What is good of a trace."""

    whole: bool
    good_instructions: int
    good_blocks: int | None
    blocks: int | None
    fault: str | None
    fault_offset: int | None


class Plugin(TypedDict):
    """Where the emulator's plugin is looked for."""

    path: str
    present: bool


class Host(TypedDict):
    """What is present on this host; `qemu` is ``{"Ok": PATH}`` or ``{"Err": WHY}``."""

    cores: int
    data: str
    plugin: Plugin
    qemu: dict[str, str]
