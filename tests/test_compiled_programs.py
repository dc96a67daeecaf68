"""Comparisons of compiled programs with built-in ones (validation/compiled.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "validation"))

import compiled

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
