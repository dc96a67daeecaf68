"""What this paper needs beside what every paper has: which programs are swept."""

from __future__ import annotations

from typing import Any

from pagewalk.reproduce import Paper

Json = dict[str, Any]


class Revelator(Paper):
    """A scale says which programs figures 13, 15 and 16 run: `sweep`, without it all of table 2."""

    def __init__(self, name: str, folder: Any, data: Json, scale: str | None) -> None:
        super().__init__(name, folder, data, scale)
        self.sweep: list[str] = data["scales"][self.scale.name].get("sweep", [])
