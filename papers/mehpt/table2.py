"""Table II: what each chunk size can map; arithmetic of the L2P table."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row
from pagewalk.reproduce.figure import Results

from .common import CLUSTER, GB, KB, LINE, MB, WAYS

TB, PB = GB << 10, GB << 20
ENTRIES = 64
"""Of a way and page size, with stolen ones (figure 6)."""
# Chunk size; way, mapped with 4 KB pages, mapped with 2 MB pages, as printed.
PRINTED = (
    (8 * KB, 512 * KB, 768 * MB, 384 * GB),
    (1 * MB, 64 * MB, 96 * GB, 48 * TB),
    (8 * MB, 512 * MB, 768 * GB, 384 * TB),
    (64 * MB, 4 * GB, 6 * TB, 3 * PB),
)
UNITS = ((PB, "PB"), (TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "KB"))


def words(size: int) -> str:
    """A size as the table prints it."""
    unit, name = next((unit, name) for unit, name in UNITS if size >= unit)
    return f"{size // unit} {name}"


class Table2(Figure):
    title = "Largest way and mapped memory for each chunk size"
    place = "table II, section V-C"
    about = (
        "Arithmetic: 64 entries of the L2P table times the chunk, three ways of it, eight entries "
        "in 64 bytes. The table counts every slot as filled, which the threshold of 0.6 forbids."
    )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows = []
        for chunk, way, small, large in PRINTED:
            ours = ENTRIES * chunk
            pages = WAYS * ours // LINE * CLUSTER
            for name, value, printed in (
                ("largest way", ours, way),
                ("mapped, 4 KB pages", pages * 4 * KB, small),
                ("mapped, 2 MB pages", pages * 2 * MB, large),
            ):
                unit, unit_name = next(u for u in UNITS if printed >= u[0])
                rows.append(
                    Row(words(chunk), name, value / unit, printed / unit, unit_name, "table II")
                )
        return rows
