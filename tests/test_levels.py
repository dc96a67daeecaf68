"""Machine files with an L0D, a third level for each core, and a shared fourth level."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from invoking import Invoke, refused

ROOT = Path(__file__).parent.parent
RUN = (
    "run", "--workload=gups", "--size=4MiB", "--warmup=1M", "--instructions=200K",
    "--set=mmu.l2.main.entries=512",
)  # fmt: skip
SHIPPED = (ROOT / "machines" / "epyc-milan.toml").read_text(encoding="utf-8")

L0D = """
[caches.l0d]
size_kb = 8
ways = 4
latency = 2
mshrs = 8
replacement = "lru"
"""
OWN_L3 = """
[caches.l3]
size_kb = 1024
ways = 16
latency = 30
mshrs = 64
replacement = "lru"
prefetcher = { streamer = { pages = 16, degree = 2, lookahead = 4 } }
"""


def deep(folder: Path) -> str:
    """`epyc-milan` with an L0D of 8 KB, an L3 of 1 MB for each core, and its own L3 as an L4."""
    text = SHIPPED.replace("[memory.l3]", "[memory.l4]").replace("latency = 4\n", "latency = 5\n")
    path = folder / "deep.toml"
    path.write_text(text + L0D + OWN_L3, encoding="utf-8")
    return str(path)


def ran(invoke: Invoke, folder: Path, *arguments: str) -> dict[str, Any]:
    """The result of the only design."""
    path = folder / "r.json"
    status, _, err = invoke(*RUN, *arguments, f"--json={path}")
    assert status == 0, err
    design: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["designs"][0]
    return design


def counters(design: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The counters by component."""
    found: dict[str, dict[str, int]] = {}
    for one in design["stats"]:
        found.setdefault(one["path"], {})[one["name"]] = one["value"]
    return found


@pytest.mark.parametrize("cores", [1, 2])
def test_a_machine_file_may_have_further_levels(cores: int, invoke: Invoke, tmp_path: Path) -> None:
    design = ran(invoke, tmp_path, f"--machine={deep(tmp_path)}", f"--set=cores={cores}")
    found = counters(design)
    path = ["core.0.l0d", "core.0.l1d", "core.0.l2", "core.0.l3", "l4"]
    for level in path:
        one = found[level]
        assert one["accesses"] == one["hits"] + one["misses"] > 0, level
    assert "l3" not in found
    assert ("l4.directory" in found) == (cores > 1)
    for near, far in itertools.pairwise(path):
        asked = found[near]["misses"] - found[near]["merged"]
        if far == "core.0.l2":
            asked += found["core.0.l1i"]["misses"] - found["core.0.l1i"]["merged"]
            asked += found[far]["walks"]
        assert found[far]["accesses"] == asked, far
    served = {cause["cause"]: cause["cycles"] for cause in design["cycle_stack"]}
    assert served["l4"] > 0
    assert "l0d" in served
    mmu = found["core.0.mmu"]
    names = ("l0d", "l1d", "l2", "l3", "l4", "remote", "memory")
    read = {name: mmu[f"walk_reads_{name}"] for name in names}
    assert sum(read.values()) == mmu["walk_reads"]
    assert read["l0d"] == 0
    assert read["l2"] > 0
    taken = {part["part"]: part["dynamic_nj"] for part in design["energy"]["parts"]}
    assert all(taken[name] > 0 for name in ("l0d", "l1i", "l1d", "l2", "l3", "l4"))


def test_levels_are_added_to_a_shipped_machine_by_settings(invoke: Invoke, tmp_path: Path) -> None:
    l0d = "caches.l0d={size_kb=8,ways=4,latency=2,mshrs=8,replacement='lru'}"
    l4 = "memory.l4={size_kb=131072,ways=16,latency=120,mshrs=64,replacement='lru'}"
    design = ran(invoke, tmp_path, "--set", l0d, "--set", l4, "--set=caches.walks_enter=l0d")
    found = counters(design)
    assert found["core.0.l0d"]["walks"] == found["core.0.mmu"]["walk_reads"] > 0
    assert found["l4"]["accesses"] == found["l3"]["misses"] - found["l3"]["merged"] > 0


def test_a_machine_without_further_levels_reports_none(invoke: Invoke, tmp_path: Path) -> None:
    design = ran(invoke, tmp_path)
    names = {one["path"] for one in design["stats"]} | {one["name"] for one in design["stats"]}
    assert not [name for name in names if name.endswith(("l0d", "l4"))]


def test_sampling_with_further_levels(invoke: Invoke, tmp_path: Path) -> None:
    design = ran(
        invoke,
        tmp_path,
        f"--machine={deep(tmp_path)}",
        "--sample=length=5K,period=40K,warm=5K,filtered=5K",
    )
    assert design["sampling"]["samples"] > 1
    unknown = design["sampling"]["warming"]["unknown"]
    assert {"l0d", "l1d", "l2", "l3", "l4"} <= unknown.keys()


def test_two_third_levels_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SHIPPED + OWN_L3, encoding="utf-8")
    err = refused(invoke, *RUN, "--machine", str(path))
    assert "memory.l3" in err
    assert "memory.l4" in err
