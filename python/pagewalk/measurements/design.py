"""The result of one design."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagewalk.engine_types import DesignResultFields, Json, ProgramResultFields, Quantity

# Energy and histograms are read as the classes of these modules.
from pagewalk.measurements import energy, histograms  # noqa: F401
from pagewalk.measurements.intervals import Intervals
from pagewalk.view.escape import visible
from pagewalk.view.quantities import significant, with_unit

_OF_REQUESTS = ("requests", "cycles_per_request", "instructions_per_request")


class ProgramResult(ProgramResultFields):
    """One program of a mix, up to its limit of instructions or requests.

    ``pagewalk explain programs.NAME`` defines each number.
    """

    @property
    def mapped(self) -> int:
        """Memory that its processes have mapped at the end, in bytes."""
        return self.mapped_4kb + self.mapped_2mb + self.mapped_1gb

    def get(self, name: str) -> float | None:
        """A number by name, or a count of `own`; None if there is none."""
        found: float | None = getattr(self, name, None) if name != "name" else None
        return self.own.get(name) if found is None else found


@dataclass(frozen=True, kw_only=True, repr=False)
class DesignResult(DesignResultFields):
    """The result of one design.

    `statistics` count the measured part, `since_boot` since the machine booted. `histograms` have
    the latencies of walks, walker waits, loads and page faults. A mix has `programs`.

    If several machines were compared, the first design is the first one on the same machine.
    If `regions` represent a trace, counts are for as many instructions as the regions have. Each
    region contributes by its weight.
    """

    design: str = ""
    """Name without the machine's."""
    intervals: Intervals = field(default_factory=Intervals)
    """Interval statistics; empty unless requested."""

    @classmethod
    def from_json(cls, data: Json) -> DesignResult:
        """Reads one element of ``designs`` of the engine's answer."""
        return super().from_json({"design": data["name"], **data})

    @property
    def complete(self) -> bool:
        """True if the design ran to its limits."""
        return self.status == "complete"

    @property
    def failed(self) -> bool:
        """True if the design ended by a failure, such as out of memory."""
        return self.status not in ("complete", "partial")

    @property
    def died(self) -> bool:
        """True if a process of the program died of a signal, or with the emulator."""
        return self.status == "died"

    @property
    def reported(self) -> list[Quantity]:
        """The summary, without numbers of requests if the program counts none."""
        return [q for q in self.quantities if q.value is not None or q.name not in _OF_REQUESTS]

    @property
    def cost(self) -> float | None:
        """Cycles an instruction, or a request where `speedup_by` says so."""
        cycles, work = self.get("cycles"), self.get(f"{self.speedup_by}s")
        return cycles / work if cycles and work else None

    @property
    def kernel_share(self) -> float:
        """Share of the cycles that the kernel takes: page faults, system calls, switches."""
        return next((s.share for s in self.cycle_stack if s.cause == "kernel"), 0.0)

    def get(self, name: str) -> float | None:
        """A number of the summary by name, or None."""
        return next((q.value for q in self.quantities if q.name == name), None)

    def __getitem__(self, name: str) -> float:
        value = self.get(name)
        if value is None:
            raise KeyError(unknown("number", name, "the summary", [q.name for q in self.reported]))
        return value

    def __repr__(self) -> str:
        parts = [] if self.complete else [self.status.replace("_", " ")]
        parts += [
            f"{name} {with_unit(value, '')}"
            for name in _ON_ONE_LINE
            if (value := self.get(name)) is not None
        ]
        if self.speedup is not None:
            parts.append(f"speedup {significant(self.speedup)}")
        if self.translation_cost is not None:
            parts.append(f"translation costs {significant(100 * self.translation_cost)} %")
        return visible(f"<pagewalk.DesignResult {self.name}: {', '.join(parts)}>")

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f'<tr title="{escape(q.meaning)}"><th>{escape(q.name)}</th>'
            f"<td>{escape(with_unit(q.value, q.unit))}</td><td>{escape(q.unit)}</td></tr>"
            for q in self.reported
        )
        return f"<table><caption>{escape(visible(self.name))}</caption>{rows}</table>"


_ON_ONE_LINE = ("ipc", "l2_tlb_mpki", "walks", "walk_cycles_mean", "cycles")
"""Quantities in the one-line summary of a design."""


def unknown(kind: str, name: object, where: str, names: list[str]) -> str:
    """The error message for an unknown name."""
    from pagewalk import native

    near = native.nearest(str(name), names)
    hint = f"did you mean '{near}'? " if near else ""
    return f"no {kind} '{name}' in {where}; {hint}there are {', '.join(names)}"
