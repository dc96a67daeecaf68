"""What this paper needs beside what every paper has: keys and warm-up of a scale."""

from __future__ import annotations

from typing import Any

from pagewalk.quantities import parse_count
from pagewalk.reproduce import Paper

Json = dict[str, Any]


class Stlt(Paper):
    """A scale has `keys`; tables and the requests before go with them."""

    def __init__(self, name: str, folder: Any, data: Json, scale: str | None) -> None:
        super().__init__(name, folder, data, scale)
        self.keys = self._count(data, self.scale.name, "keys")
        self.fewer = self._count(data, self.full, "keys") // self.keys
        """By how much there are fewer keys than in the paper; a power of two."""
        self.sizes: list[int] = data["scales"][self.scale.name].get("sizes", [])
        """MB of the tables that are swept; without it all."""
        self.sweep: list[str] = data["scales"][self.scale.name].get("sweep", [])
        """Containers of figure 17; without it all."""

    @staticmethod
    def _count(data: Json, scale: str, key: str) -> int:
        return parse_count(data["scales"][scale][key], f"scales.{scale}.{key}")
