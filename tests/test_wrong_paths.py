"""Wrong paths, from the command line."""

from __future__ import annotations

import json
from typing import Any

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
    assert without["config"]["core"]["wrong_path"]["enabled"] is False
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
