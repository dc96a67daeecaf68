"""Where the energy went: parts of the machine, what each took, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagewalk.quantities import joules

Json = dict[str, Any]

GROUPS = {
    "core": "core",
    "caches": "caches",
    "tlbs": "TLBs",
    "walk_caches": "walk caches",
    "engine": "speculation",
    "dram": "DRAM",
}
"""Kinds of parts, in the order in which they are told, and in words."""


@dataclass(frozen=True)
class Event:
    """Accesses of one kind: how often, pJ each, and both multiplied in nJ."""

    event: str
    count: int
    each_pj: float
    total_nj: float


@dataclass(frozen=True, repr=False)
class Part:
    """One part of the machine, of all cores together.

    `part` is the path of its statistics without the core's number, `group` one of `GROUPS`;
    each of `number` leaks `static_mw`. `source` names the keys of the configuration behind its
    numbers, which ``pagewalk explain energy`` traces on.
    """

    part: str
    group: str
    total_nj: float
    dynamic_nj: float
    static_nj: float
    static_mw: float
    number: int
    source: str
    events: list[Event]

    @classmethod
    def from_json(cls, data: Json) -> Part:
        """Reads one element of ``parts``."""
        return cls(**{**data, "events": [Event(**e) for e in data["events"]]})

    def __repr__(self) -> str:
        return (
            f"<Part {self.part}: {joules(self.total_nj)}, of accesses {joules(self.dynamic_nj)}, "
            f"static {joules(self.static_nj)}>"
        )


@dataclass(frozen=True, repr=False)
class Energy:
    """Energy of the measured part in nJ: of everything, of accesses, and of `seconds` of time."""

    total_nj: float
    dynamic_nj: float
    static_nj: float
    seconds: float
    parts: list[Part]

    @classmethod
    def from_json(cls, data: Json | None) -> Energy | None:
        """Reads the ``energy`` of a design, if it has one."""
        if not data:
            return None
        return cls(**{**data, "parts": [Part.from_json(p) for p in data["parts"]]})

    def __repr__(self) -> str:
        parts = (f"{GROUPS[group]} {joules(nj)}" for group, nj in self.groups.items())
        return f"<Energy {joules(self.total_nj)}: {', '.join(parts)}>"

    @property
    def groups(self) -> dict[str, float]:
        """What each kind of part took, nJ; kinds that the machine has none of are left out."""
        sums = {g: [p.total_nj for p in self.parts if p.group == g] for g in GROUPS}
        return {group: sum(parts) for group, parts in sums.items() if parts}
