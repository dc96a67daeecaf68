"""Wrong paths, from the command line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import live
import pagewalk
from invoking import Cli

RUN = ["run", "--workload", "kv-map", "--size", "64MiB", "--instructions", "300K", "--json", "-"]


def design(cli: Cli, *arguments: str) -> dict[str, Any]:
    """The result of the one design."""
    answer = cli(*RUN, *arguments)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["designs"][0]
    return found


def counted(found: dict[str, Any]) -> dict[str, int]:
    """The counters of the first core's wrong paths."""
    rows = [s for s in found["stats"] if s["path"] == "core.0.wrong_path"]
    return {s["name"]: s["value"] for s in rows}


def test_loads_of_wrong_paths_are_simulated_on_request(cli: Cli) -> None:
    without = design(cli)
    assert without["config"]["core"]["wrong_path"]["enabled"] is None
    assert not counted(without)
    simulated = design(cli, "--set", "core.wrong_path.enabled=true")
    assert simulated["config"]["core"]["wrong_path"]["enabled"] is True
    wrong = counted(simulated)
    assert wrong["episodes"] > 0
    assert wrong["loads"] > wrong["walks"] > 0


def test_a_table_that_is_no_power_of_two_is_refused(cli: Cli) -> None:
    answer = cli(*RUN, "--set", "core.wrong_path.blocks=1000")
    assert answer.returncode == 2
    assert "core.wrong_path.blocks is 1000; expected a power of two" in answer.stderr


def test_its_statistics_are_explained(cli: Cli) -> None:
    answer = cli("explain", "core.N.wrong_path.remembered_loads")
    assert answer.returncode == 0
    assert "a pointer that was dereferenced before" in " ".join(answer.stdout.split())


TREE = Path(__file__).parent / "tree.c"


def built(folder: Path) -> str:
    """The program, compiled."""
    target = folder / "tree"
    command = ["cc", "-O1", "-I", pagewalk.get_include(), str(TREE), "-o", str(target)]
    subprocess.run(command, check=True, timeout=60)
    return str(target)


@live.needs_qemu
@live.needs("cc")
def test_pointers_in_the_memory_of_a_live_program_are_followed(cli: Cli, tmp_path: Path) -> None:
    program = built(tmp_path)

    def pointers(*source: str) -> int:
        enabled = ["--set", "core.wrong_path.enabled=true"]
        answer = cli("run", "--roi", *enabled, "--json", "-", *source)
        assert answer.returncode == 0, answer.stderr
        return counted(json.loads(answer.stdout)["designs"][0])["pointer_loads"]

    # Most nodes of a lookup were never visited before.
    assert pointers("--", program) > 1000

    def replayed(*contents: str) -> int:
        file = tmp_path / "tree.pwt"
        recorded = cli("record", *contents, "-o", file, "--", program)
        assert recorded.returncode == 0, recorded.stderr
        return pointers("--trace", str(file))

    assert replayed() == 0
    assert replayed("--memory") > 1000


@live.needs_qemu
@live.needs("cc")
def test_skipped_operations_train_nothing_where_memory_can_be_read(
    cli: Cli, tmp_path: Path
) -> None:
    """A design that needs each access gets the operations that another design does not get."""
    file = str(tmp_path / "tree.pwt")
    recorded = cli("record", "--memory", "-o", file, "--", built(tmp_path))
    assert recorded.returncode == 0, recorded.stderr

    def radix(*designs: str) -> dict[str, Any]:
        limits = ["--skip", "380K", "--instructions", "80K"]
        enabled = ["--set", "core.wrong_path.enabled=true"]
        names = ",".join(["radix", *designs])
        answer = cli(
            "compare", "--designs", names, *limits, *enabled, "--trace", file, "--json", "-"
        )
        assert answer.returncode == 0, answer.stderr
        found: dict[str, Any] = json.loads(answer.stdout)["designs"][0]
        return found

    alone = radix("thp")
    assert counted(alone)["pointer_loads"] > 0
    assert alone["stats"] == radix("pom-tlb")["stats"]


def test_only_a_live_program_has_memory_to_record(cli: Cli, tmp_path: Path) -> None:
    answer = cli("record", "--memory", "-o", tmp_path / "gups.pwt", "--workload", "gups")
    assert answer.returncode == 2
    assert "only the memory of a live program can be recorded" in answer.stderr
