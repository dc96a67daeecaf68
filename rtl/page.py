"""Writes the tables of docs/hardware.md from rtl/results.json."""

from __future__ import annotations

import json
from typing import Any

from blocks import HERE

PAGE = HERE.parent / "docs" / "hardware.md"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown; all columns but the first are numbers."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def comparison(results: dict[str, Any]) -> str:
    """Sums of the long comparison."""
    names = ["requests", "candidates", "guesses", "waited", "writes"]
    rows = [
        [f"`{row['program']}` {row['size']}", *(f"{row['compared'][name]:,}" for name in names)]
        for row in results["cosimulation.spec_engine"]["programs"]
    ]
    head = ["program", *names[:3], "requests that waited", "registers written"]
    return table(head, rows)


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


def synthesis(results: dict[str, Any]) -> str:
    """All settings of the engine."""
    rows = []
    for row in results["synthesis.spec_engine"]:
        power = row["power_mw"]
        rows.append(
            [
                str(row["parameters"]["TIERS"]),
                f"{row['cells']:,}",
                f"{row['area'] / 1e6:.4f}",
                f"{row['critical_path_ns']:.2f}",
                f"{power['leakage']:.2f}",
                f"{power['dynamic']:.1f}",
            ]
        )
    power = results["synthesis.spec_engine"][-1]["power_mw"]
    text = (
        f"Cells of {results['synthesis.spec_engine'][-1]['library']}. Dynamic power is that of "
        f"{power['clock_ghz']:.0f} GHz.\nIt assumes {power['assumed_activity']} changes of each "
        "net in a cycle, and is no measurement."
    )
    head = ["tiers", "cells", "area (mm²)", "critical path (ns)", "leakage (mW)", "dynamic (mW)"]
    return f"{text}\n\n{table(head, rows)}"


def parts(results: dict[str, Any]) -> str:
    """Parts of the largest engine."""
    largest = results["synthesis.spec_engine"][-1]
    rows = [
        [f"`{name}`" if " " not in name else name, f"{part['area']:,.0f}"]
        for name, part in sorted(largest["parts"].items(), key=lambda item: -item[1]["area"])
    ]
    return table(["part", "area (µm²)"], rows)


def main() -> None:
    """Replaces the tables."""
    results = json.loads((HERE / "results.json").read_text())
    text = PAGE.read_text()
    for make in (comparison, cost, synthesis, parts):
        name = make.__name__
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        _, after = rest.split(end)
        text = f"{before}{begin}\n{make(results)}\n\n{end}{after}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
