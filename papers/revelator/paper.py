"""Keys of this paper alone: the programs of sweeps."""

from __future__ import annotations

from typing import Any

from pagewalk.reproduce import Paper
from pagewalk.reproduce.form import Table

Json = dict[str, Any]


class Revelator(Paper):
    """A scale's `sweep` has the programs of figures 13, 15 and 16, by default all of table 2."""

    own_of_scales = ("sweep",)

    def __init__(self, name: str, folder: Any, data: Json, scale: str | None) -> None:
        super().__init__(name, folder, data, scale)
        of_scale = Table(data["scales"][self.scale.name], f"scales.{self.scale.name}")
        self.sweep = of_scale.texts("sweep")
