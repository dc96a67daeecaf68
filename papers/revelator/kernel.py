"""Measurements of a booted Linux kernel with hash placement, as ``linux/`` keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewalk.errors import UserError

HOW = "expected the results of 'make linux-figures linux-figure11' in a checkout of the source"


@dataclass(frozen=True)
class InKernel:
    """The distribution at one pressure with one number of hashes.

    `run` is the number of adjacent frames that its filler occupies together; 1 is random frames.
    """

    run: int
    shares: list[float]
    """Per cent of the pages by hash, then by the buddy allocator."""

    @property
    def series(self) -> str:
        """The entry of the legend."""
        return "Linux" if self.run == 1 else f"Linux, fragmented by {self.run}"


def _result(path: Path) -> Any:
    """The content of a results file. Raises `UserError` for a file that is missing or no JSON."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}); {HOW}") from None
    except ValueError as error:
        raise UserError(f"'{path}' is no JSON ({error}); {HOW}") from None


def shares(path: Path) -> Mapping[tuple[int, int], list[InKernel]]:
    """The distributions by pressure, in per cent, and number of hashes.

    Raises `UserError` for a file that is missing or wrong.
    """
    result = _result(path)
    found: dict[tuple[int, int], list[InKernel]] = {}
    try:
        for row in result["rows"]:
            hashes, run = int(row["hashes"]), int(row["run"])
            key = round(100 * float(row["pressure"])), hashes
            measured = [100 * float(share) for share in row["tiers"]["measured"]]
            found.setdefault(key, []).append(InKernel(run, measured))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' has no rows of figure 10 ({error!r}); {HOW}") from None
    for (pressure, hashes), several in found.items():
        for each in (one.shares for one in several):
            if len(each) != hashes + 1 or abs(sum(each) - 100) > 1:
                raise UserError(
                    f"'{path}' has no rows of figure 10: at {pressure} % the {len(each)} shares "
                    f"of {hashes} hashes add up to {sum(each):.1f} %; {HOW}"
                )
    return {key: sorted(of, key=lambda one: one.run) for key, of in found.items()}


PLACEMENTS = {
    "figure": "denied frames, simulated kernel",
    "model": "occupied frames, simulated kernel",
    "linux": "occupied frames, Linux",
    "locked": "occupied frames, Linux, pages locked",
}
"""The placements of figure 11's measurement, and their names in the figure."""


def speedups(path: Path) -> Mapping[tuple[str, str], dict[str, float]]:
    """Revelator's speedups by program and pressure (`low` or `high`), and then by placement.

    Raises `UserError` for a file that is missing or wrong.
    """
    result = _result(path)
    try:
        return {
            (str(row["program"]), str(row["pressure"])): {
                placement: float(row["speedup"][placement]) for placement in PLACEMENTS
            }
            for row in result["rows"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' has no rows of figure 11 ({error!r}); {HOW}") from None
