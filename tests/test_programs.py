"""Live programs and traces, from the outside."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from invoking import Cli, Completed
from live import needs_qemu

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.qemu


def numbers(answer: Completed) -> dict[str, dict[str, float]]:
    assert answer.returncode == 0, answer.stderr
    data: dict[str, Any] = json.loads(answer.stdout)
    return {d["name"]: {q["name"]: q["value"] for q in d["summary"]} for d in data["designs"]}


@pytest.fixture
def trace(cli: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "gups.pwt"
    answer = cli(
        *["record", "--workload", "gups", "--size", "16MiB", "--instructions", "200K", "-o"], path
    )
    assert answer.returncode == 0, answer.stderr
    return path


def refused(answer: Completed, *words: str) -> None:
    assert answer.returncode in (1, 2), answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr
    assert "panicked" not in answer.stderr
    assert answer.stderr.startswith("error: ")
    for word in words:
        assert word in answer.stderr


# Live programs


@needs_qemu
def test_brackets_in_arguments_are_shown_and_do_nothing(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    answer = cli("record", "-o", trace, "--", "sh", "-c", "exit 7", "[/:]")
    assert answer.returncode == 7, answer.stderr
    assert "sh -c exit 7 [/:]" in answer.stderr
    assert "sh -c exit 7 [/:]" in cli("trace", "info", trace).stdout
    answer = cli("run", "--", "grep", "-c", "[a-z]", "/etc/hostname")
    assert (answer.returncode, answer.stdout) == (0, "1\n"), answer.stderr
    assert "grep -c [a-z] /etc/hostname" in answer.stderr


@needs_qemu
@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full", ">/dev/full", ">&-"])
def test_the_exit_status_is_the_programs_even_if_the_report_is_lost(where: str) -> None:
    command = f'"{sys.executable}" -m pagewalk run -- sh -c "echo x; exit 3" {where}'
    answer = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert answer.returncode == 3
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ("x\n" if where.startswith("2") else "")


@needs_qemu
def test_output_and_exit_status_pass_through(cli: Cli) -> None:
    answer = cli("run", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert answer.returncode == 3
    assert answer.stdout == "out\n"
    assert "err\n" in answer.stderr
    assert "Cycle stack" in answer.stderr


@needs_qemu
def test_ls_has_its_native_output(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    plain = subprocess.run(["ls", "-la", tmp_path], capture_output=True, text=True, check=True)
    assert cli("run", "--", "ls", "-la", tmp_path).stdout == plain.stdout


@needs_qemu
def test_standard_input_reaches_the_program(cli: Cli) -> None:
    assert cli("run", "--", "cat", input="through\n").stdout == "through\n"


@needs_qemu
@pytest.mark.parametrize(
    ("script", "status"), [("kill -SEGV $$", 128 + 11), ("kill -KILL $$", 128 + 9)]
)
def test_a_program_that_dies_keeps_its_result(cli: Cli, script: str, status: int) -> None:
    answer = cli("run", "--", "sh", "-c", f"echo before; {script}")
    assert answer.returncode == status
    assert answer.stdout == "before\n"
    assert "Cycle stack" in answer.stderr
    assert "Traceback" not in answer.stderr


@needs_qemu
def test_a_program_that_forks_and_executes(cli: Cli) -> None:
    answer = cli("run", "--set", "cores=2", "--", "sh", "-c", "(echo child); ls /proc/version")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "child\n/proc/version\n"


def test_no_such_program(cli: Cli) -> None:
    refused(cli("run", "--", "no-such-program"), "no-such-program")


def test_a_file_that_is_no_program(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "noise"
    script.write_bytes(b"\x7fELF noise")
    script.chmod(0o755)
    refused(cli("run", "--", script), "noise")


def test_without_qemu_the_error_names_the_package(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "true").symlink_to("/bin/true")
    environment = {**os.environ, "PATH": str(tmp_path)}
    refused(cli("run", "--", "true", env=environment), "qemu", "install")


# Traces


def test_a_recording_replays_the_same(cli: Cli, trace: Path) -> None:
    first, second = (cli("compare", "--trace", trace, "--json", "-") for _ in range(2))
    assert numbers(first) == numbers(second)
    assert numbers(first)["radix"]["instructions"] >= 200_000


def test_a_recording_of_threads_gives_the_statistics_of_the_program(
    cli: Cli, tmp_path: Path
) -> None:
    program = "--workload gups --size 16MiB --threads 4".split()
    path = tmp_path / "four.pwt"
    recorded = cli("record", *program, "--instructions", "1M", "-o", path)
    assert recorded.returncode == 0, recorded.stderr
    limits = "--set cores=2 --skip 50K --warmup 50K --instructions 300K --json -".split()
    results = []
    for source in (program, ["--trace", path, "--roi"]):
        answer = cli("run", *source, *limits)
        assert answer.returncode == 0, answer.stderr
        (design,) = json.loads(answer.stdout)["designs"]
        results.append(design)
    assert results[0] == results[1]


@needs_qemu
def test_two_replays_of_a_live_recording_agree(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "sh.pwt"
    recorded = cli("record", "-o", path, "--", "sh", "-c", "echo recorded; exit 5")
    assert (recorded.returncode, recorded.stdout) == (5, "recorded\n")
    replayed = [cli("run", "--trace", path, "--json", "-") for _ in range(2)]
    assert numbers(replayed[0]) == numbers(replayed[1])


def test_info_and_check_of_a_good_trace(cli: Cli, trace: Path) -> None:
    assert "instructions" in cli("trace", "info", trace).stdout
    checked = cli("trace", "check", trace)
    assert checked.returncode == 0
    assert checked.stdout.startswith(f"{trace}: good, 20")


def damaged(trace: Path, how: str) -> Path:
    content = trace.read_bytes()
    middle = len(content) // 2
    path = trace.with_name(f"{how}.pwt")
    path.write_bytes(
        {
            "empty": b"",
            "truncated": content[:middle],
            "corrupt": content[:middle] + bytes([content[middle] ^ 0x55]) + content[middle + 1 :],
            "noise": bytes(range(256)) * 64,
        }[how]
    )
    return path


@pytest.mark.parametrize("how", ["empty", "truncated", "corrupt", "noise"])
def test_a_damaged_trace_is_found(cli: Cli, trace: Path, how: str) -> None:
    path = damaged(trace, how)
    refused(cli("trace", "check", path), str(path))


@pytest.mark.parametrize("how", ["empty", "noise"])
def test_a_trace_of_nothing_is_not_run(cli: Cli, trace: Path, how: str) -> None:
    path = damaged(trace, how)
    refused(cli("run", "--trace", path), str(path))


@pytest.mark.parametrize("how", ["truncated", "corrupt"])
def test_a_damaged_trace_fails_and_names_the_damage(cli: Cli, trace: Path, how: str) -> None:
    answer = cli("run", "--trace", damaged(trace, how))
    assert answer.returncode in (1, 2)
    assert how in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_wrong_compression_is_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.champsimtrace.gz"
    path.write_bytes(lzma.compress(bytes(64 * 100)))
    answer = cli("run", "--trace", path)
    assert "xz" in answer.stdout + answer.stderr


def test_champsims_format_round_trips(cli: Cli, trace: Path, tmp_path: Path) -> None:
    there = tmp_path / "t.champsimtrace.xz"
    assert cli("trace", "convert", trace, "-o", there).returncode == 0
    answer = cli("run", "--trace", there)
    assert answer.returncode == 0, answer.stderr
    assert "mappings were inferred" in answer.stdout
    assert "count as mapped before" in " ".join(answer.stdout.split())
