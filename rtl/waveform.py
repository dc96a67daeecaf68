"""Draws the waveform of one request from a VCD file of the cosimulation.

python rtl/waveform.py spec_engine FILE.vcd docs/images/spec-engine-miss.svg
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Signal:
    """A row of the picture."""

    #: Its name in the file.
    name: str
    #: Its name for the reader; empty: the same.
    shown: str = ""
    #: For a number, the signal in whose cycles it is shown.
    gate: str = ""
    #: The number is shown in hexadecimal digits.
    hexadecimal: bool = False
    #: What is added to the number.
    plus: int = 0


#: Signals of each block from top to bottom; the last row ends the picture.
SIGNALS = {
    "spec_engine": [
        Signal("clk"),
        Signal("req_valid"),
        Signal("req_ready"),
        Signal("issue", "candidate named"),
        Signal("issue_tier", "its tier", "issue", plus=1),
        Signal("probe_valid", "candidate judged"),
        Signal("event_tier", "its tier", "probe_valid", plus=1),
        Signal("probe_delay", "bus delay (cycles)", "probe_valid"),
        Signal("event_guess", "passes"),
        Signal("event_delayed", "too slow a bus"),
        Signal("guess_entry"),
        Signal("guess_line", "", "guess_valid", hexadecimal=True),
        Signal("guess_valid"),
    ],
    "stlt_unit": [
        Signal("clk"),
        Signal("req_valid"),
        Signal("req_ready"),
        Signal("set_valid", "set requested"),
        Signal("set_row", "its first row", "set_valid", hexadecimal=True),
        Signal("row_valid", "row arrives"),
        Signal("found", "row matches"),
        Signal("res_valid"),
        Signal("res_va", "", "res_valid", hexadecimal=True),
        Signal("write_counter", "counter alone"),
        Signal("write_valid", "row written"),
    ],
    "l2p": [
        Signal("clk"),
        Signal("req_valid"),
        Signal("req_ready"),
        Signal("req_key", "", "req_valid", hexadecimal=True),
        Signal("cwc_due", "headers due"),
        Signal("cwc_pud_hit"),
        Signal("cwc_pmd_hit"),
        Signal("res_all", "all ways"),
        Signal("res_ways", "ways to read", "res_valid", hexadecimal=True),
        Signal("res_live", "ways with memory", "res_valid", hexadecimal=True),
        Signal("res_valid"),
    ],
}

#: Picoseconds of half a cycle in the file, and points of a cycle in the picture.
HALF = 500
CYCLE = 44
LEFT = 150
ROW = 26


def changes(path: Path, signals: list[Signal]) -> dict[str, list[tuple[int, str]]]:
    """Times and values of the signals of the top module."""
    shown = {signal.name for signal in signals}
    names: dict[str, str] = {}
    values: dict[str, list[tuple[int, str]]] = {}
    depth = time = 0
    for line in path.read_text().splitlines():
        if line.startswith("$scope"):
            depth += 1
        elif line.startswith("$upscope"):
            depth -= 1
        elif found := re.match(r"\$var \w+ +\d+ (\S+) (\w+)", line.strip()):
            wanted = found[2] in shown and found[2] not in names.values()
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


def drawn(block: str, path: Path) -> str:
    """The picture: the cycles from the first request to the last result."""
    signals = SIGNALS[block]
    values = changes(path, signals)
    last = max(when for history in values.values() for when, _ in history) // (2 * HALF)
    sampled = {
        signal.name: [at(values[signal.name], cycle * 2 * HALF) for cycle in range(last + 1)]
        for signal in signals
        if signal.name != "clk"
    }
    taken = [c for c in range(last + 1) if sampled["req_valid"][c] and sampled["req_ready"][c]]
    ended = [c for c in range(last + 1) if sampled[signals[-1].name][c]]
    first, end = taken[0] - 1, ended[-1] + 2
    width, height = LEFT + CYCLE * (end - first) + 10, ROW * (len(signals) + 1) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for n, cycle in enumerate(range(first, end)):
        x = LEFT + CYCLE * n
        out.append(f'<path d="M{x} {ROW - 8}V{height - 8}" stroke="#ddd"/>')
        number = cycle - taken[0]
        out.append(f'<text x="{x + CYCLE / 2}" y="12" text-anchor="middle">{number}</text>')
    for row, signal in enumerate(signals):
        top, bottom = ROW * (row + 1), ROW * (row + 1) + 16
        label = signal.shown or signal.name
        out.append(f'<text x="{LEFT - 8}" y="{bottom - 3}" text-anchor="end">{label}</text>')
        line = []
        for n, cycle in enumerate(range(first, end)):
            x = LEFT + CYCLE * n
            if signal.name == "clk":
                line.append(f"M{x} {bottom}V{top}H{x + CYCLE / 2}V{bottom}H{x + CYCLE}")
                continue
            value = sampled[signal.name][cycle]
            before = sampled[signal.name][cycle - 1]
            if signal.gate:
                if sampled[signal.gate][cycle]:
                    number = value + signal.plus
                    text = f"{number:x}" if signal.hexadecimal else f"{number}"
                    size = 11 if len(text) < 5 else 8 if len(text) < 9 else 6
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
    Path(sys.argv[3]).write_text(drawn(sys.argv[1], Path(sys.argv[2])))
