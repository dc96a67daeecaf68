"""Dynamic power from the changes of nets while the netlist repeats a run of a program.

`rtl-cosim --waveform` compares the sources with the simulator, and writes their waveform from the
reset on. Icarus Verilog gives the same inputs to the netlist. Each output must be that of the
sources, in each half of each cycle. The waveform of the netlist gives the changes of each net.

A change of a net costs half its capacitance times the voltage squared, where the capacitance is
that of the driven pins. A change of a cell's output costs the cell's internal energy at that load,
and a change of an input the hidden energy of the library. Both are those of the middle transition
time of the library's tables, averaged over the conditions. A flip-flop whose output changes has no
hidden energy of that edge of its clock. The simulation has no delays, so there are no glitches.
There are no wires.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blocks import HERE, Block
from liberty import Library
from replay import changes, replay
from synthesis import PERIOD, Yosys, mapped

#: Bits of a net's alphabet in the netlist: Yosys's constants.
CONSTANT = ("0", "1", "x", "z")

#: Yosys reads no cell that is described by a table of states.
CLOCK_GATE = """
module {name} (input CK, input E, output GCK);
  reg open;
  always_latch if (!CK) open = E;
  assign GCK = CK & open;
endmodule
"""


@dataclass
class Group:
    """A group of a liberty file."""

    kind: str
    name: str
    values: dict[str, str] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)

    def all(self, *kinds: str) -> Iterator[Group]:
        """The groups of these kinds directly in this one."""
        return (group for group in self.groups if group.kind in kinds)


def parsed(path: Path) -> Group:
    """The groups of a liberty file that has one statement a line."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL).replace("\\\n", " ")
    root = Group("root", "")
    open_groups = [root]
    for line in text.splitlines():
        if found := re.match(r"\s*(\w+)\s*\(([^)]*)\)\s*\{", line):
            group = Group(found[1], found[2].replace('"', "").strip())
            open_groups[-1].groups.append(group)
            open_groups.append(group)
        elif re.match(r"\s*\}", line):
            open_groups.pop()
        elif found := re.match(r"\s*(\w+)\s*(?::|\()\s*(.*?)\)?\s*;", line):
            open_groups[-1].values[found[1]] = found[2].replace('"', "").strip()
    return root.groups[0]


def numbers(text: str) -> list[float]:
    """The numbers of a list."""
    return [float(number) for number in re.findall(r"[-+.\deE]+", text)]


def at_load(table: Group, load: float) -> float:
    """The energy of a table in fJ, at its middle transition time and this load in fF."""
    values = numbers(table.values["values"])
    slews = numbers(table.values["index_1"])
    middle = len(slews) // 2
    if "index_2" not in table.values:
        return values[middle]
    loads = numbers(table.values["index_2"])
    row = values[middle * len(loads) : (middle + 1) * len(loads)]
    right = min(max(bisect(loads, load), 1), len(loads) - 1)
    share = (load - loads[right - 1]) / (loads[right] - loads[right - 1])
    return row[right - 1] + share * (row[right] - row[right - 1])


class Energies:
    """Energies of a library's cells."""

    def __init__(self, library: Library) -> None:
        """Reads the library."""
        root = parsed(library.path)
        self.voltage = float(root.values["nom_voltage"])
        self.cells = {cell.name: cell for cell in root.all("cell")}
        self.pins = {
            (cell.name, pin.name): pin for cell in root.all("cell") for pin in cell.all("pin")
        }
        self.known: dict[tuple[str, str, int], float] = {}

    def leakage(self, cell: str) -> float:
        """Leakage in nW. The cells of constants have none."""
        return float(self.cells[cell].values.get("cell_leakage_power", 0.0))

    def internal(self, cell: str, pin: str, load: float) -> float:
        """Energy of a change of a pin in fJ."""
        key = (cell, pin, round(10 * load))
        if key not in self.known:
            tables = [
                at_load(table, load)
                for power in self.pins[cell, pin].all("internal_power")
                for table in power.all("rise_power", "fall_power")
                # A scalar is no energy: the edge changes the output, whose table has it.
                if table.name != "scalar"
            ]
            self.known[key] = sum(tables) / len(tables) if tables else 0.0
        return self.known[key]

    def outputs(self, cell: str) -> list[str]:
        """Output pins."""
        pins = self.cells[cell].all("pin")
        return [pin.name for pin in pins if pin.values.get("direction") == "output"]


def netlist(block: Block, setting: dict[str, int], library: Library, work: Path) -> dict[str, Any]:
    """Writes `work/power.v` and `work/cells.v`; returns the top module with a name for each net."""
    mapped(block, setting, library, work)
    yosys = Yosys(work / "power.log")
    yosys.run(
        f"read_json {work / 'netlist.json'}",
        f"hierarchy -top {block.top}",
        "setattr -mod -unset keep_hierarchy *",
        "flatten",
        "splitnets",
        "rename -hide",
        "opt_clean -purge",
        "rename -enumerate",
        f"write_json {work / 'power.json'}",
        f"write_verilog -simple-lhs -noattr -noexpr -nohex {work / 'power.v'}",
    )
    module: dict[str, Any] = json.loads((work / "power.json").read_text())["modules"][block.top]
    cells = Yosys(work / "cells.log")
    cells.run(
        f"read_liberty -ignore_miss_func -ignore_miss_data_latch {library.path}",
        f"write_verilog -noattr {work / 'cells.v'}",
    )
    written = (work / "cells.v").read_text()
    used = {cell["type"] for cell in module["cells"].values()}
    missing = sorted(name for name in used if f"module {name}(" not in written)
    unknown = [name for name in missing if not name.startswith("CLKGATE_X")]
    if unknown:
        raise ValueError(f"Yosys has no function of the cells {', '.join(unknown)}")
    gates = "".join(CLOCK_GATE.format(name=name) for name in missing)
    # Yosys stores the value for each output of a flip-flop.
    second = "  always @(posedge CK)\n    _0_ <= D;\n"
    written = written.replace(second, "  always @*\n    _0_ = IQ;\n")
    # Verilator's registers begin with 0 as well.
    written = re.sub(r"^  reg (\w+);", r"  reg \1 = 0;", written, flags=re.MULTILINE)
    (work / "cells.v").write_text(written + gates)
    return module


def cell_energies(
    cell: dict[str, Any], changed: dict[Any, int], load: dict[Any, float], energies: Energies
) -> Iterator[tuple[str, float]]:
    """Energies of a cell's pins in fJ, each with the part of the power that it belongs to."""
    kind, pins = cell["type"], {pin: bits[0] for pin, bits in cell["connections"].items()}
    outputs = energies.outputs(kind)
    gates, holds = "GCK" in outputs, "CK" in pins and "GCK" not in outputs
    flips = max(changed.get(pins.get(pin), 0) for pin in outputs)
    for pin in outputs:
        bit = pins.get(pin)
        # Both outputs of a flip-flop change, also one that is not connected.
        times = flips if holds else changed.get(bit, 0)
        part = "clock" if gates else "registers" if holds else "logic"
        yield part, times * energies.internal(kind, pin, load.get(bit, 0.0))
    for pin, bit in pins.items():
        if pin not in outputs:
            times = changed.get(bit, 0)
            if pin == "CK":
                yield "clock", max(times - flips, 0) * energies.internal(kind, pin, 0.0)
            else:
                yield "logic", times * energies.internal(kind, pin, 0.0)


def power(
    module: dict[str, Any], counts: Counter[tuple[str, int]], cycles: int, energies: Energies
) -> dict[str, float]:
    """Power in mW at the clock of `PERIOD`."""
    changed: dict[Any, int] = {}
    for name, net in module["netnames"].items():
        for place, bit in enumerate(net["bits"]):
            changed[bit] = max(changed.get(bit, 0), counts[name, place])
    load: dict[Any, float] = defaultdict(float)
    clocks = set()
    for cell in module["cells"].values():
        for pin, [bit] in cell["connections"].items():
            if cell["port_directions"][pin] == "input" and bit not in CONSTANT:
                load[bit] += float(energies.pins[cell["type"], pin].values["capacitance"])
                if pin == "CK":
                    clocks.add(bit)
    total = {"clock": 0.0, "registers": 0.0, "logic": 0.0}
    for bit, times in changed.items():
        part = "clock" if bit in clocks else "logic"
        total[part] += energies.voltage**2 / 2 * load[bit] * times
    for cell in module["cells"].values():
        for part, energy in cell_energies(cell, changed, load, energies):
            total[part] += energy
    # A femtojoule in each nanosecond is a microwatt.
    watts = {part: energy * 1e-3 / (cycles * PERIOD) for part, energy in total.items()}
    leakage = sum(energies.leakage(cell["type"]) for cell in module["cells"].values())
    watts["leakage"] = leakage * 1e-6
    return {part: round(value, 4) for part, value in watts.items()}


def measured(block: Block, library: Library, work: Path) -> Iterator[dict[str, Any]]:
    """Power in runs: of all programs with the usual setting, of one with the others."""
    usual, energies = block.usual(), Energies(library)
    for setting in block.settings:
        programs = block.programs if setting == usual else block.programs[:1]
        of_netlist = {**block.cosimulated, **setting}
        module = netlist(block, of_netlist, library, work)
        named = {} if setting == usual else setting
        for program in programs:
            row = run(block, module, setting, energies, program, work)
            parameters = {**named, "program": program}
            yield {"parameters": parameters, "library": library.name, **row}


def run(
    block: Block,
    module: dict[str, Any],
    setting: dict[str, int],
    energies: Energies,
    program: str,
    work: Path,
) -> dict[str, Any]:
    """Power in a run of one program."""
    widths = {name: len(net["bits"]) for name, net in module["netnames"].items()}
    recorded = work / "run.vcd"
    first, most = block.sampled
    parameters = ",".join(f"{name}={value}" for name, value in setting.items())
    command = ["cargo", "run", "--quiet", "--profile", "ci", "--locked", "-p", "pagewalk-rtl"]
    command += ["--", "--waveform", f"{block.top}:{parameters}", str(recorded), program, "0"]
    command.append(str(first + most))
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    if done.returncode != 0:
        sys.exit(f"power: {program}: the sources differ from the simulator\n{done.stderr}")
    waveform, requests, cycles = replay(block, module["ports"], recorded, first, work)
    return {
        "requests": requests,
        "cycles": cycles,
        "clock_ghz": 1 / PERIOD,
        "power_mw": power(module, changes(waveform, widths), cycles, energies),
    }
