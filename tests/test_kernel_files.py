"""A live program reads the simulated kernel's files about memory, not the host's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from invoking import Cli
from live import needs, needs_qemu, newer_emulator

pytestmark = [needs_qemu, needs("cc")]

SOURCE = Path(__file__).with_name("kernel_files.c")
NEVER = "always inherit madvise [never]"
# Linux gives these values to the program natively if huge pages are [madvise].
AREAS = {
    "huge.Size": 16384,
    "huge.Rss": 8192,
    "huge.Pss": 8192,
    "huge.Private_Dirty": 8192,
    "huge.Anonymous": 8192,
    "huge.AnonHugePages": 8192,
    "huge.THPeligible": 1,
    "small.Size": 4000,
    "small.Rss": 400,
    "small.Private_Dirty": 400,
    "small.AnonHugePages": 0,
    "rollup.AnonHugePages": 8192,
    "pagemap.huge": 2048,
    # The zero page is among them.
    "pagemap.small": 101,
    "pagemap.exclusive": 1,
    "child.Rss": 400,
    "child.Private_Dirty": 40,
    "child.Shared_Dirty": 360,
    "child.Pss": 40 + 360 // 2,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel-files") / "files"
    subprocess.run(["cc", "-O1", "-o", str(path), str(SOURCE)], check=True)
    return path


def values(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def printed(
    cli: Cli, program: Path, options: tuple[str, ...], *arguments: str, **env: str
) -> tuple[dict[str, str], dict[str, Any]]:
    """Lines that the program printed, and the result of the run."""
    report = program.with_name("result.json")
    output = program.with_name("printed")
    command = ("sh", "-c", f"exec {program} {' '.join(arguments)} > {output}")
    answer = cli(*options, "--json", report, "--", *command, env={**os.environ, **env})
    assert answer.returncode == 0, answer.stderr
    return values(output.read_text()), json.loads(report.read_text())


def natively(program: Path) -> dict[str, str] | None:
    """Its lines natively, on a host with the mode that the simulated kernel has."""
    mode = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not mode.exists() or "[madvise]" not in mode.read_text():
        return None
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    return values(done.stdout)


def check(found: dict[str, str], result: dict[str, Any]) -> None:
    assert {name: int(found[name]) for name in AREAS} == AREAS
    # A call may touch a window of library code meanwhile.
    assert int(found["statm"]) == pytest.approx(2048, abs=32)
    assert int(found["VmRSS"]) == pytest.approx(int(found["rss"]), abs=128)
    assert found["enabled"] == found["relative"] == "always [madvise] never"
    assert found["shmem_enabled"] == "always within_size advise [never] deny force"
    assert found["hpage_pmd_size"] == "2097152"
    assert found["pages_to_scan"] == "1234"
    assert found["size_64kb"] == NEVER
    assert (found["pool"], found["Hugepagesize"]) == ("0", "2048")
    # Only the simulated machine's frames of a huge page are known to be neighbours.
    assert found["pagemap.contiguous"] == "512"
    config = result["designs"][0]["config"]
    gigabytes = config["os"]["memory_gb"] * (1 - config["os"]["kernel_reserved"])
    assert int(found["MemTotal"]) == pytest.approx(gigabytes * 2**20, rel=0.001)


OPTIONS = (
    "run",
    "--no-translation-cost",
    "--design",
    "thp",
    "--set",
    "placement.thp.mode=madvise",
    "--set",
    "placement.thp.khugepaged.pages_to_scan=1234",
)


def test_files_tell_of_the_simulated_kernel(cli: Cli, program: Path) -> None:
    found, result = printed(cli, program, OPTIONS)
    check(found, result)
    assert result["source"]["unseen"] == []
    stats = {s["name"]: s["value"] for s in result["designs"][0]["stats"] if s["path"] == "os"}
    assert stats["faults_2mb"] == AREAS["huge.AnonHugePages"] // 2048
    native = natively(program)
    if native is not None:
        # The host may have no free block for a huge page.
        huge = int(native["huge.AnonHugePages"]) == AREAS["huge.AnonHugePages"]
        names = [name for name in AREAS if huge or name.startswith(("small", "child"))]
        assert {name: int(native[name]) for name in names} == {n: AREAS[n] for n in names}


def test_a_newer_emulator_shows_the_same(cli: Cli, program: Path) -> None:
    check(*printed(cli, program, OPTIONS, PAGEWALK_QEMU=newer_emulator()))


def test_the_first_design_answers(cli: Cli, program: Path) -> None:
    options = ("compare", "--no-translation-cost", "--designs", "radix,thp")
    found, result = printed(cli, program, options)
    assert found["enabled"] == "always madvise [never]"
    assert (int(found["huge.Rss"]), int(found["huge.AnonHugePages"])) == (16, 0)
    assert [design["status"] for design in result["designs"]] == ["complete", "complete"]


def test_a_write_changes_nothing_and_is_named(cli: Cli, program: Path) -> None:
    path = Path("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan")
    if not os.access(path, os.W_OK):
        pytest.skip(f"{path} cannot be opened for writing here")
    before = path.read_text()
    size = ("--set", "placement.thp.sizes.64kb=inherit")
    found, result = printed(cli, program, (*OPTIONS, *size), str(path))
    assert found["written"] == "1"
    assert path.read_text() == before
    (named,) = result["source"]["unseen"]
    assert named == f"writing to {path} is not modelled: the simulated kernel ignores it"
    # The same run has small sizes.
    assert found["size_64kb"] == "always [inherit] madvise never"
    stats = {
        s["name"]: s["value"] for s in result["designs"][0]["stats"] if s["path"] == "os.thp_sizes"
    }
    assert stats["faults_64kb"] == 0
    assert int(found["huge.AnonHugePages"]) == 8192


def test_a_recording_has_no_kernel_and_says_so(cli: Cli, program: Path) -> None:
    trace = program.with_name("program.pwt")
    answer = cli("record", "--out", trace, "--", program)
    assert answer.returncode == 0, answer.stderr
    host = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if host.exists():
        assert f"enabled={host.read_text().strip()}" in answer.stdout
    shown = " ".join(cli("trace", "info", trace).stdout.split())
    for path in ("/proc/meminfo", "/proc/self/smaps", "/proc/self/pagemap"):
        named = f"{path} is not simulated: the program read the host's"
        assert shown.count(named) == 1, shown
