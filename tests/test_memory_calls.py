"""Memory calls of a live program do to the simulated memory what Linux does to real memory."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Cli
from live import needs, needs_qemu

pytestmark = [needs_qemu, needs("cc")]

SOURCE = Path(__file__).with_name("memory_calls.c")
# Page faults and zeroed 4 KB pages of each case, as Linux 6.18 has them.
CASES = {
    "align": (16, 8192),
    "align-other-length": (2048, 2048),
    "align-hint": (512, 512),
    "read": (1000, 0),
    "read-write": (2000, 1000),
    "read-huge": (4, 0),
    "read-write-huge": (8, 2048),
    "file-read": (63, 0),
    "file-write": (1000, 0),
    "file-read-write": (1063, 0),
    "memory-file-read": (63, 0),
    "shared-twice": (2000, 1000),
    "disable-thp": (1024, 1024),
    "collapse": (0, 0),
    "no-huge-after": (512, 512),
    "free": (1000, 1000),
    "remove": (1000, 1000),
    "punch": (1000, 1000),
    "truncate": (1000, 1000),
    "populate": (1000, 1000),
    "populate-read": (1000, 0),
    "populate-write": (1000, 1000),
    "lock": (1000, 1000),
    "lock-future": (1000, 1000),
    "dont-unmap": (1000, 1000),
}
# The same of cases with a child, and the faults before the region. The simulated parent does not
# wait for the child, so the whole program is measured, less an empty case.
WITH_CHILD = {
    "shared": (2020, 1000, 0),
    "shared-file": (2020, 1000, 0),
    "shared-segment": (2020, 1000, 0),
    "shared-disk-file": (2020, 0, 0),
    "dont-fork": (1020, 1000, 1000),
    "wipe-on-fork": (2020, 1000, 1000),
}
# A call itself, and a child's start, touch a few pages of stack and libraries.
BESIDE = 25


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("memory-calls") / "calls"
    command = ["cc", "-O1", "-I", pagewalk.get_include(), "-o", str(path), str(SOURCE)]
    subprocess.run(command, check=True)
    return path


def measured(
    cli: Cli, program: Path, case: str, *limits: str
) -> tuple[dict[str, Any], dict[str, int]]:
    """The result of a run, and the operating system's counters."""
    report = program.with_name(f"{case}.json")
    # The host's mode may be any; this one needs advice.
    options = (*limits, "--design", "thp", "--set", "placement.thp.mode=madvise")
    answer = cli("run", *options, "--json", report, "--", program, case, cwd=program.parent)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(report.read_text())
    (design,) = result["designs"]
    stats = {s["name"]: s["value"] for s in design["stats"] if s["path"] == "os"}
    stats |= {s["name"]: s["value"] for s in design["summary"]}
    return result, stats


def compare_natively(program: Path, case: str, faults: int) -> None:
    version = tuple(int(n) for n in re.findall(r"\d+", platform.release())[:2])
    modes = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if version < (6, 13) or not modes.exists() or "[madvise]" not in modes.read_text():
        return
    command = [str(program), case]
    natively = subprocess.run(command, cwd=program.parent, check=True, capture_output=True)
    assert int(natively.stdout) == pytest.approx(faults, rel=0.05, abs=BESIDE)


@pytest.mark.parametrize("case", CASES)
def test_a_memory_call_costs_the_page_faults_and_the_zeroing_that_it_costs_in_linux(
    cli: Cli, program: Path, case: str
) -> None:
    faults, zeroed = CASES[case]
    compare_natively(program, case, faults)
    _, stats = measured(cli, program, case, "--roi")
    assert stats["page_faults"] == pytest.approx(faults, rel=0.05, abs=BESIDE)
    assert stats["zeroed_bytes"] / 4096 == pytest.approx(zeroed, rel=0.05, abs=BESIDE)


def test_processes_share_pages_that_exist(cli: Cli, program: Path) -> None:
    _, nothing = measured(cli, program, "nothing")
    for case, (faults, zeroed, before) in WITH_CHILD.items():
        compare_natively(program, case, faults - before)
        _, stats = measured(cli, program, case)
        found = {name: stats[name] - nothing[name] for name in ("page_faults", "zeroed_bytes")}
        assert found["page_faults"] == pytest.approx(faults, rel=0.05, abs=BESIDE), case
        assert found["zeroed_bytes"] / 4096 == pytest.approx(zeroed, rel=0.05, abs=BESIDE), case


def test_a_call_that_is_not_modelled_is_named_once(cli: Cli, program: Path) -> None:
    result, _ = measured(cli, program, "unknown", "--roi")
    (named,) = result["source"]["unseen"]
    assert re.fullmatch(
        r"madvise \(system call 28\) with 0x[0-9a-f]+, 0x3e8000, 0xc is not modelled: "
        r"the simulated kernel ignores it",
        named,
    )
    assert any(named in warning for warning in result["warnings"])
