"""Table II: what each chunk size can map; arithmetic of the L2P table."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Run, Runs
from pagewalk.reproduce.figure import Results

from .common import CLUSTER, GB, KB, LINE, MB, L2p

TB, PB = GB << 10, GB << 20
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
        "Arithmetic of the design as the engine resolves it, nothing counted: its chunk sizes, "
        "ways and L2P entries, of which a page size can have two sub-tables of a way (figure 6); "
        "eight entries in 64 bytes. The table counts every slot as filled, which the threshold of "
        "0.6 forbids."
    )

    def _run(self, paper: Paper) -> Run:
        """A run of a small program, for the configuration of its design."""
        app = paper.applications["GUPS"].resized(size="1MiB")
        return paper.run(app, "ME-HPT")

    def runs(self, paper: Paper) -> Runs:
        return Runs({("configuration", "ME-HPT"): self._run(paper)})

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        outcome = results(self._run(paper))
        l2p = L2p.of(outcome)
        rows = []
        for chunk, way, small, large in PRINTED:
            there = l2p is not None and chunk in l2p.chunks
            ours = l2p.one_size * chunk if l2p and there else None
            pages = l2p.ways * ours // LINE * CLUSTER if l2p and ours else None
            for name, value, printed in (
                ("largest way", ours, way),
                ("mapped, 4 KB pages", pages and pages * 4 * KB, small),
                ("mapped, 2 MB pages", pages and pages * 2 * MB, large),
            ):
                unit, unit_name = next(u for u in UNITS if printed >= u[0])
                rows.append(
                    Row(
                        words(chunk), name, value and value / unit, printed / unit, unit_name,
                        "table II", failed=outcome.why,
                    )
                )  # fmt: skip
        return rows
