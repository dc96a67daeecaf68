"""Draws the waveform of one miss from a VCD file of the cosimulation.

python rtl/waveform.py FILE.vcd docs/images/spec-engine-miss.svg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

#: Signals from top to bottom: names in the file, and what the reader sees.
SIGNALS = [
    ("clk", "clk"),
    ("req_valid", "req_valid"),
    ("req_ready", "req_ready"),
    ("issue", "candidate named"),
    ("issue_tier", "its tier"),
    ("probe_valid", "candidate judged"),
    ("event_tier", "its tier"),
    ("probe_delay", "bus delay (cycles)"),
    ("event_guess", "passes"),
    ("event_delayed", "too slow a bus"),
    ("guess_valid", "guess_valid"),
    ("guess_entry", "guess_entry"),
    ("guess_line", "guess_line"),
]

#: Picoseconds of half a cycle in the file, and points of a cycle in the picture.
HALF = 500
CYCLE = 44
LEFT = 150
ROW = 26


def changes(path: Path) -> dict[str, list[tuple[int, str]]]:
    """Times and values of the signals of the top module."""
    names: dict[str, str] = {}
    values: dict[str, list[tuple[int, str]]] = {}
    depth = time = 0
    for line in path.read_text().splitlines():
        if line.startswith("$scope"):
            depth += 1
        elif line.startswith("$upscope"):
            depth -= 1
        elif found := re.match(r"\$var \w+ +\d+ (\S+) (\w+)", line.strip()):
            wanted = found[2] in dict(SIGNALS) and found[2] not in names.values()
            if wanted and depth <= 2:
                names[found[1]] = found[2]
                values[found[2]] = []
        elif line.startswith("#"):
            time = int(line[1:])
        elif (found := re.match(r"(?:b([01xz]+) |([01xz]))(\S+)$", line)) and found[3] in names:
            values[names[found[3]]].append((time, found[1] or found[2]))
    return values


def at(history: list[tuple[int, str]], time: int) -> int:
    """The value of a signal at a time."""
    before = [value for when, value in history if when <= time]
    return int(before[-1].replace("x", "0"), 2) if before else 0


def drawn(path: Path) -> str:
    """The picture: the cycles from the request to the last guess."""
    values = changes(path)
    last = max(when for history in values.values() for when, _ in history) // (2 * HALF)
    sampled = {
        name: [at(values[name], cycle * 2 * HALF) for cycle in range(last + 1)]
        for name, _ in SIGNALS
        if name != "clk"
    }
    taken = [c for c in range(last + 1) if sampled["req_valid"][c] and sampled["req_ready"][c]]
    guessed = [c for c in range(last + 1) if sampled["guess_valid"][c]]
    first, end = taken[0] - 1, guessed[-1] + 2
    width, height = LEFT + CYCLE * (end - first) + 10, ROW * (len(SIGNALS) + 1) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for n, cycle in enumerate(range(first, end)):
        x = LEFT + CYCLE * n
        out.append(f'<path d="M{x} {ROW - 8}V{height - 8}" stroke="#ddd"/>')
        label = cycle - taken[0]
        out.append(f'<text x="{x + CYCLE / 2}" y="12" text-anchor="middle">{label}</text>')
    for row, (name, shown) in enumerate(SIGNALS):
        top, bottom = ROW * (row + 1), ROW * (row + 1) + 16
        out.append(f'<text x="{LEFT - 8}" y="{bottom - 3}" text-anchor="end">{shown}</text>')
        line = []
        for n, cycle in enumerate(range(first, end)):
            x = LEFT + CYCLE * n
            if name == "clk":
                line.append(f"M{x} {bottom}V{top}H{x + CYCLE / 2}V{bottom}H{x + CYCLE}")
                continue
            value = sampled[name][cycle]
            before = sampled[name][cycle - 1]
            if name in ("issue_tier", "event_tier", "probe_delay", "guess_line"):
                gate = {"issue_tier": "issue", "guess_line": "guess_valid"}.get(name, "probe_valid")
                if sampled[gate][cycle]:
                    text = f"{value + 1}" if name.endswith("tier") else f"{value}"
                    text = f"{value:x}" if name == "guess_line" else text
                    size = 8 if name == "guess_line" else 11
                    line.append(f"M{x} {top}h{CYCLE}v16h-{CYCLE}z")
                    out.append(
                        f'<text x="{x + CYCLE / 2}" y="{bottom - 4}" text-anchor="middle" '
                        f'font-size="{size}">{text}</text>'
                    )
                continue
            level = top if value else bottom
            line.append(f"M{x} {top if before else bottom}V{level}H{x + CYCLE}")
        out.append(f'<path d="{"".join(line)}" fill="none" stroke="#1f4e79" stroke-width="1.3"/>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn(Path(sys.argv[1])))
