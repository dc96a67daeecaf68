"""Repeats the recorded run of a block with its netlist, in Icarus Verilog."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from blocks import Block

#: Repeats a run. A line of the file has the inputs and the outputs of half a cycle.
REPLAY = """
module replay;
  reg [{inputs}-1:0] in;
  reg [{outputs}-1:0] expected;
  wire [{outputs}-1:0] out;
  integer file, line, differences;
  {top} netlist ({ports});
  initial begin
    file = $fopen("{file}", "r");
    line = 0;
    differences = 0;
    while ($fscanf(file, "%b %b\\n", in, expected) == 2) begin
      if (line == {first}) begin
        $dumpfile("{waveform}");
        $dumpvars(1, netlist);
      end
      #500;
      // Before the first edge, nothing is reset.
      if (line > 0 && out !== expected) begin
        if (differences == 0) $display("line %0d: %b, not %b", line, out, expected);
        differences = differences + 1;
      end
      line = line + 1;
    end
    $display("%0d lines, %0d differences", line, differences);
    $finish;
  end
endmodule
"""

#: Time of half a cycle in both waveforms.
HALF = 500

#: Most cycles of a measured window. Between rare requests, a block is idle.
LONGEST = 20_000


def readings(waveform: Path) -> Iterator[tuple[int, str, str]]:
    """Time, net and new value of each change in a VCD file, for the nets of the top module."""
    codes: dict[str, list[str]] = defaultdict(list)
    depth = time = 0
    with waveform.open() as lines:
        for line in lines:
            first = line[0]
            if first in "01xz":
                code, value = line[1:-1], first
            elif first == "b":
                value, code = line[1:-1].split(" ")
            elif first == "#":
                time = int(line[1:])
                continue
            else:
                words = line.split()
                depth += words[:1] == ["$scope"]
                depth -= words[:1] == ["$upscope"]
                found = re.match(r"\s*\$var \w+ +\d+ (\S+) (\S+)", line)
                if found and depth == 2:
                    codes[found[1]].append(found[2])
                continue
            for name in codes.get(code, ()):
                yield time, name, value


def changes(waveform: Path, widths: dict[str, int]) -> Counter[tuple[str, int]]:
    """Changes of each bit of these nets of the top module."""
    last: dict[str, str] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for _, name, shown in readings(waveform):
        if name not in widths:
            continue
        before, value = last.get(name), shown.rjust(widths[name], "0")
        last[name] = value
        if before is None or before == value:
            continue
        for place, (old, new) in enumerate(zip(reversed(before), reversed(value), strict=True)):
            if old != new:
                counts[name, place] += 1
    return counts


def halves(waveform: Path, names: set[str]) -> Iterator[dict[str, str]]:
    """Values of these ports in each half of each cycle."""
    values: dict[str, str] = {}
    now = None
    for time, name, value in readings(waveform):
        if now is not None and time != now:
            for _ in range((time - now) // HALF):
                yield dict(values)
        now = time
        if name in names:
            values[name] = value
    yield values


def replay(
    block: Block, ports: dict[str, Any], recorded: Path, first: int, work: Path
) -> tuple[Path, int, int]:
    """Repeats a recorded run with the netlist `work/power.v`, up to `LONGEST` cycles after `first`.

    Returns the netlist's waveform from request `first` on, and its requests and cycles.
    """
    inputs = [name for name, port in ports.items() if port["direction"] == "input"]
    outputs = [name for name, port in ports.items() if port["direction"] == "output"]
    width = {name: len(port["bits"]) for name, port in ports.items()}
    lines = work / "replay.txt"
    begins, count, taken = 0, 0, 0
    with lines.open("w") as text:
        for values in halves(recorded, set(ports)):
            bits = {name: values[name].rjust(width[name], "0") for name in ports}
            for names in (inputs, outputs):
                text.write("".join(bits[name] for name in names))
                text.write(" " if names is inputs else "\n")
            if bits["clk"] == "0" and bits["req_valid"] == bits["req_ready"] == "1":
                if taken == first:
                    begins = count
                taken += 1
            count += 1
            if taken > first and count == begins + 2 * LONGEST:
                break
    waveform = work / "netlist.vcd"
    connected = []
    for names, vector in ((inputs, "in"), (outputs, "out")):
        place = sum(width[name] for name in names)
        for name in names:
            connected.append(f".{name}({vector}[{place - 1}:{place - width[name]}])")
            place -= width[name]
    bench = REPLAY.format(
        inputs=sum(width[name] for name in inputs),
        outputs=sum(width[name] for name in outputs),
        top=block.top,
        ports=", ".join(connected),
        file=lines,
        first=begins,
        waveform=waveform,
    )
    (work / "replay.v").write_text(bench)
    sources = [work / name for name in ("replay.v", "power.v", "cells.v")]
    compiled = work / "replay.vvp"
    subprocess.run(["iverilog", "-g2012", "-o", compiled, *sources], check=True)
    done = subprocess.run(["vvp", "-n", compiled], capture_output=True, text=True, check=True)
    if f"{count} lines, 0 differences" not in done.stdout:
        sys.exit(f"power: {block.top}: the netlist differs from the sources: {done.stdout}")
    return waveform, taken - first, (count - begins) // 2
