"""Comparisons of compiled programs with built-in ones (validation/compiled.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "validation"))

import compiled  # noqa: E402
import marked  # noqa: E402
import unoptimised  # noqa: E402

COUNTS = ("instructions", "loads", "stores", "branches", "mispredictions")
CACHES = ("core.0.l1d", "core.0.l2", "l3")
STATS = [
    *({"path": "core.0", "name": name, "value": 7} for name in COUNTS),
    *(
        {"path": cache, "name": name, "value": 1}
        for cache in CACHES
        for name in ("load_misses", "store_misses")
    ),
]
SUMMARY = {"instructions": 1000, "l1d_tlb_mpki": 2.0, "l2_tlb_mpki": 1.0}
DESIGN = {
    "status": "complete",
    "stats": STATS,
    "summary": [{"name": name, "value": value} for name, value in SUMMARY.items()],
}


def simulated(
    monkeypatch: pytest.MonkeyPatch, status: int, exit_status: int | None
) -> dict[str, float]:
    """Counts of a run that ends with `status`, whose program ended with `exit_status`."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        report = {"partial": False, "source": {"exit_status": exit_status}, "designs": [DESIGN]}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(report))
        return subprocess.CompletedProcess(command, status, "", "why")

    monkeypatch.setattr(subprocess, "run", run)
    return compiled.simulated("epyc-milan", ["--", "program"], {})


def test_the_status_of_a_program_is_no_failure_of_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """XSBench ends with 1 for an input of which it knows no sum."""
    assert simulated(monkeypatch, 1, 1)["L2 TLB"] == 1.0
    assert simulated(monkeypatch, 0, None)["loads"] == 7


def test_another_status_is_a_failure_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A design that failed beside the program."""
    with pytest.raises(SystemExit, match="status 125"):
        simulated(monkeypatch, 125, 0)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("map", "std::map"),
        ("hash", "std::unordered_map"),
        ("dense", "google::dense_hash_map"),
    ],
)
def test_the_page_has_what_containers_cost_without_optimisation(name: str, title: str) -> None:
    kept = json.loads(unoptimised.KEPT.read_text())[name]
    counts = [
        f"{kept[level][what]:.3g}" if kept[level][what] < 100 else f"{kept[level][what]:.0f}"
        for what in ("instructions", "loads")
        for level in unoptimised.LEVELS
    ]
    speedups = [f"{kept[level]['speedup']:.2f}" for level in unoptimised.LEVELS]
    assert marked.row(f"`{title}`", *counts, *speedups) in marked.PAGE.read_text()


def test_a_live_run_requests_each_key_once_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unoptimised, "LIVE_KEYS", 2)
    heads = [bytes([n]) * unoptimised.HEAD for n in (1, 2, 3)]
    load = b"".join(head + bytes(unoptimised.VALUE) for head in heads[:2])
    found = unoptimised.each_key_once(load + heads[2])
    gets = [bytes(8) + head[8:] for head in heads[:2]]
    assert found == load + b"".join(gets) + heads[2]
