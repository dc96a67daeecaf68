"""Every report of a program names the processes that ran unseen."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from invoking import Cli
from live import needs, needs_qemu

pytestmark = [pytest.mark.qemu, needs_qemu, needs("cc")]

# The shell that runs it stays; its children go into another root.
ELSEWHERE = """
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int status, sum = 0;
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            if (chroot(argv[1]) != 0 || chdir("/") != 0) return 77;
            execl("/inside", "inside", (char *)0);
            return 78;
        }
        wait(&status);
        sum += WEXITSTATUS(status);
    }
    execl("/nowhere", "nowhere", (char *)0);
    printf("%d\\n", sum);
    return argc > 2;
}
"""


def program(folder: Path, name: str, text: str, *flags: str) -> Path:
    (folder / f"{name}.c").write_text(text)
    path = folder / name
    subprocess.run(["cc", "-O1", *flags, "-o", path, path.with_suffix(".c")], check=True)
    return path


def check(cli: Cli, tmp_path: Path, expected: str, *command: str | Path) -> str:
    """Runs `command` live and recorded; returns its output."""
    trace, live, replayed = (tmp_path / n for n in ("t.pwt", "live.json", "replayed.json"))
    first = cli("run", "--json", live, "--html", tmp_path / "p.html", "--", *command)
    assert first.returncode == 0, first.stderr
    recorded = cli("record", "--out", trace, "--", *command)
    assert recorded.returncode == 0, recorded.stderr
    assert expected in recorded.stderr
    assert expected in cli("trace", "info", trace).stdout
    again = cli("run", "--trace", trace, "--json", replayed)
    assert again.returncode == 0, again.stderr
    for answer, report in ((first, live), (again, replayed)):
        data = json.loads(report.read_text())
        assert data["source"]["unseen"] == [expected]
        assert [w for w in data["warnings"] if expected in w], data["warnings"]
        # The report, over lines of its width.
        assert expected in " ".join((answer.stdout + answer.stderr).split())
    assert expected in (tmp_path / "p.html").read_text()
    return str(first.stdout)


def a_program_of_32_bits(path: Path) -> bool:
    """Writes one that exits with 5; whether this kernel runs it."""
    code = bytes.fromhex("b801000000bb05000000cd80")
    base, start = 0x08048000, 0x54
    header = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + start, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    size = start + len(code)
    segment = struct.pack("<IIIIIIII", 1, 0, base, base, size, size, 5, 4096)
    path.write_bytes(header + segment + code)
    path.chmod(0o755)
    try:
        return subprocess.run([path], check=False).returncode == 5
    except OSError:
        return False


# Without root `chroot` fails, so that no program can come to be where the emulator is not.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")
def test_children_under_another_root_are_named(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    program(root, "inside", "int main(void) { return 21; }", "-static")
    outside = program(tmp_path, "outside", ELSEWHERE)
    expected = "2 processes ran inside unseen: the emulator is not there from its root directory"
    output = check(cli, tmp_path, expected, outside, root)
    assert output.splitlines()[0] == "42"


def test_children_of_another_architecture_are_named(cli: Cli, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    if not a_program_of_32_bits(foreign):
        # The kernel lacks CONFIG_IA32_EMULATION, or a container refuses such programs. Then
        # the shell cannot run the program either, and no process runs unseen.
        pytest.skip("this kernel runs no programs of 32 bits")
    expected = "1 process ran foreign unseen: not a 64-bit x86 program"
    output = check(cli, tmp_path, expected, "sh", "-c", f"{foreign}; echo $?")
    assert output.splitlines()[0] == "5"


def test_a_program_that_fails_to_start_does_not_count_as_unseen(cli: Cli, tmp_path: Path) -> None:
    foreign, report = tmp_path / "foreign", tmp_path / "r.json"
    # AArch64, which the kernel refuses.
    foreign.write_bytes(b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x02\0\xb7\0" + bytes(200))
    foreign.chmod(0o755)
    answer = cli("run", "--json", report, "--", "sh", "-c", f"{foreign} 2>/dev/null; echo ok")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(report.read_text())["source"]["unseen"] == []
