"""Table I: bits on the chip, of the buffers that the model has."""

from __future__ import annotations

from pagewalk import native
from pagewalk.reproduce import Figure, Paper, Row
from pagewalk.reproduce.figure import Results

from .printed import BITS, TOTAL_BITS, TOTAL_BYTES

VIRTUAL, PAGE, PTE = 48, 12, 64
"""Section III-G: 48 bits of virtual address, pages of 4 KB; an entry of a page table."""
ADDRESS, ROW_ADDRESS = 64, 44
"""Table I: a whole address, and what names a row in physical memory."""
WHY = "the paper's widths, and as many entries as the paper has"


def bits() -> dict[str, int]:
    """Bits of each buffer, with as many entries as the model has."""
    entries = native.shortcut_buffers()
    pages = entries["invalid_page_buffer"]
    return {
        "CRS": ADDRESS,
        # The counter counts from none to all.
        "Invalid page buffer": pages * (VIRTUAL - PAGE) + pages.bit_length(),
        "STB": entries["stb"] * (ADDRESS + PTE),
        "Insertion buffer": entries["insertion_buffer"] * (ADDRESS + PTE + ROW_ADDRESS),
    }


class Table1(Figure):
    title = "Hardware of an STLT"
    place = "table I, section III-G"
    about = (
        "Widths are the paper's, numbers of entries the model's. The text gives the insertion "
        "buffer 16 entries elsewhere and CRS another 36 bits; the table's sum needs 8 and 64."
    )

    def rows(self, _paper: Paper, _results: Results) -> list[Row]:
        found = bits()
        rows = [
            Row(name, "", float(value), float(BITS[name]), "bits", "table I", by_construction=WHY)
            for name, value in found.items()
        ]
        total = sum(found.values())
        return [
            *rows,
            TOTAL_BITS.row(
                "Total", "", float(total), "bits", average=True, by_construction=WHY
            ),
            TOTAL_BYTES.row(
                "Total", "bytes", float(-(-total // 8)), "bytes", average=True, by_construction=WHY
            ),
        ]  # fmt: skip
