"""Live programs and recordings at the edges: few descriptors, interrupts, odd bytes, full disks."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pagewalk
from invoking import Cli, Completed
from live import needs_qemu
from pagewalk import native

COMMAND = [sys.executable, "-m", "pagewalk"]
ENOUGH = 32
"""Descriptors with which a program runs."""


@needs_qemu
@pytest.mark.parametrize("limit", [10, 12, 14, ENOUGH])
def test_with_few_descriptors_a_result_is_right_or_none(cli: Cli, limit: int) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    shell = "seq 1 1000 | sort | wc -l; ulimit -n"
    done = cli("run", "--", "sh", "-c", shell, preexec_fn=few, timeout=60)
    if done.returncode == 0:
        assert done.stdout.split() == ["1000", str(limit)], done.stderr
    else:
        assert limit < ENOUGH, done.stderr
        assert done.returncode in (2, 125) and "ulimit -n" in done.stderr


@needs_qemu
def test_the_soft_limit_of_descriptors_is_the_programs_and_not_the_engines(cli: Cli) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    shell = "ulimit -Sn; ulimit -Hn; /bin/sh -c 'ulimit -Sn'"
    for soft in (8, 12):

        def few(soft: int = soft) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        done = cli("run", "--", "sh", "-c", shell, preexec_fn=few, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [str(soft), str(hard), str(soft)]


def _raw(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, timeout=600, check=False
    )


@needs_qemu
def test_an_argument_that_is_no_utf8_reaches_the_program(tmp_path: Path) -> None:
    odd = b"a\xffb"
    program = ["printf", "%s", os.fsdecode(odd)]
    done = _raw("run", "--json", tmp_path / "r.json", "--", *program)
    assert (done.returncode, done.stdout) == (0, odd), done.stderr
    assert rb"a\xffb" in done.stderr
    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert result["source"]["name"] == r"printf %s a\xffb"
    # Traces of odd names, too.
    trace = tmp_path / os.fsdecode(b"t\xfe.pwt")
    done = _raw("record", "-o", trace, "--", *program)
    assert (done.returncode, done.stdout) == (0, odd), done.stderr
    assert trace.exists()
    for command in (["trace", "info"], ["trace", "check"], ["run", "--trace"]):
        done = _raw(*command, trace)
        assert done.returncode == 0, done.stderr


@needs_qemu
def test_an_installation_in_a_folder_that_is_no_utf8_works(tmp_path: Path) -> None:
    package = tmp_path / os.fsdecode(b"odd \xff, folder") / "pagewalk"
    data = package / "_data"
    data.mkdir(parents=True)
    installed = Path(pagewalk.__file__).parent
    for source, folder in ((installed, package), (installed / "_data", data)):
        for entry in source.iterdir():
            if entry.suffix == ".so" and folder == data:
                # The engine would resolve a link to its target.
                shutil.copy(entry, folder)
            elif entry.name not in ("_data", "__pycache__"):
                (folder / entry.name).symlink_to(entry)
    shell = "/bin/echo out; (exit 3)"
    for command, expected in (
        (["doctor"], (0, b"folder/pagewalk/_data/libpagewalk_qemu.so")),
        (["designs"], (0, b"radix")),
        (["run", "--", "sh", "-c", shell], (3, b"out\n")),
    ):
        done = subprocess.run(
            [*COMMAND, *command],
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(package.parent)},
            check=False,
        )
        status, words = expected
        assert done.returncode == status, done.stderr
        assert words in done.stdout


def _recording(out: Path, *source: str) -> subprocess.Popen[str]:
    """An endless recording that has written something."""
    process = subprocess.Popen(
        [*COMMAND, "record", *source, "-o", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not any(p.stat().st_size for p in out.parent.glob(f"{out.name}.*.partial")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    return process


ENDLESS = ("--workload", "gups", "--size", "1MiB", "--param", "updates=1000000000")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_recording_is_partial_and_says_so(
    number: signal.Signals, invoke: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    out = tmp_path / "cut.pwt"
    process = _recording(out, *ENDLESS)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert list(tmp_path.iterdir()) == [out]
    status, said, _ = invoke("trace", "info", str(out))
    assert status == 0 and "stopped by an interrupt after" in said
    status, said, _ = invoke("run", "--trace", str(out), "--instructions", "10000")
    assert status == 0 and "the trace is partial: an interrupt stopped its recording" in said


def test_a_killed_recording_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    out = tmp_path / "killed.pwt"
    process = _recording(out, *ENDLESS)
    process.kill()
    process.communicate(timeout=120)
    assert all(p.name.endswith(".partial") for p in tmp_path.iterdir())


def _without_room(cli: Cli, out: Path, most: int, updates: int) -> Completed:
    """A recording whose file cannot grow beyond `most` bytes, as on a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    source = ("--workload", "gups", "--size", "1MiB", "--param", f"updates={updates}")
    return cli("record", *source, "-o", out, preexec_fn=limit)


def test_a_recording_without_room_says_what_is_kept(cli: Cli, tmp_path: Path) -> None:
    answer = _without_room(cli, tmp_path / "full.pwt", 8 << 20, 1_000_000_000)
    assert answer.returncode == 1, answer.stderr
    (partial,) = tmp_path.iterdir()
    before, _, after = answer.stderr.partition(f" instructions are kept in {partial}; ")
    assert f"pagewalk trace convert --keep-good {partial} -o NEW.pwt" in after
    whole = tmp_path / "new.pwt"
    converted = cli("trace", "convert", "--keep-good", partial, "-o", whole)
    assert converted.returncode == 0, converted.stderr
    kept = int(before.split()[-1])
    assert native.trace_info(str(whole))["instructions"] == kept > 0


def test_a_recording_without_room_for_anything_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "full.pwt"
    answer = _without_room(cli, out, 4096, 100_000)
    assert answer.returncode == 1, answer.stderr
    assert str(out) in answer.stderr and "nothing of it is kept" in answer.stderr
    assert not list(tmp_path.iterdir())


@needs_qemu
def test_the_status_distinguishes_a_failure_of_ours_from_the_programs(
    cli: Cli, tmp_path: Path
) -> None:
    own = cli("run", "--", "sh", "-c", "exit 1")
    assert own.returncode == 1
    full = cli("run", "--json", "/dev/full", "--", "sh", "-c", "exit 1")
    assert full.returncode == 125
    assert "'/dev/full'" in full.stderr and "no space is left" in full.stderr
    # The report is still printed.
    assert "instructions" in full.stderr
