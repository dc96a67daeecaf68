"""DynamoRIO's traces."""

import gzip
import json
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from invoking import Cli, Completed

READ, WRITE, INSTRUCTION = 0, 1, 10
THREAD, THREAD_EXIT, PROCESS, HEADER, FOOTER, MARKER = 22, 23, 24, 25, 26, 28
TIMESTAMP, FILE_TYPE = 2, 9
X86_64 = 0x40


def entry(kind: int, size: int, value: int) -> bytes:
    """A record, as in DynamoRIO's `trace_entry.h`."""
    return struct.pack("<HHQ", kind, size, value)


def accesses() -> list[tuple[int, bool]]:
    """Addresses over 64 MB, and the kind of access: enough to miss in every TLB."""
    state, found = 5, []
    for n in range(20_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        found.append((0x1000_0000 + (state >> 20) % (64 << 20) // 8 * 8, n % 4 == 0))
    return found


def drmemtrace(thread: int, every: list[tuple[int, bool]]) -> bytes:
    """The file of a thread, without encodings."""
    parts = [
        entry(HEADER, 0, 7),
        entry(MARKER, FILE_TYPE, X86_64),
        entry(THREAD, 8, thread),
        entry(PROCESS, 8, 7),
        entry(MARKER, TIMESTAMP, 1000),
    ]
    for n, (va, store) in enumerate(every):
        parts.append(entry(INSTRUCTION, 4, 0x40_0000 + 4 * n))
        parts.append(entry(WRITE if store else READ, 8, va))
    return b"".join([*parts, entry(THREAD_EXIT, 8, thread), entry(FOOTER, 0, 0)])


def lackey(every: list[tuple[int, bool]]) -> str:
    lines = []
    for n, (va, store) in enumerate(every):
        lines += [f"I  {0x40_0000 + 4 * n:x},4", f" {'S' if store else 'L'} {va:x},8"]
    return "\n".join([*lines, ""])


def statistics(answer: Completed) -> dict[tuple[str, str], Any]:
    assert answer.returncode == 0, answer.stderr
    data = json.loads(answer.stdout)
    every = {(s["path"], s["name"]): s["value"] for s in data["designs"][0]["stats"]}
    # lackey's text can have no software prefetches, so that source does not report them.
    return {key: n for key, n in every.items() if n or "software_prefetch" not in "".join(key)}


@pytest.fixture
def expected(cli: Cli, tmp_path: Path) -> dict[tuple[str, str], Any]:
    """Statistics of the accesses from a `.pwt`, which is made without the reader under test."""
    text, trace = tmp_path / "t.lackey", tmp_path / "t.pwt"
    text.write_text(lackey(accesses()))
    assert cli("trace", "convert", text, "-o", trace).returncode == 0
    return run(cli, trace)


def run(cli: Cli, trace: Path) -> dict[tuple[str, str], Any]:
    return statistics(cli("run", "--trace", trace, "--no-translation-cost", "--json", "-"))


def test_each_container_gives_the_tlb_misses_of_the_same_accesses(
    cli: Cli, tmp_path: Path, expected: dict[tuple[str, str], Any]
) -> None:
    assert expected["core.0.mmu", "l1d_misses"] > 15_000
    assert expected["core.0.mmu", "walks"] > 15_000
    raw = drmemtrace(8, accesses())
    folder = tmp_path / "drmemtrace.app.1.dir" / "trace"
    folder.mkdir(parents=True)
    (folder / "v2p.textproto").write_text("page_size: 4096\n")
    plain, zipped = folder / "drmemtrace.app.8.trace", folder / "drmemtrace.app.8.trace.zip"
    packed = folder / "drmemtrace.app.8.trace.gz"
    plain.write_bytes(raw)
    assert run(cli, folder.parent) == expected
    plain.unlink()
    packed.write_bytes(gzip.compress(raw))
    assert run(cli, folder) == expected
    packed.unlink()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        half = len(raw) // 24 * 12
        archive.writestr("chunk.0000", raw[:half])
        archive.writestr("chunk.0001", raw[half:])
    assert run(cli, folder.parent) == expected
    info = cli("trace", "info", folder.parent)
    assert info.returncode == 0 and "drmemtrace" in info.stdout, info.stderr


def test_what_lz4_compresses_is_read(
    cli: Cli, tmp_path: Path, expected: dict[tuple[str, str], Any]
) -> None:
    if shutil.which("lz4") is None:
        pytest.skip("lz4 is not installed")
    trace = tmp_path / "t"
    trace.write_bytes(drmemtrace(8, accesses()))
    subprocess.run(["lz4", "-q", str(trace), f"{trace}.lz4"], check=True)
    assert run(cli, tmp_path / "t.lz4") == expected


def test_threads_run_on_the_cores(cli: Cli, tmp_path: Path) -> None:
    half = len(accesses()) // 2
    for thread, part in ((8, accesses()[:half]), (9, accesses()[half:])):
        (tmp_path / f"t.{thread}").write_bytes(drmemtrace(thread, part))
    answer = cli(
        "run", "--trace", tmp_path, "--set", "cores=2", "--no-translation-cost", "--json", "-"
    )
    found = statistics(answer)
    instructions = [found[f"core.{n}", "instructions"] for n in (0, 1)]
    assert instructions == [half, half]


def test_a_folder_without_a_trace_is_refused(cli: Cli, tmp_path: Path) -> None:
    answer = cli("run", "--trace", tmp_path)
    assert answer.returncode == 2, answer.stderr
    assert "there is no trace in the folder" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
