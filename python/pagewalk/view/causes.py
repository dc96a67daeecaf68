"""The causes in a cycle stack: their names, and their colours on pages and in terminals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Look = TypeVar("Look")


@dataclass(frozen=True)
class Cause:
    """The colours and the name of a cause.

    `light` and `dark` are its colours on a page with such a background. `many` is its colour in a
    terminal of many colours. These differ also for readers who see no red, no green or no blue (a
    test has the distances). `few` is its colour in a terminal of sixteen, where fills distinguish
    causes, too. `words` is its name in reports, if it differs from the key.
    """

    light: str
    dark: str
    many: str
    few: str
    words: str = ""


CAUSES = {
    "base": Cause("#868e96", "#7d858d", "#aac2b9", "white"),
    "compute": Cause("#5c636a", "#b4bcc5", "#928e83", "bright_black"),
    # Data stalls: the farther the level, the stronger the contrast; in terminals, the darker.
    "l1d": Cause("#4a94dc", "#4580bd", "#a1ddff", "bright_cyan", "L1D"),
    "l2": Cause("#2f7fd1", "#5a9fe0", "#6fc8ff", "cyan", "L2"),
    "l3": Cause("#1c64b4", "#86bff5", "#0986cf", "bright_blue", "L3"),
    "remote": Cause("#0c8599", "#3bc9db", "#06acb8", "cyan"),
    "dram": Cause("#123f7a", "#b9dcff", "#323786", "blue", "DRAM"),
    "dram_queue": Cause("#0a5566", "#8fe3ef", "#0c7284", "bright_blue", "DRAM queue"),
    "miss_register": Cause("#6573e0", "#8f9bff", "#869eff", "bright_cyan"),
    # Translation stalls.
    "tlb": Cause("#d97706", "#ffc078", "#f7ab5c", "bright_yellow", "TLB lookups"),
    "walker": Cause("#b05a00", "#ff922b", "#ff780a", "yellow", "walker wait"),
    "walk": Cause("#c9340a", "#f2651f", "#e1550e", "red"),
    "kernel": Cause("#a61e4d", "#e64980", "#be235c", "bright_magenta"),
    "branch": Cause("#5c8f0a", "#a9e34b", "#91e828", "bright_green"),
    "fetch": Cause("#2b7a36", "#51cf66", "#309a40", "green"),
    "store_queue": Cause("#8455d9", "#b197fc", "#7362f2", "magenta"),
    "idle": Cause("#a08a78", "#85776b", "#dee2e6", "bright_white"),
    # Levels that few machines have. They stand last, so that the others keep their fills.
    "l0d": Cause("#1e1eff", "#5a5aff", "#6969a5", "bright_cyan", "L0D"),
    "l4": Cause("#0f0f69", "#6987a5", "#0000e1", "bright_blue", "L4"),
}


TRANSLATION = ("tlb", "walker", "walk")
"""Causes whose cycles stall on a translation."""


def words(name: str) -> str:
    """A name as it is read: ``store_queue`` is store queue, ``dram`` DRAM."""
    known = CAUSES.get(name)
    return (known.words if known else "") or name.replace("_", " ")


def each(
    names: Iterable[str], known: Mapping[str, Look], others: Sequence[Look]
) -> dict[str, Look]:
    """The look of each name; unknown names take `others` in turn."""
    listed = list(names)
    unknown = [name for name in listed if name not in known]
    return {
        name: known[name] if name in known else others[unknown.index(name) % len(others)]
        for name in listed
    }
