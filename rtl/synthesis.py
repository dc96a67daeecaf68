"""Synthesis with Yosys, and timing and power with OpenSTA."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyosys import libyosys

from blocks import HERE, Block
from buffers import insert_buffers
from liberty import Library

#: Full adders of the library. ABC knows no cell with two outputs.
ADDERS = """
(* techmap_celltype = "$fa" *)
module full_adders (A, B, C, X, Y);
  parameter WIDTH = 1;
  input [WIDTH-1:0] A, B, C;
  output [WIDTH-1:0] X, Y;
  genvar i;
  generate
    for (i = 0; i < WIDTH; i = i + 1) begin : bits
      FA_X1 adder (.A(A[i]), .B(B[i]), .CI(C[i]), .CO(X[i]), .S(Y[i]));
    end
  endgenerate
endmodule
"""

#: Logic optimisation, mapping, buffers and sizes.
ABC = """
strash
ifraig
scorr
dch -f
map -B 0.9 -D 500
topo
buffer -c -N 10
upsize -D 500
dnsize -D 500
"""

#: Register outputs drive the logic, and gates of middle size are its loads (fF).
CONSTRAINTS = """
set_driving_cell DFF_X1
set_load 10 [all_outputs]
"""

#: The clock for which power is stated, and the time that the surroundings use of a cycle, in ns.
PERIOD = 1.0
OUTSIDE = 0.2

#: Assumed changes of each net in a cycle, for the power.
ACTIVITY = 0.1


class Yosys:
    """One design in Yosys. Passes write to a log."""

    def __init__(self, log: Path) -> None:
        """Begins an empty design."""
        self.design = libyosys.Design()
        self.log = log

    def run(self, *passes: str) -> None:
        """Runs passes in order."""
        sys.stdout.flush()
        console = os.dup(1)
        with self.log.open("ab") as log:
            # Yosys writes the name of each pass to the process's standard output.
            os.dup2(log.fileno(), 1)
            try:
                for one in passes:
                    libyosys.run_pass(f"tee -q -a {self.log} {one}", self.design)
                libyosys.log_flush()
            finally:
                os.dup2(console, 1)
                os.close(console)

    def modules(self) -> list[str]:
        """Names of the modules."""
        return [str(name.str()) for name in self.design.modules_]


def elaborate(block: Block, setting: dict[str, int], work: Path) -> Yosys:
    """The block with its parts as modules of their own names, and all below them merged."""
    yosys = Yosys(work / "yosys.log")
    for source in block.sources():
        yosys.run(f"read_verilog -sv -I{HERE / 'generated'} {source}")
    for name, value in setting.items():
        yosys.run(f"chparam -set {name} {value} {block.top}")
    yosys.run(f"hierarchy -check -top {block.top}")
    # A part with several parameter sets has a number behind its name.
    named: Counter[str] = Counter()
    for name in yosys.modules():
        part = re.search(rf"\\({'|'.join(block.parts)})(\\|$)", name)
        if part is None:
            continue
        named[part[1]] += 1
        kept = part[1] if named[part[1]] == 1 else f"{part[1]}_{named[part[1]]}"
        if name != f"\\{kept}":
            yosys.run(f"rename {name} {kept}", f"chtype -set {kept} t:{name}")
        yosys.run(f"setattr -mod -set keep_hierarchy 1 {kept}")
    yosys.run("proc", "flatten", "opt_clean")
    return yosys


def check(block: Block, work: Path) -> None:
    """Ends with an error for a latch, a combinational loop, or a wire with two drivers."""
    for setting in block.settings:
        yosys = elaborate(block, setting, work)
        # Latches are cells of these types, and `check` finds loops and drivers.
        yosys.run("select -assert-none t:$dlatch t:$adlatch t:$dlatchsr", "check -assert")
        print(f"lint: {block.top} {setting}: no latch, no combinational loop")


def areas(stat: dict[str, Any], block: Block) -> dict[str, Any]:
    """Cells and area in square micrometres of the block and of its parts."""
    of = {name.lstrip("\\"): module for name, module in stat["modules"].items()}
    top = of[block.top]["num_cells_by_type"]
    parts = {}
    for part in block.parts:
        area, instances = 0.0, 0
        for name, module in of.items():
            if re.fullmatch(rf"{part}(_\d+)?", name):
                count = top.get(name, top.get(f"\\{name}", 0))
                area, instances = area + module["area"] * count, instances + count
        if instances:
            parts[part] = {"area": round(area, 1), "instances": instances}
    design = stat["design"]
    own = design["area"] - sum(part["area"] for part in parts.values())
    parts["tags and wiring"] = {"area": round(own, 1), "instances": 1}
    return {"cells": design["num_cells"], "area": round(design["area"], 1), "parts": parts}


def mapped(block: Block, setting: dict[str, int], library: Library, work: Path) -> dict[str, Any]:
    """Writes the netlist `work/netlist.v`, and returns its areas."""
    (work / "adders.v").write_text(ADDERS)
    (work / "abc.script").write_text(ABC)
    (work / "abc.constraints").write_text(CONSTRAINTS)
    cells = library.path
    yosys = elaborate(block, setting, work)
    yosys.run(
        "synth -run coarse:fine",
        "check -assert",
        "techmap -map +/techmap.v -map +/choices/han-carlson.v",
        "opt -fast",
        "opt_clean",
        "extract_fa -fa a:src=*csa_tree.sv*",
        f"techmap -map {work / 'adders.v'}",
        "techmap",
        "opt -fast",
        "opt_dff",
        "opt_clean",
        f"clockgate -liberty {cells} -min_net_size 8",
        "dfflegalize -cell $_DFF_P_ x",
        f"dfflibmap -liberty {cells}",
        f"abc -liberty {cells} -script {work / 'abc.script'} -constr {work / 'abc.constraints'}",
        "setundef -zero",
        "hilomap -hicell LOGIC1_X1 Z -locell LOGIC0_X1 Z",
        "opt_clean -purge",
        f"read_liberty -lib -ignore_miss_func {cells}",
        f"write_json {work / 'netlist.json'}",
    )
    netlist = json.loads((work / "netlist.json").read_text())
    insert_buffers(netlist, library)
    (work / "netlist.json").write_text(json.dumps(netlist))
    final = Yosys(work / "yosys.log")
    final.run(
        f"read_json {work / 'netlist.json'}",
        f"hierarchy -check -top {block.top}",
        "check -mapped -assert",
        f"tee -q -o {work / 'stat.json'} stat -json -liberty {cells}",
        # OpenSTA of Debian 12 crashes over the power of some netlists with levels.
        "setattr -mod -unset keep_hierarchy *",
        "flatten",
        "rename -enumerate",
        f"write_json {work / 'flat.json'}",
        f"write_verilog -simple-lhs -noattr -noexpr -nohex {work / 'netlist.v'}",
    )
    return areas(json.loads((work / "stat.json").read_text()), block)


def flip_flops(block: Block, work: Path) -> list[str]:
    """Names of the flip-flops that hold the registers of `block.still`."""
    module = json.loads((work / "flat.json").read_text())["modules"][block.top]
    nets = module["netnames"]
    # Smaller settings lack some of them.
    bits = {bit for name in block.still if name in nets for bit in nets[name]["bits"]}
    return [
        name
        for name, cell in module["cells"].items()
        if cell["type"].startswith("DFF") and bits & set(cell["connections"]["Q"])
    ]


def analysed(block: Block, library: Library, sta: str, work: Path) -> dict[str, Any]:
    """Critical path in ns, and power in mW at the clock of `PERIOD`."""
    still = " ".join(name.replace("$", "\\$") for name in flip_flops(block, work))
    inside = "-from [all_registers -clock_pins] -to [all_registers -data_pins]"
    (work / "sta.tcl").write_text(f"""
read_liberty {library.path}
read_verilog {work / "netlist.v"}
link_design {block.top}
create_clock -name clk -period {PERIOD} [get_ports clk]
set_input_delay -clock clk {OUTSIDE} [all_inputs]
set_output_delay -clock clk {OUTSIDE} [all_outputs]
set_load 10 [all_outputs]
set_multicycle_path 2 -setup -from [get_cells {{{still}}}]
report_checks -path_delay max -format full -digits 4
puts "registers"
report_checks -path_delay max {inside} -format full -digits 4
set_power_activity -global -activity {ACTIVITY} -duty 0.5
set_power_activity -input -activity {ACTIVITY} -duty 0.5
report_power -digits 6
exit
""")
    done = subprocess.run(
        [sta, "-exit", work / "sta.tcl"], capture_output=True, text=True, check=True
    )
    report = done.stdout + done.stderr
    (work / "sta.log").write_text(report)
    whole, registers = report.split("\nregisters\n")
    slack = [float(re.findall(r"(\S+)\s+slack", part)[0]) for part in (whole, registers)]
    path = re.findall(r"^\s*\S+\s+\S+ [\^v] (\S+) \((\S+)\)", registers, re.MULTILINE)
    power = re.search(r"^Total\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)", registers, re.MULTILINE)
    if power is None:
        raise ValueError(f"OpenSTA gives no power:\n{report}")
    internal, switching, leakage, total = (1000 * float(x) for x in power.groups())
    return {
        "critical_path_ns": round(PERIOD - slack[1], 3),
        "with_ports_ns": round(PERIOD - slack[0], 3),
        "path": {"from": path[0][0], "to": path[-1][0], "cells": len(path) - 2},
        "power_mw": {
            "clock_ghz": 1 / PERIOD,
            "assumed_activity": ACTIVITY,
            "leakage": round(leakage, 4),
            "dynamic": round(internal + switching, 3),
            "total": round(total, 3),
        },
    }


def generic(block: Block, setting: dict[str, int], work: Path) -> dict[str, Any]:
    """Cells and logic depth in simple gates of two inputs, where no library is known."""
    yosys = elaborate(block, setting, work)
    yosys.run(
        "setattr -mod -unset keep_hierarchy *",
        "flatten",
        "synth -run coarse:",
        "abc -g AND,NAND,OR,NOR,XOR,XNOR,MUX",
        "opt_clean",
        f"tee -q -o {work / 'stat.json'} stat -json",
        f"tee -q -o {work / 'depth'} ltp -noff",
    )
    stat = json.loads((work / "stat.json").read_text())
    kinds = Counter(stat["design"]["num_cells_by_type"])
    registers = sum(n for kind, n in kinds.items() if "DFF" in kind)
    depth = re.search(r"length=(\d+)", (work / "depth").read_text())
    return {
        "cells": sum(kinds.values()),
        "registers": registers,
        "depth": int(depth[1]) if depth else None,
    }


def unpacked(liberty: Path, work: Path) -> Library:
    """The library, from a file that may be compressed."""
    path = work / "cells.lib"
    data = liberty.read_bytes()
    path.write_bytes(gzip.decompress(data) if liberty.suffix == ".gz" else data)
    return Library(path)


def synthesise(
    block: Block, setting: dict[str, int], liberty: Path | None, sta: str | None, work: Path
) -> dict[str, Any]:
    """Results of one setting: in cells of the library, or in generic gates if there is none."""
    row: dict[str, Any] = {"parameters": setting}
    if liberty is None or sta is None:
        row["generic"] = generic(block, setting, work)
    else:
        library = unpacked(liberty, work)
        row["library"] = library.name
        row |= mapped(block, setting, library, work)
        row |= analysed(block, library, sta, work)
    return row
