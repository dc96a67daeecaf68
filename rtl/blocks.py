"""The blocks of hardware: their sources, their parts, and the parameters that are swept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Block:
    """A top module."""

    top: str
    #: Folders with its sources.
    folders: tuple[str, ...]
    #: Modules whose area is reported by itself; everything below them is merged into them.
    parts: tuple[str, ...]
    #: Registers that change only while the block is idle, two cycles or more before their use.
    still: tuple[str, ...]
    #: Parameters for which the block is checked and synthesised.
    settings: tuple[dict[str, int], ...]
    #: The usual parameters, for which the power is measured in all programs. With other settings
    #: it is measured in the first one.
    cosimulated: dict[str, int]
    #: Programs of the comparison.
    programs: tuple[str, ...]
    #: For the power: the first request of each program, and the most requests.
    sampled: tuple[int, int]

    def usual(self) -> dict[str, int]:
        """The usual one of the settings."""
        return {name: self.cosimulated[name] for name in self.settings[0]}

    def sources(self) -> list[Path]:
        """The source files."""
        return sorted(path for folder in self.folders for path in (HERE / folder).glob("*.sv"))


BLOCKS = {
    "spec_engine": Block(
        top="spec_engine",
        folders=("common", "spec_engine"),
        parts=(
            "registers",
            "share_filter",
            "sequencer",
            "seed_generator",
            "hash_unit",
            "guess_filter",
            "fifo2",
        ),
        still=("registers.range_start", "registers.range_frames"),
        settings=(
            *({"TIERS": tiers} for tiers in range(1, 7)),
            *({"TIERS": 6, "HASH": function} for function in (1, 2)),
        ),
        cosimulated={"TIERS": 6},
        programs=("gups", "bfs", "xsbench", "kv-hash", "dlrm"),
        sampled=(100, 100),
    ),
    "stlt_unit": Block(
        top="stlt_unit",
        folders=("stlt_unit",),
        parts=(
            "address_generator",
            "row_match",
            "counter_update",
            "random_source",
            "invalid_page_buffer",
            "translation_buffer",
            "insertion_buffer",
        ),
        still=(),
        settings=tuple({"WAYS": ways} for ways in (1, 2, 4, 8)),
        # The test gives the random numbers that the simulator has drawn.
        cosimulated={"WAYS": 4, "EXTERNAL_RANDOM": 1},
        programs=("kv-hash", "kv-dense", "kv-map", "kv-btree", "kv-redis"),
        sampled=(1000, 100),
    ),
    "l2p": Block(
        top="l2p",
        folders=("common", "l2p"),
        parts=(
            "crc_unit",
            "way_registers",
            "slot_select",
            "entry_select",
            "chunk_table",
            "way_select",
        ),
        still=tuple(
            f"g_size[{size}].g_way[{way}].way_registers.{name}"
            for size in range(3)
            for way in range(4)
            for name in ("old_bits", "new_bits", "old_kind", "new_kind")
        ),
        settings=tuple({"WAYS": ways} for ways in (2, 3, 4)),
        cosimulated={"WAYS": 3},
        programs=("gups", "bfs", "xsbench", "kv-hash", "dlrm"),
        sampled=(5, 100),
    ),
}
