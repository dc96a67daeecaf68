"""Buffers for nets with large loads.

ABC sizes and buffers the logic between registers and full adders, which it does not see. Here the
nets that drive them get buffers as well.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from liberty import Library

#: The buffer, its pins, and the load that each drives, in fF.
BUFFER = ("BUF_X4", "A", "Z")
EACH = 60.0

#: Largest load without a buffer, in fF.
MOST = 25.0

Sink = tuple[dict[str, Any], str, int]


def split(sinks: list[tuple[float, Sink]]) -> list[list[Sink]]:
    """Groups of sinks with about equal loads, none above `EACH`."""
    total = sum(load for load, _ in sinks)
    groups: list[list[Sink]] = [[] for _ in range(int(total // EACH) + 1)]
    loads = [0.0] * len(groups)
    for load, sink in sorted(sinks, key=lambda s: -s[0]):
        least = loads.index(min(loads))
        groups[least].append(sink)
        loads[least] += load
    return [group for group in groups if group]


def buffer_module(module: dict[str, Any], library: Library) -> int:
    """Inserts buffers into one module until no net has too large a load. Returns their number."""
    cells = module["cells"]
    cell, into, out = BUFFER
    load_of = library.capacitance
    wires = [b for net in module["netnames"].values() for b in net["bits"] if isinstance(b, int)]
    fresh = max(wires, default=1) + 1
    inserted = 0
    buffered = {
        bit for one in cells.values() if one["type"] == cell for bit in one["connections"][out]
    }
    while True:
        sinks: dict[int, list[tuple[float, Sink]]] = defaultdict(list)
        clocks = set()
        for one in cells.values():
            for pin, bits in one["connections"].items():
                if one["port_directions"].get(pin) != "input":
                    continue
                for position, bit in enumerate(bits):
                    if not isinstance(bit, int):
                        continue
                    if pin in ("CK", "clk"):
                        clocks.add(bit)
                    load = load_of.get((one["type"], pin), 0.0)
                    sinks[bit].append((load, (one, pin, position)))
        heavy = [
            bit
            for bit, loads in sinks.items()
            if bit not in clocks | buffered and sum(load for load, _ in loads) > MOST
        ]
        if not heavy:
            return inserted
        for bit in heavy:
            buffered.add(bit)
            for group in split([s for s in sinks[bit] if s[0] > 0]):
                for one, pin, position in group:
                    one["connections"][pin][position] = fresh
                cells[f"buffer_{inserted}"] = {
                    "hide_name": 0,
                    "type": cell,
                    "parameters": {},
                    "attributes": {},
                    "port_directions": {into: "input", out: "output"},
                    "connections": {into: [bit], out: [fresh]},
                }
                module["netnames"][f"buffered_{inserted}"] = {
                    "hide_name": 0,
                    "bits": [fresh],
                    "attributes": {},
                }
                buffered.add(fresh)
                fresh += 1
                inserted += 1


def insert_buffers(netlist: dict[str, Any], library: Library) -> None:
    """Inserts buffers into all modules of a netlist of Yosys."""
    for module in netlist["modules"].values():
        if module["cells"]:
            buffer_module(module, library)
