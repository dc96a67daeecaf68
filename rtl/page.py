"""Writes the tables of docs/hardware.md from rtl/results.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from blocks import BLOCKS, HERE

PAGE = HERE.parent / "docs" / "hardware.md"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


#: Columns of each block's comparison: the head, and the count.
COMPARED = {
    "spec_engine": {
        "requests": "requests",
        "candidates": "candidates",
        "guesses": "guesses",
        "requests that waited": "waited",
        "registers written": "writes",
    },
    "stlt_unit": {
        "`loadVA`": "loads",
        "found": "hits",
        "in the simulator's cycle": "loads_timed",
        "`insertSTLT`": "inserts",
        "rows written": "rows_written",
        "before the simulator's cycle": "inserts_early",
        "lookups of the STB": "stb_lookups",
    },
    "l2p": {
        "walks": "walks",
        "lines": "lines",
        "walks in a resize": "resizing",
        "walks that waited": "waited",
        "registers written": "registers",
        "L2P entries written": "entries",
    },
}


def comparison(results: dict[str, Any], block: str) -> str:
    """Sums of the long comparison."""
    kept, columns = results.get(f"cosimulation.{block}"), COMPARED[block]
    if kept is None:
        return f"No results are kept yet: `rtl-cosim --long {block}` compares."
    rows = [
        [
            f"`{row['program']}` {row['size']}",
            *(f"{row['compared'][name]:,}" for name in columns.values()),
        ]
        for row in kept["programs"]
    ]
    text = f"{kept['requests']:,} requests in all, {kept['differences']} differences."
    return f"{text}\n\n{table(['program', *columns], rows)}"


def cost(results: dict[str, Any]) -> str:
    """Cycles with the hardware's times."""
    kept = results["cost.spec_engine"]
    rows = [
        [
            f"`{row['program']}` {row['size']}",
            f"{row['radix'] / row['revelator']:.3f}",
            f"{row['radix'] / row['hardware']:.3f}",
            f"{100 * (row['hardware'] / row['revelator'] - 1):+.2f} %",
        ]
        for row in kept["cycles"]
    ]
    text = f"One run of {kept['instructions']:,} instructions each."
    head = ["program", "speedup over `radix`", "with the hardware's times", "cycles"]
    return f"{text}\n\n{table(head, rows)}"


#: Parameter of each block that is swept, and its name for the reader.
SWEPT = {
    "spec_engine": ("TIERS", "tiers"),
    "stlt_unit": ("WAYS", "ways"),
    "l2p": ("WAYS", "ways"),
}


def synthesis(results: dict[str, Any], block: str) -> str:
    """All settings of a block."""
    parameter, name = SWEPT[block]
    kept = results[f"synthesis.{block}"]
    rows = []
    for row in kept:
        rows.append(
            [
                str(row["parameters"][parameter]),
                f"{row['cells']:,}",
                f"{row['area'] / 1e6:.4f}",
                f"{row['critical_path_ns']:.2f}",
                f"{row['power_mw']['leakage']:.2f}",
                f"{row['power_mw']['dynamic']:.1f}",
            ]
        )
    power = kept[-1]["power_mw"]
    text = (
        f"Cells of {kept[-1]['library']}. Dynamic power is that of {power['clock_ghz']:.0f} GHz.\n"
        f"It assumes {power['assumed_activity']} changes of each net in a cycle, and that no clock "
        "is gated. It is no measurement."
    )
    head = [name, "cells", "area (mm²)", "critical path (ns)", "leakage (mW)", "dynamic (mW)"]
    return f"{text}\n\n{table(head, rows)}"


def usual(results: dict[str, Any], block: str) -> dict[str, Any]:
    """The synthesis of a block with the parameters of its comparison."""
    parameter, _ = SWEPT[block]
    value = BLOCKS[block].cosimulated[parameter]
    rows = results[f"synthesis.{block}"]
    return next(row for row in rows if row["parameters"][parameter] == value)


def parts(results: dict[str, Any], block: str) -> str:
    """Parts of a block."""
    kept = usual(results, block)["parts"]
    rows = [
        [
            f"`{name}`" if " " not in name else name,
            f"{part['instances']}",
            f"{part['area']:,.0f}",
        ]
        for name, part in sorted(kept.items(), key=lambda item: -item[1]["area"])
    ]
    return table(["part", "instances", "area of all (µm²)"], rows)


def power(results: dict[str, Any], block: str) -> str:
    """Power in runs of programs."""
    kept = results.get(f"power.{block}")
    if kept is None:
        return f"No results are kept yet: `hardware_tools.py power --block {block}` measures them."
    rows = []
    for row in kept:
        power = row["power_mw"]
        dynamic = power["clock"] + power["registers"] + power["logic"]
        rows.append(
            [
                f"`{row['parameters']['program']}`",
                f"{row['requests']}",
                f"{1000 * row['requests'] / row['cycles']:.1f}",
                *(f"{power[name]:.2f}" for name in ("clock", "registers", "logic")),
                f"{dynamic:.2f}",
                f"{power['leakage']:.2f}",
            ]
        )
    text = f"At {kept[0]['clock_ghz']:.0f} GHz."
    head = [
        "program",
        "requests",
        "requests in 1,000 cycles",
        "clock (mW)",
        "registers (mW)",
        "logic (mW)",
    ]
    head += ["dynamic (mW)", "leakage (mW)"]
    return f"{text}\n\n{table(head, rows)}"


def crc(results: dict[str, Any], block: str) -> str:
    """The hash functions beside the paper's."""
    unit = usual(results, block)["parts"]["crc_unit"]
    why = (
        "The paper names no polynomial, and not what its figure covers. It has 22 nm, we 45 nm, "
        f"for {unit['instances']} units: one for each page size, whose fields serve all ways"
    )
    rows = [["area of the CRC hash functions", "1.9e-3 mm²", f"{unit['area'] / 1e6:.1e} mm²", why]]
    return "\n".join(["| | paper | ours | why |", "|---|---|---|---|", *map(line, rows)])


def line(row: list[str]) -> str:
    """A row of a table of Markdown."""
    return f"| {' | '.join(row)} |"


#: Tables of every block.
TABLES: dict[str, Callable[[dict[str, Any], str], str]] = {
    "comparison": comparison,
    "synthesis": synthesis,
    "parts": parts,
    "power": power,
}


def main() -> None:
    """Replaces the tables."""
    results = json.loads((HERE / "results.json").read_text())
    text = PAGE.read_text()
    made = {
        f"{name} {block}": make(results, block) for block in BLOCKS for name, make in TABLES.items()
    }
    made["cost spec_engine"] = cost(results)
    made["crc l2p"] = crc(results, "l2p")
    for name, made_table in made.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{made_table}\n\n{end}{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
