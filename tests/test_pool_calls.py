"""Pools of huge pages, calls of NUMA and advice have the results that Linux gives."""

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

SOURCE = Path(__file__).with_name("pool_calls.c")
POOL = Path("/proc/sys/vm/nr_hugepages")
# Output of the program, natively with Linux 6.18 and a pool of four pages of 2 MB.
SHOWN = {
    "errors": """
        too many -12, all 21, none left -12, unreserved 21, half -22, from the middle -22, one 0,
        one again 21, protect half -22, free -22, grow -22, rest 0, rounded 21, no more -12,
        not whole -22, whole 0, no size -22, no gigabyte -12, unaligned -22""",
    "files": """
        file 0, mapped 21, again 21, reserved twice -12, same 42, offset -22, size -19, segment 0,
        reserved -12, attached 21, removed 0, free again 21""",
    "numa": """
        bind 0, bind there -22, bind nothing -14, bind unaligned -22, interleave 0, get 0, mode 3,
        mask 1, get of area 0, mode 2, node of page 0, node 0, allowed 0, mask 1, default 0,
        wrong mode -22, where 0, status 0, status 0, status -2, status -14, move 0, move away -19,
        migrate 0, migrate away -22, cpu 0, node 0, thp off 0, thp is off 1, thp on 0, thp is on 0,
        pid 1, child's 0, mode 2""",
    "advice": "cold 0, page out 0, kept 1, several 61440, flags -22, unaligned -22",
}
# Page faults and zeroed bytes of a case with a pool of four pages of 2 MB.
MEASURED = {
    "pool": (4, 4 << 21),
    "pool-read-write": (8, 4 << 21),
    "pool-populate": (4, 4 << 21),
    "pool-again": (4, 4 << 21),
    "segment": (4, 4 << 21),
    "memory-file": (4, 4 << 21),
    # The first write makes a page dirty again, without a fault.
    "free-written": (0, 0),
    # Natively, some of these faults read several pages from the disk.
    "file-page-out": (63, 0),
    "itself": (1000, 0),
}
# A call itself touches a few pages of stack and libraries.
BESIDE = 25


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool-calls") / "calls"
    command = ["cc", "-O1", "-I", pagewalk.get_include(), "-o", str(path), str(SOURCE)]
    subprocess.run(command, check=True)
    return path


def run(
    cli: Cli, program: Path, case: str, *options: str, status: int = 0
) -> tuple[dict[str, Any], str]:
    """The result of a run, and what the program prints."""
    report = program.with_name(f"{case}.json")
    pool = "os.hugetlb.pages_2mb=4"
    arguments = ("--no-translation-cost", "--roi", "--set", pool, *options, "--json", report)
    answer = cli("run", *arguments, "--", program, case, cwd=program.parent)
    assert answer.returncode == status, answer.stderr
    return json.loads(report.read_text()), answer.stdout


def stats(result: dict[str, Any], path: str = "os", design: int = 0) -> dict[str, int]:
    found = result["designs"][design]
    values = {s["name"]: s["value"] for s in found["stats"] if s["path"] == path}
    return values | {s["name"]: s["value"] for s in found["summary"]}


def shown(text: str) -> list[str]:
    return [line[2:] for line in text.splitlines() if line.startswith("= ")]


@pytest.mark.parametrize("case", SHOWN)
def test_the_program_sees_the_results_of_linux(cli: Cli, program: Path, case: str) -> None:
    expected = [line.strip() for line in SHOWN[case].replace("\n", " ").split(",")]
    version = tuple(int(n) for n in re.findall(r"\d+", platform.release())[:2])
    has_pool = case not in ("errors", "files") or (POOL.exists() and POOL.read_text() == "4\n")
    if version >= (6, 14) and has_pool:
        natively = subprocess.run([program, case], check=True, capture_output=True, text=True)
        assert shown(natively.stdout) == expected
    result, text = run(cli, program, case)
    assert shown(text) == expected
    assert result["source"].get("unseen", []) == []


@pytest.mark.parametrize("case", MEASURED)
def test_a_case_costs_the_page_faults_and_the_zeroing_that_it_costs_in_linux(
    cli: Cli, program: Path, case: str
) -> None:
    faults, zeroed = MEASURED[case]
    result, _ = run(cli, program, case)
    found = stats(result)
    assert found["page_faults"] == pytest.approx(faults, rel=0.05, abs=BESIDE)
    assert found["zeroed_bytes"] == pytest.approx(zeroed, rel=0.05, abs=BESIDE * 4096)
    pool = stats(result, "os.hugetlb")
    in_pool = case.startswith(("pool", "segment", "memory"))
    assert (pool["pages_2mb"], pool["refused"]) == (4, 0)
    if in_pool:
        assert found["faults_2mb"] == 4


def test_pages_of_1_gb_come_from_a_pool_of_their_own(cli: Cli, program: Path) -> None:
    result, _ = run(cli, program, "gigabyte", "--set", "os.hugetlb.pages_1gb=1")
    found = stats(result)
    assert (found["faults_1gb"], found["mapped_1gb_bytes"]) == (1, 1 << 30)


def test_a_fault_that_finds_the_pool_empty_ends_the_run(cli: Cli, program: Path) -> None:
    result, _ = run(cli, program, "unreserved", status=125)
    (design,) = result["designs"]
    assert "SIGBUS" in design["message"] and "os.hugetlb.pages_2mb" in design["message"]


def test_a_design_with_a_smaller_pool_gives_ordinary_pages(cli: Cli, program: Path) -> None:
    report = program.with_name("two.json")
    pools = ("--set", "radix:os.hugetlb.pages_2mb=4", "--designs", "radix,thp")
    command = ("compare", *pools, "--json", report, "--", program, "pool")
    answer = cli(*command, cwd=program.parent)
    assert answer.returncode == 0, answer.stderr
    result = json.loads(report.read_text())
    by_name = {d["name"]: n for n, d in enumerate(result["designs"])}
    first, second = by_name["radix"], by_name["thp"]
    assert stats(result, "os.hugetlb", first)["free_2mb"] == 0
    assert stats(result, "os.hugetlb", second)["refused"] == 1
    assert any(w.startswith("thp: 1 mappings of huge pages") for w in result["warnings"])
