"""The placement of a run in the format of recorded placements (`linux/README.md`)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

from pagewalk.engine_types import HashedFrames
from pagewalk.errors import RunOption, UserError
from pagewalk.host import files
from pagewalk.measurements.design import DesignResult

_KINDS = {"page": "", "table": "table ", "huge": "huge "}
"""Beginnings of records by content."""


def export_frames(design: DesignResult, file: str | os.PathLike[str]) -> None:
    """Writes the frames of a design's pages and page tables, for ``--frames``.

    The run needs `page_mappings`, and the design places pages by hash. A page that the program has
    mapped several times is written as it was placed first. Raises `UserError` for a result without
    these frames.
    """
    if design.mappings is None:
        raise UserError(
            "the result has no frames of pages; expected a run with page_mappings=True",
            about=RunOption("page_mappings"),
        )
    hashed = design.hashed_frames
    if hashed is None:
        raise UserError(
            f"design {design.name} does not place pages by hash; expected one with "
            "placement.tiered_hash, such as revelator"
        )
    if hashed.seed is None:
        raise UserError(
            f"design {design.name} has hash functions or an order of its own, which the format "
            "cannot say; expected no placement.tiered_hash.order and no other function than murmur"
        )
    text = "".join(f"{line}\n" for line in _lines(hashed))
    files.write(os.fspath(file), text.encode())


def _lines(hashed: HashedFrames) -> Iterator[str]:
    """The lines of the file: address spaces in the order of their processes."""
    yield (
        f"pagewalk-frames version=1 first_frame={hashed.first_frame} frames={hashed.frames} "
        f"page_size=4096 tiers={hashed.tiers} seed={hashed.seed}"
    )
    records = defaultdict(list)
    for p in hashed.placed:
        records[p.asid].append(f"{_KINDS[p.content]}{p.asid} {p.vpn} {p.frame} {p.tier}")
    for asid in hashed.asids:
        yield from records[asid]
