"""Energy of a design's run, by parts of the machine."""

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
"""Kinds of parts in the order of reports, with their names."""


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
        """Energy of each kind of part, nJ, without kinds that the machine lacks."""
        sums = {g: [p.total_nj for p in self.parts if p.group == g] for g in GROUPS}
        return {group: sum(parts) for group, parts in sums.items() if parts}
