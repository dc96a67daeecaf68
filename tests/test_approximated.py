"""Instructions of live programs that are not simulated as hardware executes them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import live
import pagewalk
from invoking import Cli

pytestmark = [live.needs_qemu, live.needs("cc")]

PROGRAM = r"""
#include <emmintrin.h>
#include "pagewalk.h"
static char lines[1 << 16] __attribute__((aligned(64)));
int main(void) {
    pagewalk_roi_begin();
    /* A replay fast-forwards the block with the mark. */
    __asm__ volatile("jmp 1f\n1:");
    for (int i = 0; i < 1 << 16; i += 64) _mm_clflush(lines + i);
    for (int i = 0; i < 1 << 14; i++) _mm_pause();
    _mm_mfence();
    pagewalk_roi_end();
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("approximated")
    (folder / "program.c").write_text(PROGRAM)
    command = ["cc", "-O2", "-I", pagewalk.get_include(), "program.c", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def test_classes_are_counted_and_those_that_matter_are_in_a_warning(
    program: Path, cli: Cli, tmp_path: Path
) -> None:
    trace = tmp_path / "program.pwt"
    assert cli("record", "-o", trace, "--", program).returncode == 0
    results = [pagewalk.run(program=[str(program)], roi=True), pagewalk.run(trace=trace, roi=True)]
    for result in results:
        classes = {one["name"]: one for one in result.data["source"]["approximated"]}
        assert "flush" not in classes, "simulated"
        assert classes["wait"]["count"] == 1 << 14
        assert classes["fence"]["count"] >= 1
        assert classes["wait"]["share"] > 0.01 > classes["fence"]["share"]
        said = [w for w in result.warnings if "each simulated as" in w]
        assert len(said) == 1, said
        assert "16384 of" in said[0] and "pause" in said[0] and "IPC is too large" in said[0]


def test_warnings_stand_above_the_results(program: Path, cli: Cli) -> None:
    done = cli("run", "--roi", "--", program)
    out = done.stdout + done.stderr
    assert out.index("warning: 16384 of") < out.index("instructions  ")


def test_the_counts_do_not_depend_on_host_threads(program: Path, cli: Cli, tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        path = tmp_path / f"{jobs}.json"
        done = cli("run", "--cpu", "max", "--jobs", jobs, "--json", path, "--", program)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(path.read_text())["source"]["approximated"])
    assert found[0] == found[1]
    assert {one["name"] for one in found[0]} >= {"wait", "fence"}
