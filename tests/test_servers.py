"""Kept comparisons of servers with native runs (validation/servers.py)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "validation"))

import servers  # noqa: E402

KEPT = json.loads(servers.KEPT.read_text())


@pytest.mark.parametrize("design", servers.DESIGNS)
@pytest.mark.parametrize("name", KEPT)
def test_simulated_page_faults_are_within_5_percent_or_a_huge_page_of_the_native_runs(
    name: str, design: str
) -> None:
    found = KEPT[name]
    native = found["native"][servers.DESIGNS[design]]
    if found["simulated"].get("exit_status") or any(native["status"]):
        assert found["simulated"]["exit_status"] == native["status"][0]
        return
    faults = found["simulated"][design]["page_faults"]
    # Under QEMU areas lie elsewhere, so one range of 2 MB may get a huge page here and not there.
    range_of_2mb = 512 if servers.DESIGNS[design] == "always" else 0
    least, most = min(native["faults"]), max(native["faults"])
    assert (
        min(0.95 * least, least - range_of_2mb) <= faults <= max(1.05 * most, most + range_of_2mb)
    )


def test_a_line_of_strace_is_a_call_with_the_argument_that_says_what_it_does() -> None:
    mmap = (
        "77 [   9] mmap(NULL, 8192, 0x3 /* PROT_READ|PROT_WRITE */, "
        "0x32 /* MAP_PRIVATE|MAP_FIXED|MAP_ANONYMOUS */, -1, 0) = 0x7f0000000000"
    )
    assert servers.kind(mmap) == ("9", "0x32", "mmap MAP_PRIVATE|MAP_ANONYMOUS")
    advice = "77 [  28] madvise(0x7f0000000000, 4096, 0x4 /* MADV_DONTNEED */) = 0"
    assert servers.kind(advice) == ("28", "0x4", "madvise MADV_DONTNEED")
    assert servers.kind("77 [   0] read(3, 0x7f, 832) = 832") == ("0", "0", "read")
    failed = "77 [ 257] openat(-100, 0x7f, 0) = -1 ENOENT (No such file or directory)"
    assert servers.kind(failed) is None
    assert servers.kind("77 [   0] <... read resumed>) = 5") is None
    assert servers.kind("77 --- SIGURG {si_signo=SIGURG} ---") is None
