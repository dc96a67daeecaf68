"""Where the energy went: parts of the machine, what each took, and how it is told."""

from __future__ import annotations

from pagewalk.engine_types import EnergyFields, PartFields
from pagewalk.view.quantities import joules

GROUPS = {
    "core": "core",
    "caches": "caches",
    "tlbs": "TLBs",
    "walk_caches": "walk caches",
    "engine": "speculation",
    "dram": "DRAM",
}
"""Kinds of parts, in the order in which they are told, and in words."""


class Part(PartFields):
    """Energy of one part of the machine; `group` is one of `GROUPS`."""

    def __repr__(self) -> str:
        return (
            f"<Part {self.part}: {joules(self.total_nj)}, of accesses {joules(self.dynamic_nj)}, "
            f"static {joules(self.static_nj)}>"
        )


class Energy(EnergyFields):
    """Energy of the measured part."""

    def __repr__(self) -> str:
        parts = (f"{GROUPS[group]} {joules(nj)}" for group, nj in self.groups.items())
        return f"<Energy {joules(self.total_nj)}: {', '.join(parts)}>"

    @property
    def groups(self) -> dict[str, float]:
        """What each kind of part took, nJ; kinds that the machine has none of are left out."""
        sums = {g: [p.total_nj for p in self.parts if p.group == g] for g in GROUPS}
        return {group: sum(parts) for group, parts in sums.items() if parts}
