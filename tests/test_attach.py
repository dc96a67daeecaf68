"""`pagewalk attach`: an estimate of a running process, from ``/proc``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from invoking import Invoke, refused
from pagewalk.host import attach

MIB = 1 << 20
_TOUCHES = """
import mmap, sys
size, every = int(sys.argv[1]), int(sys.argv[2])
area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if hasattr(area, "madvise"):
    area.madvise(mmap.MADV_NOHUGEPAGE)
while True:
    area[::every] = b"x" * len(range(0, size, every))
    print("touched", flush=True)
"""


@contextmanager
def touching(size: int, every: int) -> Iterator[int]:
    """A process that writes a byte in each `every` bytes of `size`, over and over."""
    command = [sys.executable, "-c", _TOUCHES, str(size), str(every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        # It goes on by itself: the pipe is read to its end by nobody, but holds many lines.
        try:
            yield process.pid
        finally:
            process.kill()


def test_the_memory_of_a_process_is_estimated() -> None:
    with touching(64 * MIB, 4096) as pid:
        # A busy host may leave the program too little time for all of its pages.
        for seconds in (0.3, 1, 3, 9, 27):
            found = attach.estimate(pid, seconds, 2048)
            if found.touched is None or found.touched >= 64 * MIB:
                break
    assert 64 * MIB <= found.anonymous <= 80 * MIB <= found.resident + 16 * MIB
    assert found.huge == 0
    # Both ends of the mapping may not be aligned.
    assert 60 * MIB <= found.possible <= 80 * MIB
    assert found.filled is None or found.filled > 0.85
    if found.touched is not None:
        assert found.touched >= 64 * MIB
        assert found.entries_4kb is not None
        assert found.entries_2mb is not None
        assert 16384 <= found.entries_4kb <= found.touched // 4096 + 1
        assert found.entries_2mb < found.entries_4kb / 3
        assert "times the entries" in attach.sentences(found)[0]


def test_sparse_memory_would_grow_with_huge_pages() -> None:
    with touching(64 * MIB, 65536) as pid:
        found = attach.estimate(pid, 0, 2048)
    assert (found.touched, found.entries_4kb) == (None, None)
    if found.filled is None:
        assert any("2 MB ranges" in text for text in found.limits)
    else:
        assert found.filled < 0.5
        assert any("more memory" in text for text in attach.sentences(found))


def test_the_command_writes_the_estimate(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with touching(8 * MIB, 4096) as pid:
        status, out, _ = invoke("attach", str(pid), "--seconds", "0", "--json", str(path))
    assert status == 0
    assert "estimate" in out
    assert "without a simulation" in " ".join(out.split())
    assert json.loads(path.read_text())["pid"] == pid


def test_what_is_no_program_is_refused(invoke: Invoke) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert "there is no process" in refused(invoke, "attach", str(child.pid))
    kernel = Path("/proc/2/cmdline")
    if kernel.exists() and not kernel.read_bytes() and os.getpid() != 2:
        assert "has no memory" in refused(invoke, "attach", "2")
