"""A program that dies is no complete run, in any report of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Cli
from live import needs, needs_qemu
from pagewalk import native

pytestmark = [pytest.mark.qemu, needs_qemu, needs("cc")]

HEADERS = """
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
"""
FAULT = """
static void work(void) {
    volatile int *p = malloc(4);
    for (int i = 0; i < 100000; i++) *p = i;
}
static void fault(void) { *(volatile int *)8 = 1; }
"""
CRASH = "int main(void) { work(); fault(); return 0; }"
# vmovups zmm0, [rdi]
WIDE = r'int main(void) { work(); asm(".byte 0x62,0xf1,0x7c,0x48,0x10,0x07"); return 0; }'
TRAP = "int main(void) { work(); __builtin_trap(); }"
REAL_TIME = "int main(void) { work(); kill(getpid(), 37); return 0; }"
KILLED = "int main(void) { work(); kill(getpid(), SIGKILL); return 0; }"


def child(ends: str, parent: str = "int status; waitpid(child, &status, 0);") -> str:
    """A program whose child `ends`, which the `parent` awaits; it then works and exits with 0."""
    return (
        f"int main(void) {{ pid_t child = fork(); if (child == 0) {{ work(); {ends} _exit(0); }}"
        f" {parent} work(); return 0; }}"
    )


def compiled(folder: Path, text: str) -> Path:
    source = folder / "program.c"
    source.write_text(HEADERS + FAULT + text)
    program = folder / "program"
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    return program


def one_line(text: str) -> str:
    return " ".join(text.split())


def ended(cli: Cli, folder: Path, *arguments: str | Path) -> tuple[int, dict[str, Any], str]:
    """Exit status, result and report of a run."""
    path = folder / "result.json"
    answer = cli("run", "--json", path, *arguments)
    return answer.returncode, json.loads(path.read_text()), one_line(answer.stderr + answer.stdout)


@pytest.mark.parametrize(
    ("text", "status", "why"),
    [
        (CRASH, 128 + signal.SIGSEGV, "the program died of SIGSEGV"),
        (KILLED, 128 + signal.SIGKILL, "the program died of SIGKILL"),
        (
            WIDE,
            128 + signal.SIGILL,
            r"the program died of SIGILL: the emulator does not execute vmovups "
            r"\(bytes 62 f1 7c 48 10 07 at 0x[0-9a-f]+\), which needs AVX512F; "
            r"compile the program without that, for example with -march=x86-64-v3",
        ),
        # The program's numbers, which QEMU moves on the host.
        (REAL_TIME, 128 + 37, "the program died of signal 37"),
        (child("kill(getpid(), 64 - 4);"), 125, "a child process of the program died of signal 60"),
        (TRAP, 128 + signal.SIGILL, r"the program died of SIGILL: ud2 \(bytes 0f 0b at 0x.*"),
        (child("fault();"), 125, "a child process of the program died of SIGSEGV"),
        (child("abort();"), 125, "a child process of the program died of SIGABRT"),
        # A status taken with waitid, and one that nobody asks for: a zombie may still have it.
        (
            child("fault();", "siginfo_t i; waitid(P_PID, child, &i, WEXITED);"),
            *(125, "a child process of the program died of SIGSEGV"),
        ),
        (
            child("fault();", "wait(0);"),
            *(125, "a child process of the program died of (SIGSEGV|a signal .*)"),
        ),
    ],
)
def test_a_death_is_no_complete_run(
    cli: Cli, tmp_path: Path, text: str, status: int, why: str
) -> None:
    program = compiled(tmp_path, text)
    code, result, report = ended(cli, tmp_path, "--", program)
    design = result["designs"][0]
    assert (code, result["partial"], design["status"]) == (status, True, "died"), report
    assert re.fullmatch(why, design["message"]), design["message"]
    assert any(design["message"] in warning for warning in result["warnings"])
    # Above the numbers, which are those of the part before.
    assert report.index(f"partial: {design['message']}") < report.index("Translation"), report
    instructions = {q["name"]: q["value"] for q in design["summary"]}["instructions"]
    assert instructions > 400_000
    trace = tmp_path / "died.pwt"
    recorded = cli("record", "-o", trace, "--", program)
    assert recorded.returncode == status
    assert design["message"][:30] in one_line(recorded.stderr)
    assert design["message"][:30] in one_line(cli("trace", "info", trace).stdout)
    code, again, _ = ended(cli, tmp_path, "--trace", trace)
    assert (code, again["partial"], again["designs"][0]["status"]) == (1, True, "died")
    assert re.fullmatch(why, again["designs"][0]["message"])


@pytest.mark.parametrize(
    "text",
    [
        "int main(void) { return 139; }",
        child("pause();", "int s; kill(child, SIGTERM); waitpid(child, &s, 0);"),
        child("pause();", "kill(child, SIGKILL); wait(0);"),
        child("pause();", "kill(child, 40); wait(0);"),
        # Dies with its parent, which waits until that is set.
        child(
            "prctl(PR_SET_PDEATHSIG, SIGKILL); raise(SIGSTOP);",
            "int status; waitpid(child, &status, WUNTRACED);",
        ),
        # `yes | head` ends so.
        child("raise(SIGPIPE);"),
        # A handler that goes on.
        "static void on(int n) { _exit(139); }"
        "int main(void) { signal(SIGSEGV, on); work(); fault(); }",
    ],
)
def test_an_end_of_the_programs_own_is_complete(cli: Cli, tmp_path: Path, text: str) -> None:
    code, result, report = ended(cli, tmp_path, "--", compiled(tmp_path, text))
    assert code == (139 if "139" in text else 0), report
    assert (result["partial"], result["designs"][0]["status"]) == (False, "complete"), report


def test_a_death_behind_the_measured_part_is_not_seen(cli: Cli, tmp_path: Path) -> None:
    program = compiled(tmp_path, CRASH)
    limit = ("--instructions", "200K")
    code, result, _ = ended(cli, tmp_path, *limit, "--", program)
    assert (code, result["partial"]) == (0, False)
    trace = tmp_path / "died.pwt"
    cli("record", "-o", trace, "--", program)
    code, result, _ = ended(cli, tmp_path, *limit, "--trace", trace)
    assert (code, result["partial"]) == (0, False)


def test_a_death_before_the_measured_part_is_the_cause(cli: Cli, tmp_path: Path) -> None:
    program = compiled(tmp_path, CRASH)
    for limit, early in (
        (("--skip", "1G"), "before the measured part began"),
        (("--roi",), "its region of interest never began"),
    ):
        code, result, report = ended(cli, tmp_path, *limit, "--", program)
        message = result["designs"][0]["message"]
        assert (code, result["partial"]) == (139, True)
        assert message.startswith("the program died of SIGSEGV; ")
        assert early in message
        assert f"partial: {message}" in report


def test_an_end_before_the_measured_part_is_no_run(cli: Cli, tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { work(); return 0; }")
    for limit, early in (
        (("--skip", "1G"), "before the measured part began: lower --skip "),
        (("--warmup", "1G"), "before the measured part began: lower --warmup "),
        (
            ("--skip-requests", "9", "--warmup", "2"),
            "part began: lower --skip-requests and --warmup; it marked no request, as the end",
        ),
        (("--roi",), "its region of interest never began: leave out --roi"),
    ):
        code, result, report = ended(cli, tmp_path, *limit, "--", program)
        assert (code, result["partial"]) == (125, True), report
        assert result["designs"][0]["status"] == "program_error"
        assert early in report.split("radix", 1)[0]


def test_a_program_without_simulated_memory_is_no_complete_run(cli: Cli, tmp_path: Path) -> None:
    text = """
    int main(void) {
        size_t bytes = 1500ul << 20;
        char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t i = 0; i < bytes; i += 4096) p[i] = 1;
        return 0;
    }
    """
    small = ("--set", "os.memory_gb=1")
    code, result, report = ended(cli, tmp_path, *small, "--", compiled(tmp_path, text))
    design = result["designs"][0]
    assert (code, result["partial"], design["status"]) == (125, True, "out_of_memory"), report
    assert design["message"] in report.split("radix", 1)[0]


def test_an_emulator_that_is_killed_from_outside(cli: Cli, tmp_path: Path) -> None:
    # The program waits in the kernel; a process that is none of its own kills it.
    text = """
    #include <stdio.h>
    int main(void) { work(); printf("%d\\n", getpid()); fflush(stdout); for (;;) pause(); }
    """
    program = compiled(tmp_path, text)
    script = tmp_path / "run.py"
    result = tmp_path / "r.json"
    script.write_text(
        "import os, signal, subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-m', 'pagewalk', 'run', '--json', {str(result)!r},"
        f" '--', {str(program)!r}], stdout=subprocess.PIPE, text=True)\n"
        "os.kill(int(p.stdout.readline()), signal.SIGKILL)\n"
        "sys.exit(p.wait())\n"
    )
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert answer.returncode == 128 + signal.SIGKILL, answer.stderr
    data = json.loads(result.read_text())
    assert (data["partial"], data["designs"][0]["message"]) == (True, "the program died of SIGKILL")


def test_sweeps_and_the_library_do_not_take_it_for_a_result(cli: Cli, tmp_path: Path) -> None:
    program = compiled(tmp_path, CRASH)
    result = pagewalk.run("radix", program=[str(program)])
    assert (result.partial, result.why_partial) == (True, "the program died of SIGSEGV")
    assert result.designs[0].failed
    swept = cli("sweep", "--designs", "radix", "--out", tmp_path / "live", "--", program)
    assert swept.returncode == 125
    assert "the program died of SIGSEGV" in one_line(swept.stderr)
    trace = tmp_path / "died.pwt"
    cli("record", "-o", trace, "--", program)
    swept = cli("sweep", "--designs", "radix", "--trace", trace, "--out", tmp_path / "traced")
    assert swept.returncode == 1
    assert "the program died of SIGSEGV" in one_line(swept.stdout + swept.stderr)


def test_the_processor_is_stated_and_another_can_be_asked_for(cli: Cli, tmp_path: Path) -> None:
    text = 'int main(void) { return __builtin_cpu_supports("avx2") ? 3 : 4; }'
    program = compiled(tmp_path, text)
    code, result, _ = ended(cli, tmp_path, "--", program)
    assert (code, result["source"]["cpu"].split(",")[0]) == (3, "max")
    assert f"CPU model {result['source']['cpu']}" in one_line(cli("doctor").stdout)
    code, result, _ = ended(cli, tmp_path, "--cpu", "Nehalem,rdtscp=off", "--", program)
    assert (code, result["source"]["cpu"]) == (4, "Nehalem,rdtscp=off")
    # Also for what the program executes.
    again = f'int main(void) {{ execl({str(program)!r}, "again", (char *)0); return 5; }}'
    again = again.replace("'", '"')
    (tmp_path / "outer").mkdir()
    outer = compiled(tmp_path / "outer", again)
    assert ended(cli, tmp_path, "--cpu", "Nehalem", "--", outer)[0] == 4
    trace = tmp_path / "t.pwt"
    assert cli("record", "--cpu", "Nehalem", "-o", trace, "--", program).returncode == 4
    # A recording holds it.
    assert re.search(r"cpu +Nehalem\n", cli("trace", "info", trace).stdout)
    assert ended(cli, tmp_path, "--trace", trace)[1]["source"]["cpu"] == "Nehalem"
    copy = tmp_path / "copy.pwt"
    assert cli("trace", "convert", trace, "--out", copy).returncode == 0
    assert ended(cli, tmp_path, "--trace", copy)[1]["source"]["cpu"] == "Nehalem"
    folder = tmp_path / "study"
    for model in ("Nehalem", "Haswell"):
        how = ("--cpu", model, "--designs", "radix", "--out", folder)
        assert cli("sweep", *how, "--", program).returncode == 0
    recordings = sorted((folder / "recordings").iterdir())
    made = [native.trace_info(str(path))["made"] for path in recordings]
    assert {one["cpu"] for one in made if one is not None} == {"Nehalem", "Haswell"}
    misplaced = cli("sweep", "--cpu", "max", "--workload", "gups", "--out", tmp_path / "none")
    assert (misplaced.returncode, misplaced.stderr) == (
        2,
        "error: --cpu belongs to a program that is recorded; add -- PROGRAM or drop --cpu\n",
    )
    wrong = cli("run", "--cpu", "nonsense", "--", program)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: --cpu nonsense: QEMU has no CPU model 'nonsense'")
    misplaced = cli("run", "--cpu", "max", "--workload", "gups")
    assert (misplaced.returncode, misplaced.stderr) == (
        2,
        "error: --cpu belongs to a program that QEMU runs; add -- PROGRAM ARGS… or drop --cpu\n",
    )


def test_requests_that_a_program_does_not_mark_are_missed(cli: Cli, tmp_path: Path) -> None:
    program = compiled(tmp_path, "int main(void) { work(); return 0; }")
    code, result, report = ended(cli, tmp_path, "--requests", "100", "--", program)
    assert (code, result["partial"]) == (0, False)
    assert "warning: radix: the program marked no request, so --requests had no" in report
