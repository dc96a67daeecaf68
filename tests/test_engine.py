"""The command line with the real engine: results, and every kind of bad input."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from invoking import Cli, Completed

GUPS = ["--workload", "gups", "--size", "64MiB", "--warmup", "100K", "--instructions", "300K"]
LONG = ["--workload", "gups", "--size", "1GiB", "--warmup", "0", "--instructions", "100G"]


def result(answer: Completed) -> dict[str, Any]:
    assert answer.returncode == 0, answer.stderr
    data: dict[str, Any] = json.loads(answer.stdout)
    return data


def numbers(data: dict[str, Any], name: str) -> dict[str, float]:
    return {
        d["name"]: q["value"] for d in data["designs"] for q in d["summary"] if q["name"] == name
    }


def refused(answer: Completed, *words: str, status: int = 2) -> None:
    """The error is one sentence with all `words`, without a stack or a result."""
    assert answer.returncode == status, answer.stdout + answer.stderr
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert "Traceback" not in answer.stderr
    assert "panicked" not in answer.stderr
    assert answer.stderr.count("\n") == 1
    for word in words:
        assert word in answer.stderr


# Results


def test_a_run_reports_its_main_statistics(cli: Cli) -> None:
    answer = cli("run", *GUPS, "--verbose")
    assert answer.returncode == 0
    assert answer.stderr == ""
    for name in (
        "ipc",
        "cycles",
        "l2_tlb_mpki",
        "walks",
        "page_table_bytes",
        "largest_contiguous_bytes",
        "Cycle stack",
        "page_table.radix",
    ):
        assert name in answer.stdout


def test_less_translation_is_never_slower(cli: Cli) -> None:
    data = result(
        cli(
            *[
                "compare",
                "--workload",
                "gups",
                "--size",
                "1GiB",
                "--warmup",
                "200K",
                "--instructions",
                "1M",
            ],
            *["--designs", "radix,l2tlb-128k,perfect-tlb", "--json", "-"],
        )
    )
    ipc = numbers(data, "ipc")
    assert ipc["perfect-tlb"] >= ipc["l2tlb-128k"] >= ipc["radix"] > 0
    walks = numbers(data, "walks")
    assert walks["radix"] > walks["l2tlb-128k"] > walks["perfect-tlb"] == 0


def test_one_seed_gives_one_answer_on_any_number_of_host_threads(cli: Cli) -> None:
    answers = []
    for jobs in ("1", "2", "2"):
        data = result(cli("compare", *GUPS, "--jobs", jobs, "--interval", "50K", "--json", "-"))
        del data["host"]
        answers.append(json.dumps(data))
    assert answers[0] == answers[1] == answers[2]


def test_another_seed_gives_another_answer(cli: Cli) -> None:
    cycles = [
        numbers(result(cli("run", *GUPS, "--seed", seed, "--json", "-")), "cycles")["radix"]
        for seed in ("1", "2")
    ]
    assert cycles[0] != cycles[1]


def test_a_result_contains_its_inputs(cli: Cli) -> None:
    data = result(cli("run", *GUPS, "--set", "mmu.walkers=3", "--json", "-"))
    assert data["version"] == cli("--version").stdout.split()[1]
    assert data["seed"] == 1
    assert data["designs"][0]["config"]["mmu"]["walkers"] == 3
    assert data["limits"]["instructions"] == 300_000
    assert data["host"]["simulated_instructions_per_second"] > 0


def test_intervals_add_up(cli: Cli) -> None:
    data = result(cli("run", *GUPS, "--interval", "100K", "--json", "-"))
    (design,) = data["designs"]
    intervals = design["intervals"]
    assert [n // 100_000 for n in intervals["first_instruction"]] == [0, 1, 2]
    assert intervals["complete"] == [True] * 3
    assert sum(intervals["cycles"]) == numbers(data, "cycles")["radix"]


def test_sampling_gives_an_interval_that_holds_the_truth(cli: Cli) -> None:
    limits = [
        "--workload",
        "gups",
        "--size",
        "256MiB",
        "--warmup",
        "100K",
        "--instructions",
        "4M",
        "--json",
        "-",
    ]
    whole = numbers(result(cli("run", *limits)), "ipc")["radix"]
    sampled = result(cli("run", *limits, "--sample", "20K/200K"))["designs"][0]["sampling"]
    assert sampled["samples"] >= 10
    assert sampled["ipc_low"] < sampled["ipc"] < sampled["ipc_high"]
    assert sampled["ipc_low"] * 0.98 <= whole <= sampled["ipc_high"] * 1.02


def test_perfetto_shows_walks_in_time(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "walks.json"
    answer = cli("run", *GUPS, "--perfetto", path, "--perfetto-walks", "20")
    assert answer.returncode == 0, answer.stderr
    events = json.loads(path.read_text())["traceEvents"]
    assert any(e["ph"] == "X" and e["dur"] > 0 for e in events)
    assert sum(e.get("cat") == "walk" for e in events) == 20


def test_as_many_walks_are_recorded_as_help_says(cli: Cli, tmp_path: Path) -> None:
    words = " ".join(cli("run", "--help", env={**os.environ, "COLUMNS": "200"}).stdout.split())
    (default,) = re.findall(r"Walks to record a core and design \(default: (\d+)\)", words)
    path = tmp_path / "walks.json"
    data = result(cli("run", *GUPS, "--perfetto", path, "--json", "-"))
    assert numbers(data, "walks")["radix"] > int(default)
    events = json.loads(path.read_text())["traceEvents"]
    assert sum(e.get("cat") == "walk" for e in events) == int(default)


def test_designs_that_never_differ_are_named(cli: Cli, tmp_path: Path) -> None:
    radix = Path(__file__).parent.parent / "designs" / "radix.toml"
    shutil.copy(radix, tmp_path / "twin.toml")
    answer = cli("compare", *GUPS, "--designs", f"radix,{tmp_path / 'twin.toml'}")
    assert "radix and twin never differed" in answer.stdout


def test_designs_of_one_name_are_refused(cli: Cli, tmp_path: Path) -> None:
    radix = Path(__file__).parent.parent / "designs" / "radix.toml"
    shutil.copy(radix, tmp_path / "radix.toml")
    answer = cli("compare", *GUPS, "--designs", f"radix,{tmp_path / 'radix.toml'}")
    refused(answer, "two designs are called radix")


def test_every_catalogue_and_explanation(cli: Cli) -> None:
    for what, name in (("designs", "thp"), ("machines", "epyc-milan"), ("workloads", "gups")):
        listed = cli(what)
        assert listed.returncode == 0
        assert name in listed.stdout
        assert what[:-1] in cli("explain", name).stdout
        assert name in {e["name"] for e in json.loads(cli(what, "--json", "-").stdout)}
    gups = json.loads(cli("explain", "gups", "--json", "-").stdout)[0]
    assert {p["name"] for p in gups["workload"]["params"]} >= {"updates", "populate"}
    assert "Page walks" in cli("explain", "walks").stdout
    assert "configuration key" in cli("explain", "mmu.walkers").stdout
    refused(cli("explain", "l2_tbl_mpki"), "did you mean l2_tlb_mpki")


def test_doctor_lists_every_component(cli: Cli) -> None:
    answer = cli("doctor")
    assert answer.returncode == 0, answer.stdout
    for name in ("host", "python", "engine", "qemu-user", "plugin", "perf"):
        assert name in answer.stdout


# Speed and interruption


HEAVY = ("polars", "altair", "numpy", "vl_convert")
IMPORTED = f"""
import sys
from pagewalk.__main__ import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--version"], ["explain", "walks"], ["run", *GUPS]])
def test_heavy_libraries_wait_until_they_are_used(arguments: list[str]) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr.splitlines()[-1] == "[]"


class Terminal:
    """Output of a process on a terminal, read with a limit of time."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.shown = b""

    def read_until(self, end: bytes | None) -> None:
        """Reads until `end` was shown; without one, until the process closes the terminal."""
        deadline = time.monotonic() + 300
        while end is None or end not in self.shown:
            left = deadline - time.monotonic()
            assert select.select([self.leader], [], [], max(left, 0))[0], self.shown
            try:
                chunk = os.read(self.leader, 4096)
            except OSError:  # Linux's end of a terminal.
                chunk = b""
            self.shown += chunk
            if not chunk:
                assert end is None, self.shown
                return


@contextmanager
def simulating(output: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """A long run that is under way: it has reported its progress."""
    command = [sys.executable, "-m", "pagewalk", "run", *LONG, *arguments]
    leader, follower = pty.openpty()
    try:
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=follower)
        os.close(follower)
        try:
            terminal = Terminal(leader)
            terminal.read_until(b"left")
            yield process, terminal
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(leader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_gives_the_result_so_far(number: signal.Signals, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with simulating(output, "--json", "-") as (process, terminal):
        process.send_signal(number)
        terminal.read_until(None)
        assert process.wait(300) == 128 + number, terminal.shown
    data = json.loads(output.read_text())
    assert data["partial"] is True
    assert numbers(data, "instructions")["radix"] > 0


def test_a_person_sees_progress(tmp_path: Path) -> None:
    with simulating(tmp_path / "out") as (process, terminal):
        process.send_signal(signal.SIGINT)
        terminal.read_until(None)
        assert process.wait(300) == 128 + signal.SIGINT, terminal.shown
    assert re.search(rb"of 100 G.*/s.*left", terminal.shown, re.DOTALL)
    assert b"stopping" in terminal.shown


# Configuration


def design_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[placement.buddy]\n[mmu]\nwalkres = 2\n", ["mine.toml:3", "mmu.walkres", "walkers"]),
        ("[placement.buddy]\n[page_table.radix]\nlevels = 7\n", ["levels", "expected 4 or 5"]),
        ('[placement.buddy]\n[mmu]\nwalkers = "two"\n', ["mine.toml:3", "mmu.walkers"]),
        ("[placement.buddy]\n[placement.thp]\n", ["mine.toml:2", "placement"]),
        ("[placement\n", ["mine.toml:1", "not TOML"]),
        ("[placement.budy]\n", ["mine.toml:1", "budy", "buddy"]),
    ],
)
def test_a_wrong_design_file_is_refused_with_its_line(
    cli: Cli, tmp_path: Path, text: str, words: list[str]
) -> None:
    refused(cli("run", "--design", design_file(tmp_path, text), *GUPS), *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--design", "raddix"], ["raddix", "radix"]),
        (["--machine", "epyc-millan"], ["epyc-millan", "epyc-milan"]),
        (["--design", "no/such.toml"], ["no/such.toml"]),
        (["--set", "mmu.walkres=2"], ["--set mmu.walkres=2", "walkers"]),
        (["--set", "mmu.walkers=-1"], ["mmu.walkers"]),
        (["--set", "cores=0"], ["cores is 0", "expected 1 to 64"]),
        (["--set", "caches.l2.latency=1"], ["latency"]),
        (["--param", "updtes=3"], ["updtes", "updates"]),
        (["--param", "updates=many"], ["updates", "many"]),
    ],
)
def test_a_wrong_name_or_key_is_refused_with_the_right_one(
    cli: Cli, arguments: list[str], words: list[str]
) -> None:
    refused(cli("run", *GUPS, *arguments), *words)


def test_a_wrong_workload_is_refused_with_the_right_one(cli: Cli) -> None:
    refused(cli("run", "--workload", "gupps"), "gupps", "gups")


def test_running_out_of_simulated_memory_is_a_result(cli: Cli) -> None:
    answer = cli(
        *[
            "compare",
            "--workload",
            "gups",
            "--size",
            "1GiB",
            "--instructions",
            "100K",
            "--set",
            "os.memory_gb=1",
        ],
        *["--designs", "radix,thp"],
    )
    assert answer.returncode == 1
    assert "radix (out of memory)" in answer.stdout
    assert "os.memory_gb" in answer.stdout
    assert "Traceback" not in answer.stderr


PIECES = (
    *("--workload", "gups", "--size", "2GiB", "--instructions", "10K"),
    *("--machine", "mehpt-table3", "--set", "os.fragmentation.unusable_free_index=1.0"),
    *("--set", "os.compaction.fails_from_mb=2"),
)


def test_a_page_table_without_contiguous_memory_cannot_finish(cli: Cli, tmp_path: Path) -> None:
    written = tmp_path / "r.json"
    alone = cli("run", *PIECES, "--design", "ecpt", "--json", str(written))
    assert alone.returncode == 1
    assert "contiguous 2 MB" in alone.stdout.replace("\n", " ")
    assert "Traceback" not in alone.stderr
    design = json.loads(written.read_text())["designs"][0]
    assert design["status"] == "cannot_finish"
    assert "os.compaction" in design["message"]
    grown = {s["name"]: s["value"] for s in design["since_boot"] if s["path"] == "os"}
    assert grown["largest_contiguous_bytes"] == 1 << 20
    both = cli("compare", *PIECES, "--designs", "mehpt,ecpt")
    assert both.returncode == 1
    assert "ecpt (cannot finish)" in both.stdout


def test_a_full_disk_is_an_error_and_the_report_is_printed(cli: Cli) -> None:
    answer = cli("run", *GUPS, "--json", "/dev/full")
    assert answer.returncode == 1
    assert "Cycle stack" in answer.stdout
    assert "no space is left on the device" in answer.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m pagewalk workloads | head -n 1"
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert answer.stderr == ""
