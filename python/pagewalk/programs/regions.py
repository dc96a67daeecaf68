"""Representative regions of a trace: the search for them, and their file."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pagewalk import native
from pagewalk.config import config
from pagewalk.errors import UserError
from pagewalk.host import files
from pagewalk.view.escape import shown, visible
from pagewalk.view.quantities import count, integer

Json = dict[str, Any]

VERSION = 1
"""Version of the file's format."""
_NEAR = 1e-6
"""Largest distance from 1 of the sum of a file's weights."""


@dataclass(frozen=True)
class Region:
    """An interval of a trace, and the share of its instructions that it represents."""

    at: int
    """Instructions of all threads before it."""
    instructions: int
    weight: float
    stretches: int | None = None
    """Number of intervals that it represents, itself included."""
    requests: int | None = None
    """Requests that end in it, of a program that counts them."""


@dataclass(frozen=True)
class Regions:
    """Regions of a trace in the order of their instructions; their weights add up to 1.

    Optional keys that a file lacks are None.
    """

    regions: tuple[Region, ...]
    trace: str | None = None
    """The name of the trace's file."""
    instructions: int | None = None
    """Instructions of the whole trace."""
    length: int | None = None
    """Instructions of an interval."""
    seed: int | None = None
    requests: int | None = None
    """Requests of the whole trace."""
    spread: float | None = None
    """Distance of intervals from the mean of those that their region represents.

    It is the share of their instructions that are in other basic blocks (root mean square).
    """
    spread_of_all: float | None = None
    """Distance of intervals from the mean of all."""

    def toml(self) -> str:
        """The file."""
        lines = [
            "# Regions that stand for a whole trace, found by 'pagewalk trace regions'.",
            "# 'at' and 'instructions' count those of all threads, 'at' from the trace's start.",
            f"version = {VERSION}",
            *_keys(self, ("trace", "instructions", "length", "seed", "requests")),
            *_keys(self, ("spread", "spread_of_all")),
        ]
        for region in self.regions:
            keys = ("at", "instructions", "weight", "stretches", "requests")
            lines += ["", "[[regions]]", *_keys(region, keys)]
        return "\n".join([*lines, ""])

    def write(self, path: str) -> None:
        """Writes the file, whole or not at all."""
        files.write(path, self.toml().encode())

    def write_simpoint(self, prefix: str) -> None:
        """Writes PREFIX.simpoints and PREFIX.weights, as SimPoint does.

        A line of PREFIX.simpoints has the numbers of an interval and of its cluster. A line of
        PREFIX.weights has a weight and the number of its cluster.

        Raises `UserError` for regions that are not intervals of one length.
        """
        length = self.length
        if not length or any(r.at % length or r.instructions != length for r in self.regions):
            raise UserError(
                f"{prefix}.simpoints: a region is not a stretch of 'length' instructions; expected "
                "regions that 'pagewalk trace regions' found"
            )
        points = (f"{r.at // length} {n}\n" for n, r in enumerate(self.regions))
        weights = (f"{r.weight!r} {n}\n" for n, r in enumerate(self.regions))
        for ending, lines in (("simpoints", points), ("weights", weights)):
            files.write(f"{prefix}.{ending}", "".join(lines).encode())


def _keys(of: Region | Regions, names: tuple[str, ...]) -> list[str]:
    values = ((name, getattr(of, name)) for name in names)
    return [f"{name} = {config.toml(v, name)}" for name, v in values if v is not None]


@dataclass(frozen=True)
class Found:
    """Regions of a trace, and statistics of the search."""

    regions: Regions
    stretches: int
    spreads: list[float]
    """The `spread` with one region, two and so on."""


def find(
    trace: str, *, length: int, max_regions: int, seed: int, observer: native.Observer | None = None
) -> Found | None:
    """At most `max_regions` regions that represent a trace; None if a signal stopped the search.

    Raises `UserError` for a trace that is shorter than `length`, or cannot be read.
    """
    if length == 0:
        raise UserError("--length: 0 is not possible; expected a count such as 10M")
    if max_regions < 1:
        raise UserError(f"--max-regions: {max_regions} is not possible; expected 1 or more")
    answer = native.block_vectors(trace, length, seed, observer)
    if answer is None:
        return None
    total = answer["instructions"]
    if total == 0:
        raise UserError(f"{trace}: has no instructions; expected a trace that has some")
    if total < length:
        raise UserError(
            f"--length: {trace} has only {count(total)} instructions, less than a stretch of "
            f"{count(length)}; expected a length that fits in many times, such as "
            f"{max(total // 100, 1)}"
        )
    import numpy as np

    from pagewalk.programs import kmeans

    # An incomplete interval at the end is left out, as in SimPoint.
    stretches = answer["stretches"][: total // length]
    vectors = np.array([s["vector"] for s in stretches])

    start = time.monotonic()

    def report(done: int, total: int) -> None:
        if observer is not None:
            seconds = time.monotonic() - start
            observer.update({"done": done, "total": total, "phase": "cluster", "seconds": seconds})

    found = kmeans.find(vectors, max_regions, seed, report)
    counts = answer["request"] is not None
    chosen = []
    for number in range(found.number):
        members = np.flatnonzero(found.labels == number)
        at = int(members[found.distances[members].argmin()])
        chosen.append(
            Region(
                at=at * length,
                instructions=length,
                weight=len(members) / len(stretches),
                stretches=len(members),
                requests=stretches[at]["requests"] if counts else None,
            )
        )
    regions = Regions(
        regions=tuple(sorted(chosen, key=lambda region: region.at)),
        trace=visible(Path(trace).name),
        instructions=total,
        length=length,
        seed=seed,
        requests=sum(s["requests"] for s in answer["stretches"]) if counts else None,
        spread=found.spread,
        spread_of_all=found.spreads[0],
    )
    return Found(regions, len(stretches), found.spreads)


def read(path: str | os.PathLike[str]) -> Regions:
    """Reads a file of regions.

    Raises `UserError` for an invalid file, with the place of the mistake.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file; 'pagewalk trace regions' writes one")
    try:
        fields = config.parse(config.text_of(path))
    except ValueError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None
    return _Reader(path).regions(fields)


@dataclass(frozen=True)
class _Reader:
    """Reads the tables of a file, and names the place of a mistake."""

    path: Path

    def regions(self, fields: Json) -> Regions:
        version = fields.pop("version", None)
        if version != VERSION or isinstance(version, bool):
            found = "none" if version is None else shown(version)
            self._refuse("version", f"expected {VERSION}, found {found}; is it a file of regions?")
        tables = fields.pop("regions", None)
        if not isinstance(tables, list) or not tables:
            self._refuse("regions", "expected tables [[regions]], at least one")
        known = {
            "instructions": self._whole(1), "length": self._whole(1), "seed": self._whole(0),
            "requests": self._whole(0), "trace": self._text,
            "spread": self._number, "spread_of_all": self._number,
        }  # fmt: skip
        values = self._values(fields, known, "")
        regions = []
        for number, table in enumerate(tables, 1):
            where = f"region {number}: "
            if not isinstance(table, dict):
                self._refuse(where.rstrip(": "), f"expected a table, found {shown(table)}")
            regions.append(self._region(table, where))
        self._check(regions, values.get("instructions"))
        return Regions(tuple(regions), **values)

    def _region(self, table: Json, where: str) -> Region:
        known = {
            "at": self._whole(0), "instructions": self._whole(1), "weight": self._share,
            "stretches": self._whole(1), "requests": self._whole(0),
        }  # fmt: skip
        values = self._values(table, known, where)
        for key in ("at", "instructions", "weight"):
            if key not in values:
                self._refuse(
                    f"{where}{key}", "is missing; each region has at, instructions, weight"
                )
        return Region(**values)

    def _check(self, regions: list[Region], total: int | None) -> None:
        end = 0
        for number, region in enumerate(regions, 1):
            where = f"region {number}: at"
            if region.at < end:
                self._refuse(
                    where,
                    f"{region.at} lies before the end of the region before it, {end}; expected "
                    "regions in the order of the trace that do not overlap",
                )
            end = region.at + region.instructions
            if total is not None and end > total:
                self._refuse(
                    where,
                    f"the region ends at {end}, behind the trace's {total} instructions; expected "
                    "one that lies in it",
                )
        weights = math.fsum(region.weight for region in regions)
        if abs(weights - 1) > _NEAR:
            self._refuse("weight", f"those of all regions add up to {weights:.9g}; expected 1")

    def _values(self, table: Json, known: Mapping[str, Any], where: str) -> Json:
        values = {}
        for key, value in table.items():
            if key not in known:
                near = native.nearest(key, known)
                hint = f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"
                self._refuse(f"{where}{key}", f"there is no such key; {hint}")
            values[key] = known[key](f"{where}{key}", value)
        return values

    def _whole(self, least: int) -> Any:
        def read(where: str, value: object) -> int:
            number = integer(value)
            if number is None or not least <= number < 2**64:
                self._refuse(where, f"{shown(value)} is not possible; expected {least} or more")
            return number

        return read

    def _number(self, where: str, value: object) -> float:
        number = value if isinstance(value, (int, float)) else -1
        # A whole number in TOML may be larger than any float.
        if isinstance(value, bool) or not 0 <= number <= sys.float_info.max:
            self._refuse(where, f"{shown(value)} is not possible; expected a number, 0 or more")
        return float(number)

    def _share(self, where: str, value: object) -> float:
        share = self._number(where, value)
        if not 0 < share <= 1:
            self._refuse(where, f"{shown(value)} is not possible; expected above 0, up to 1")
        return share

    def _text(self, where: str, value: object) -> str:
        if not isinstance(value, str):
            self._refuse(where, f"{shown(value)} is no text; expected the name of a trace")
        return value

    def _refuse(self, where: str, what: str) -> NoReturn:
        raise UserError(f"{self.path}: {visible(where)}: {what}")
