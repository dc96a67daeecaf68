"""Measurements of the hardware in `rtl/`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "rtl"))

from blocks import BLOCKS, Block  # noqa: E402
from replay import changes, replay  # noqa: E402

CYCLES = 6
WIDTHS = {"clk": 1, "rst": 1, "req_valid": 1, "req_ready": 1, "add": 4, "sum": 4}
OUTPUTS = ("req_ready", "sum")
NETLIST = """
module adder (input clk, rst, req_valid, input [3:0] add, output req_ready, output reg [3:0] sum);
  assign req_ready = !rst;
  always @(posedge clk) sum <= rst ? 4'd0 : sum + (req_valid ? add : 4'd0);
endmodule
"""


@pytest.fixture
def block() -> Block:
    return Block(
        top="adder",
        folders=(),
        parts=(),
        still=(),
        settings=({},),
        cosimulated={},
        programs=(),
        sampled=(0, 0),
    )


def recorded(path: Path) -> Path:
    """A waveform like Verilator's: requests in all cycles after the reset, which add 1, 2, ..."""
    codes = dict(zip(WIDTHS, '!"#$%&', strict=True))
    lines = ["$timescale 1ps $end", " $scope module TOP $end", "  $scope module adder $end"]
    lines += [f"   $var wire {n} {codes[name]} {name} $end" for name, n in WIDTHS.items()]
    lines += ["  $upscope $end", " $upscope $end", "$enddefinitions $end"]
    total = 0
    for cycle in range(CYCLES):
        reset, add = int(cycle == 0), cycle
        for clock in (0, 1):
            if clock and not reset:
                total = (total + add) % 16
            values = {"clk": clock, "rst": reset, "req_valid": 1 - reset}
            values |= {"req_ready": 1 - reset, "add": add, "sum": total}
            lines.append(f"#{1000 * cycle + 500 * clock}")
            lines += [
                f"b{value:b} {codes[name]}" if WIDTHS[name] > 1 else f"{value}{codes[name]}"
                for name, value in values.items()
            ]
    path.write_text("\n".join(lines) + "\n")
    return path


def repeated(block: Block, netlist: str, work: Path, first: int) -> tuple[Path, int, int]:
    if shutil.which("iverilog") is None:
        pytest.skip(
            "SKIPPED: iverilog is not installed (on Debian, as root: apt-get install iverilog)"
        )
    (work / "power.v").write_text(netlist)
    (work / "cells.v").write_text("")
    ports: dict[str, Any] = {
        name: {"direction": "output" if name in OUTPUTS else "input", "bits": list(range(n))}
        for name, n in WIDTHS.items()
    }
    return replay(block, ports, recorded(work / "run.vcd"), first, work)


def test_changes_of_a_repeated_run_are_counted_from_a_request_on(
    block: Block, tmp_path: Path
) -> None:
    # The reset takes a cycle, and request 2 is the third one after it.
    waveform, requests, cycles = repeated(block, NETLIST, tmp_path, 2)
    assert requests == cycles == CYCLES - 3
    counts = changes(waveform, WIDTHS)
    # The sum is 3 before request 2, and then 6, 10 and 15.
    sums = [3, 6, 10, 15]
    flips = [old ^ new for old, new in pairwise(sums)]
    for place in range(4):
        assert counts["sum", place] == sum(flip >> place & 1 for flip in flips)
    assert counts["clk", 0] == 2 * cycles - 1
    assert counts["rst", 0] == 0


def test_a_netlist_with_other_outputs_is_an_error(block: Block, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)differs from the sources: .*line 3: "):
        repeated(block, NETLIST.replace("sum + (", "sum - ("), tmp_path, 0)


def test_every_block_has_its_power_in_runs_of_its_programs() -> None:
    results = json.loads((ROOT / "rtl" / "results.json").read_text())
    for name, block in BLOCKS.items():
        rows = results[f"power.{name}"]
        usual = [row["parameters"] for row in rows if set(row["parameters"]) == {"program"}]
        assert sorted(one["program"] for one in usual) == sorted(block.programs)
        others = [setting for setting in block.settings if setting != block.usual()]
        for setting in others:
            named = {**setting, "program": block.programs[0]}
            assert any(row["parameters"] == named for row in rows), setting
        for row in rows:
            assert 0 < row["requests"] <= block.sampled[1] < row["cycles"]
            assert all(part > 0 for part in row["power_mw"].values()), row


def test_the_price_of_the_engine_names_the_measured_power() -> None:
    results = json.loads((ROOT / "rtl" / "results.json").read_text())
    usual = [row for row in results["power.spec_engine"] if set(row["parameters"]) == {"program"}]
    powers = [sum(row["power_mw"].values()) for row in usual]
    text = (ROOT / "crates/machine/src/energy/spec.rs").read_text()
    text = re.sub(r"\n\s*/// ", " ", text)
    assert f"takes {min(powers):.1f} to {max(powers):.1f} in runs of programs" in text
