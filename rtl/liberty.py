"""Capacitances of the cells of a liberty file."""

from __future__ import annotations

import re
from pathlib import Path


class Library:
    """The cells that the flow has to know by name."""

    def __init__(self, path: Path) -> None:
        """Reads the input capacitances, in fF."""
        self.path = path
        self.capacitance: dict[tuple[str, str], float] = {}
        cell = pin = ""
        for line in path.read_text().splitlines():
            if found := re.match(r"\s*cell\s*\(\s*\"?(\w+)", line):
                cell = found[1]
            elif found := re.match(r"\s*pin\s*\(\s*\"?(\w+)", line):
                pin = found[1]
            elif found := re.match(r"\s*capacitance\s*:\s*([\d.eE+-]+)", line):
                self.capacitance[cell, pin] = float(found[1])
        self.name = re.search(r"library\s*\(\s*\"?(\w+)", path.read_text())[1]  # type: ignore[index]
