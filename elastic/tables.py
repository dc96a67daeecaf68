"""Writes the tables of elastic/README.md and elastic/picture.svg from elastic/results.json.

python elastic/tables.py
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
OURS = "elastic"
COLUMNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("insert", ("insert_ns",), "ns"),
    ("99.99 %", ("insert_latency_ns", "p99.99"), "ns"),
    ("slowest", ("insert_latency_ns", "max"), "ns"),
    ("hit", ("hit_ns",), "ns"),
    ("miss", ("miss_ns",), "ns"),
    ("iteration", ("iterate_ns",), "ns"),
    ("peak", ("peak_bytes",), "bytes"),
    ("after removals", ("bytes_after_removals",), "bytes"),
)
PANELS = (
    ("Slowest insert", ("insert_latency_ns", "max"), "ns"),
    ("Peak memory (bytes an entry)", ("peak_bytes",), "bytes"),
    ("Lookup that hits", ("hit_ns",), "ns"),
    ("Lookup that misses", ("miss_ns",), "ns"),
)
# Computes in registers only: its latencies are those that the machine adds to all maps.
MACHINE = "no map"
LATENCIES = ("99.99 %", "slowest")
DRAWN = (OURS, "hashbrown", "griddle", "std::unordered_map")
Result = dict[str, Any]


def value(result: Result, path: tuple[str, ...]) -> float:
    """A number of a result."""
    found: Any = result
    for name in path:
        found = found[name]
    return float(found)


def text(number: float, unit: str) -> str:
    """A number with three significant digits, and its unit if that is a time."""
    if unit == "ns":
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
            if number >= size:
                return f"{number / size:.3g} {name}"
        return f"{number:.3g} ns"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def table(results: list[Result]) -> str:
    """All maps of each size, a row each."""
    lines = []
    for entries in sorted({result["entries"] for result in results}, reverse=True):
        lines += [
            f"| {entries:,} entries | " + " | ".join(name for name, _, _ in COLUMNS) + " |",
            "|---|" + "---:|" * len(COLUMNS),
        ]
        for result in results:
            if result["entries"] == entries:
                cells = (
                    text(value(result, path), unit)
                    if result["map"] != MACHINE or name in LATENCIES
                    else ""
                    for name, path, unit in COLUMNS
                )
                lines.append(f"| {result['map']} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def losses(results: list[Result]) -> str:
    """Quantities in which another map needs less than nine tenths of ours."""
    lines = ["| entries | quantity | elastic | better |", "|---:|---|---:|---|"]
    for entries in sorted({result["entries"] for result in results}):
        of_size = {result["map"]: result for result in results if result["entries"] == entries}
        if OURS not in of_size:
            continue
        for name, path, unit in COLUMNS:
            ours = value(of_size[OURS], path)
            better = [
                f"{other} {text(value(of_size[other], path), unit)}"
                for other in ("hashbrown", "griddle", "std::unordered_map")
                if other in of_size and value(of_size[other], path) < 0.9 * ours
            ]
            if better:
                lines.append(f"| {entries:,} | {name} | {text(ours, unit)} | {', '.join(better)} |")
    return "\n".join(lines)


def picture(results: list[Result]) -> str:
    """Bars of the largest maps, a panel a quantity."""
    entries = max(result["entries"] for result in results)
    drawn = {result["map"]: result for result in results if result["entries"] == entries}
    shown = [name for name in DRAWN if name in drawn]
    width, panel, left, bar = 720, 30 + 20 * len(shown), 150, 450
    height = panel * len(PANELS) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="DejaVu Sans, sans-serif" font-size="12" role="img">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-weight="bold">{entries:,} entries of 16 bytes</text>',
    ]
    for number, (title, path, unit) in enumerate(PANELS):
        top = 44 + panel * number
        most = max(value(drawn[name], path) for name in shown)
        out.append(f'<text x="12" y="{top}" fill="#444444">{escape(title)}</text>')
        for row, name in enumerate(shown):
            number_of = value(drawn[name], path)
            y = top + 6 + 20 * row
            colour = "#0072b2" if name == OURS else "#999999"
            length = max(1.0, number_of / most * bar)
            out += [
                f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>',
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="{colour}"/>',
                f'<text x="{left + length + 6:.1f}" y="{y + 12}">{text(number_of, unit)}</text>',
            ]
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Writes both files."""
    kept = json.loads((FOLDER / "results.json").read_text())
    results = kept["results"]
    measured = f"The processor is an {kept['processor']}."
    readme = FOLDER / "README.md"
    page = readme.read_text()
    tables = f"{measured}\n\n{table(results)}"
    for region, generated in (("results", tables), ("losses", losses(results))):
        before, mark, rest = page.partition(f"<!-- {region} -->\n")
        after = rest.partition("<!-- end -->")[2]
        page = f"{before}{mark}\n{generated.strip()}\n\n<!-- end -->{after}"
    readme.write_text(page)
    (FOLDER / "picture.svg").write_text(picture(results))


if __name__ == "__main__":
    main()
