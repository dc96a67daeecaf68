"""Sweeps of the table's size: what figures 14 to 17 share."""

from __future__ import annotations

from pagewalk.reproduce import Lines, Panel, Paper

from .common import KERNELS, SIZES, SLB_SAME_ENTRIES, Case


def sizes(paper: Paper) -> tuple[int, ...]:
    """Sizes at a scale, in MB: those that it names, or all."""
    return tuple(getattr(paper, "sizes", ())) or SIZES


def containers(paper: Paper) -> tuple[str, ...]:
    """Containers of figure 17 at a scale: those that it names, or all."""
    return tuple(getattr(paper, "sweep", ())) or KERNELS


def by_size(quantity: str, programs: tuple[str, ...] = ("",)) -> tuple[Panel, ...]:
    """A panel a program, of a quantity over the table's size."""
    lines = Lines("MB of the STLT", quantity, log_x=True)
    return tuple(Panel(lines, program, program) for program in programs)


def swept(paper: Paper, program: str, table: str, ways: int = 4) -> dict[int, Case]:
    """Zipf, values of 64 bytes; an SLB has as many entries as the STLT."""
    return {
        size: Case(program, table, megabytes=size, ways=ways, slb=SLB_SAME_ENTRIES)
        for size in sizes(paper)
    }
