"""The default number of cores: the program's threads, at most 8."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Cli
from pagewalk.runs.plan import Design, Program, Run, keys

SHORT: dict[str, Any] = {"instructions": "20K", "warmup": 0, "translation_cost": False}
GUPS: dict[str, Any] = {"workload": "gups", "size": "16MiB", **SHORT}


def cores(result: pagewalk.Result) -> int:
    return int(result["radix"].config["cores"])


@pytest.mark.parametrize(("threads", "expected"), [(None, 1), (1, 1), (3, 3), (16, 8)])
def test_a_built_in_program_has_a_core_for_each_thread(threads: int | None, expected: int) -> None:
    result = pagewalk.run(threads=threads, **GUPS)
    assert cores(result) == expected
    assert any("took turns" in w for w in result.warnings) == (threads == 16)


def test_what_is_said_wins(tmp_path: Path) -> None:
    assert cores(pagewalk.run(threads=4, settings={"cores": 1}, **GUPS)) == 1
    assert cores(pagewalk.run(threads=1, machine="mehpt-table3", **GUPS)) == 8
    design = tmp_path / "radix.toml"
    design.write_text('base = "radix"\ncores = 2\n')
    assert cores(pagewalk.run(str(design), threads=4, **GUPS)) == 2
    machine = pagewalk.machine("epyc-milan")
    # The value that a program of one thread would have.
    machine.cores = 1
    machine.write(tmp_path / "one.toml")
    assert cores(pagewalk.run(threads=4, machine=str(tmp_path / "one.toml"), **GUPS)) == 1


def test_a_reference_with_perfect_tlbs_has_as_many_cores() -> None:
    with_cost = pagewalk.run(threads=4, **{**GUPS, "translation_cost": True})
    assert with_cost["radix"].translation_cost is not None
    alone = pagewalk.run("perfect-tlb", threads=4, **GUPS)
    reference = with_cost.data["translation_reference"]["cycles"]
    assert reference == alone["perfect-tlb"]["cycles"]


def test_generators_and_mixes_have_a_core_for_each_thread() -> None:
    def addresses() -> Iterator[int]:
        yield from range(0x1000_0000, 0x1010_0000, 4096)

    result = pagewalk.run(workload=[addresses() for _ in range(3)])
    assert cores(result) == 3
    mixed = pagewalk.run(mix=["gups:size=16MiB:threads=2", "gups:size=16MiB"], **SHORT)
    assert cores(mixed) == 3


@pytest.mark.parametrize("length", ["1M", "1K"])
def test_a_recording_agrees_with_its_program(length: str, cli: Cli, tmp_path: Path) -> None:
    """Also if it ends before the program starts its threads."""
    trace = tmp_path / "t.pwt"
    program = ["--workload", "gups", "--size", "16MiB", "--threads", "4"]
    assert cli("record", *program, "--instructions", length, "-o", trace).returncode == 0
    taken = ["--json", "-", "--no-translation-cost", "--warmup", "0", "--instructions"]

    def run(*source: Any) -> Any:
        answer = cli("run", *source, "--roi", *taken, "50K")
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)["designs"][0]

    recorded = run("--trace", trace)
    assert recorded["config"]["cores"] == 4
    if length == "1M":
        assert recorded == run(*program)


def test_a_kept_result_belongs_to_its_number_of_cores(tmp_path: Path) -> None:
    def key(threads: int) -> str:
        program = Program("gups", "16MiB", threads=threads)
        run = Run(program, Design("radix", "radix"), "epyc-milan", 1000)
        found, wrong = keys([run], tmp_path)
        assert not wrong
        return found[run.identity]

    said = Design("radix", "radix", {"cores": 4})
    run = Run(Program("gups", "16MiB", threads=4), said, "epyc-milan", 1000)
    assert keys([run], tmp_path)[0][run.identity] == key(4)
    assert key(4) != key(1)
