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


#: The hash functions of the engine, in the order of their numbers.
FUNCTIONS = ("murmur", "multiplicative", "crc")


def cost(results: dict[str, Any]) -> str:
    """Cycles with the hardware's times."""
    kept = results["cost.spec_engine"]
    rows = []
    for row in kept["cycles"]:
        speedups = [row["radix"] / row[name] for name in ("revelator", *FUNCTIONS)]
        cycles = 100 * (row["murmur"] / row["revelator"] - 1)
        rows.append(
            [
                f"`{row['program']}` {row['size']}",
                *(f"{speedup:.3f}" for speedup in speedups),
                f"{cycles:+.2f} %",
            ]
        )
    latencies = ", ".join(f"`{name}` {kept['latency'][name]}" for name in FUNCTIONS)
    runs = f"One run of {kept['instructions']:,} instructions each."
    text = f"{runs} Cycles to the first guess: {latencies}."
    head = ["speedup over `radix`", "design", *(f"`{name}`" for name in FUNCTIONS)]
    return f"{text}\n\n{table([*head, '`murmur` beside the design, cycles'], rows)}"


def functions(results: dict[str, Any]) -> str:
    """The engine with each hash function."""
    latencies = results["cost.spec_engine"]["latency"]
    usual, program = BLOCKS["spec_engine"].usual(), BLOCKS["spec_engine"].programs[0]
    rows = []
    for number, name in enumerate(FUNCTIONS):
        setting = {**usual, "HASH": number} if number else usual
        row = row_of(results, "synthesis.spec_engine", setting)
        section = "cosimulation.spec_engine" + (f":HASH={number}" if number else "")
        measured = row_of(
            results, "power.spec_engine", {**(setting if number else {}), "program": program}
        )
        rows.append(
            [
                f"`{name}`",
                f"{row['cells']:,}",
                f"{row['area'] / 1e6:.4f}",
                f"{row['parts']['hash_unit']['area'] / 1e6:.4f}",
                f"{row['critical_path_ns']:.2f}",
                f"{latencies[name]}",
                f"{sum(measured['power_mw'].values()):.1f}",
                f"{results[section]['requests']:,}",
            ]
        )
    head = ["hash function", "cells", "area (mm²)", "hash unit (mm²)", "critical path (ns)"]
    head += ["cycles to the first guess", f"power in `{program}` (mW)", "requests compared"]
    return table(head, rows)


def placement(results: dict[str, Any]) -> str:
    """Pages that each tier of each hash function places."""
    kept = results["placement.spec_engine"]
    rows = []
    for row in kept["rows"]:
        [elsewhere] = row["elsewhere"]
        tiers = row["pages"]
        pages = sum(tiers) + elsewhere
        shares = (tiers[0], sum(tiers[1:]), elsewhere, row["expected"][0])
        rows.append(
            [
                f"`{row['program']}`",
                f"{100 * row['occupied']:.0f} %",
                f"`{row['function']}`",
                *(f"{100 * share / pages:.1f} %" for share in shares),
            ]
        )
    text = (
        f"Programs of {kept['size']} in a memory of {kept['memory_gb']} GB. Others have a share of "
        "the frames, at random. The last column is\nthe paper's model for the first tier."
    )
    head = ["program", "frames of others", "hash function", "tier 1", "tiers 2 to 6", "no tier"]
    return f"{text}\n\n{table([*head, 'model'], rows)}"


def row_of(results: dict[str, Any], section: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The row with these parameters."""
    rows: list[dict[str, Any]] = results[section]
    return next(row for row in rows if row["parameters"] == parameters)


#: Parameter of each block that is swept, and its name for the reader.
SWEPT = {
    "spec_engine": ("TIERS", "tiers"),
    "stlt_unit": ("WAYS", "ways"),
    "l2p": ("WAYS", "ways"),
}


def synthesis(results: dict[str, Any], block: str) -> str:
    """All sizes of a block."""
    parameter, name = SWEPT[block]
    kept = [row for row in results[f"synthesis.{block}"] if set(row["parameters"]) == {parameter}]
    usual, program = BLOCKS[block].usual(), BLOCKS[block].programs[0]
    rows = []
    for row in kept:
        setting = {} if row["parameters"] == usual else row["parameters"]
        measured = row_of(results, f"power.{block}", {**setting, "program": program})
        rows.append(
            [
                str(row["parameters"][parameter]),
                f"{row['cells']:,}",
                f"{row['area'] / 1e6:.4f}",
                f"{row['critical_path_ns']:.2f}",
                f"{row['power_mw']['leakage']:.2f}",
                f"{sum(measured['power_mw'].values()):.1f}",
                f"{row['power_mw']['dynamic']:.1f}",
            ]
        )
    power = kept[-1]["power_mw"]
    text = (
        f"Cells of {kept[-1]['library']}, power at {power['clock_ghz']:.0f} GHz. "
        f"The power in a run of `{program}` is [measured](#power). The last column\nassumes "
        f"{power['assumed_activity']} changes of each net in a cycle, and that no clock is gated."
    )
    head = [name, "cells", "area (mm²)", "critical path (ns)", "leakage (mW)"]
    head += [f"power in `{program}` (mW)", "dynamic, assumed (mW)"]
    return f"{text}\n\n{table(head, rows)}"


def usual(results: dict[str, Any], block: str) -> dict[str, Any]:
    """The synthesis of a block with its usual parameters."""
    return row_of(results, f"synthesis.{block}", BLOCKS[block].usual())


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
    kept = [row for row in results[f"power.{block}"] if set(row["parameters"]) == {"program"}]
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
    made["functions spec_engine"] = functions(results)
    made["placement spec_engine"] = placement(results)
    made["crc l2p"] = crc(results, "l2p")
    for name, made_table in made.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{made_table}\n\n{end}{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
