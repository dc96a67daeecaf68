"""Lists of shipped designs, machines and programs."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeVar

Entry = TypeVar("Entry")


class Catalogue(list[Entry]):
    """Shipped entries of one kind; shown by names, in a notebook with descriptions."""

    def __init__(self, kind: str, entries: Iterable[Entry]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __repr__(self) -> str:
        names = ", ".join(str(entry["name"]) for entry in self)  # type: ignore[index]
        return f"<{len(self)} {self.kind}: {names}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(str(entry['name']))}</th>"  # type: ignore[index]
            f"<td>{escape(str(entry['description']))}</td></tr>"  # type: ignore[index]
            for entry in self
        )
        return f"<table>{rows}</table>"
