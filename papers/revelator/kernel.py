"""Shares of the hash functions that a booted Linux kernel had, as ``linux/`` keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pagewalk.errors import UserError

HOW = "expected the results of 'make linux-figures' in a checkout of the source"


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


def read(path: Path) -> Mapping[tuple[int, int], list[InKernel]]:
    """The distributions by pressure, in per cent, and number of hashes.

    Raises `UserError` for a file that is missing or wrong.
    """
    try:
        result = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"'{path}' cannot be read ({error.strerror}); {HOW}") from None
    except ValueError as error:
        raise UserError(f"'{path}' is no JSON ({error}); {HOW}") from None
    found: dict[tuple[int, int], list[InKernel]] = {}
    try:
        for row in result["rows"]:
            hashes, run = int(row["hashes"]), int(row["run"])
            key = round(100 * float(row["pressure"])), hashes
            shares = [100 * float(share) for share in row["tiers"]["measured"]]
            found.setdefault(key, []).append(InKernel(run, shares))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"'{path}' has no rows of figure 10 ({error!r}); {HOW}") from None
    for (pressure, hashes), several in found.items():
        for shares in (one.shares for one in several):
            if len(shares) != hashes + 1 or abs(sum(shares) - 100) > 1:
                raise UserError(
                    f"'{path}' has no rows of figure 10: at {pressure} % the {len(shares)} shares "
                    f"of {hashes} hashes add up to {sum(shares):.1f} %; {HOW}"
                )
    return {key: sorted(of, key=lambda one: one.run) for key, of in found.items()}
