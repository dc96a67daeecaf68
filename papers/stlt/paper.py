"""Keys of this paper alone: keys and warm-up of a scale."""

from __future__ import annotations

from typing import Any

from pagewalk.reproduce import Paper
from pagewalk.reproduce.form import Table

Json = dict[str, Any]


class Stlt(Paper):
    """A scale has `keys`; the sizes of tables and the earlier requests are proportional.

    With `set` it changes the machine of all runs with that many keys.
    """

    own_of_scales = ("keys", "sizes", "sweep", "set")

    def __init__(self, name: str, folder: Any, data: Json, scale: str | None) -> None:
        super().__init__(name, folder, data, scale)
        own, whole = (
            Table(data["scales"][name], f"scales.{name}") for name in (self.scale.name, self.full)
        )
        self.keys = own.count("keys", least=1)
        self.fewer = whole.count("keys", least=1) // self.keys
        """Factor by which the keys are fewer than in the paper; a power of two."""
        self.sizes = own.wholes("sizes", 1, 1 << 20)
        """MB of the tables that are swept; without it all."""
        self.sweep = own.texts("sweep")
        """Containers of figure 17; without it all."""
        self.smaller_machine = own.settings("set")
        """Keys of the machine that the scale changes."""
