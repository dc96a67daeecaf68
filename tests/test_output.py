"""Standard output and standard error that are closed, full or gone: no result is lost."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pagewalk

SMALL = "--workload gups --size 64MiB --instructions 100K --warmup 0"
CLOSED = "error: could not write to standard output: it is closed; send it elsewhere\n"
FULL = (
    "error: could not write to standard output: no space is left on the device; send it elsewhere\n"
)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "t.pwt"
    assert shell(f"PW record {SMALL.split('--warmup', maxsplit=1)[0]} -o {path}")[0] == 0
    return path


def shell(command: str, folder: Path | None = None) -> tuple[int, str, str]:
    """Runs a command of a shell in which PW is the command line: status, output, error output."""
    pw = f"{shlex.quote(sys.executable)} -m pagewalk"
    script = f'PW() {{ {pw} "$@"; }}; set -o pipefail; {command}'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, cwd=folder, check=False, timeout=600
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    return done.returncode, done.stdout, done.stderr


COMMANDS = [
    f"run {SMALL}",
    f"compare {SMALL} --designs radix,thp",
    f"record {SMALL.split('--warmup', maxsplit=1)[0]} -o u.pwt",
    "workloads",
    "designs",
    "machines",
    "explain ipc",
    "trace info TRACE",
    "trace check TRACE",
    "trace convert TRACE -o u.champsimtrace",
    "doctor",
    "reproduce",
    "--help",
    "run --help",
    "--version",
    "designs --json -",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_output_that_is_lost_is_no_traceback(command: str, trace: Path, tmp_path: Path) -> None:
    command = command.replace("TRACE", str(trace))
    assert shell(f"PW {command} > /dev/full", tmp_path) == (1, "", FULL)
    assert shell(f"PW {command} >&-", tmp_path) == (1, "", CLOSED)
    # A reader that has gone before anything is written.
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        [sys.executable, "-m", "pagewalk", *command.split()],
        stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (141, "")


@pytest.mark.parametrize(
    ("where", "status"), [("| head -n 1", 141), ("> /dev/full", 1), (">&-", 1), (">&- 2>&- <&-", 1)]
)
def test_files_are_written_before_the_report(where: str, status: int, tmp_path: Path) -> None:
    flags = "--json r.json --parquet r.parquet --html r.html"
    code, _, _ = shell(f"PW compare {SMALL} --designs radix,thp {flags} {where}", tmp_path)
    # `head` may leave after the report is written.
    assert code in ({0, status} if "head" in where else {status})
    result = json.loads((tmp_path / "r.json").read_text())
    assert [d["name"] for d in result["designs"]] == ["radix", "thp"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json", "r.parquet"]
    assert (tmp_path / "r.html").read_text().endswith("</html>\n")


def test_other_files_are_written_when_the_one_on_standard_output_is_lost(tmp_path: Path) -> None:
    for where, status in ((">/dev/full", 1), ("| true", 141)):
        path = tmp_path / "r.html"
        code, _, err = shell(f"PW run {SMALL} --json - --html r.html {where}", tmp_path)
        assert code == status
        assert path.read_text().endswith("</html>\n")
        assert "Cycle stack" in err
        path.unlink()


def test_a_failed_file_and_a_lost_report_are_one_error(tmp_path: Path) -> None:
    code, out, err = shell(f"PW run {SMALL} --json /dev/full --html r.html >&-", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith("error: could not write '/dev/full': no space is left on the device;")
    assert "; could not write to standard output: it is closed" in err
    assert err.count("\n") == 1
    assert (tmp_path / "r.html").exists()


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_nothing_depends_on_standard_error(where: str, tmp_path: Path) -> None:
    code, out, _ = shell(f"PW run {SMALL} --json r.json {where}", tmp_path)
    assert code == 0
    assert "Cycle stack" in out
    assert json.loads((tmp_path / "r.json").read_text())["version"] == pagewalk.__version__
    assert shell(f"PW run {SMALL} --json - {where}")[0] == 0
    assert shell(f"PW run --no-such-flag {where}") == (2, "", "")
    assert shell(f"PW run --workload gups --instructions 0 {where}") == (2, "", "")
    assert shell(f"PW trace check no-such-file {where}") == (2, "", "")
