"""gem5's elastic traces."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from invoking import Cli
from test_drmemtrace import accesses, lackey, run

LOAD, STORE = 1, 2


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message of protocol buffers after its length."""
    body = b""
    for number, value in fields:
        if isinstance(value, bytes):
            body += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            body += varint(number << 3) + varint(value)
    return varint(len(body)) + body


def elastic(every: list[tuple[int, bool]], *, virtual: bool = True) -> bytes:
    """A data dependency trace, as `inst_dep_record.proto` of gem5 defines it."""
    parts = [b"gem5", message((1, b"system.cpu.traceListener"), (3, 10**12), (4, 120))]
    for n, (va, store) in enumerate(every):
        request = [(3, 0x8000_0000 + n * 64), (4, 8), (5, 0)] + ([(11, va)] if virtual else [])
        kind = STORE if store else LOAD
        parts.append(message((1, n + 1), (2, kind), *request, (7, 500), (10, 0x40_0000 + 4 * n)))
    return b"".join(parts)


def tlb(statistics: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """The counters that no branch and no dependence changes."""
    return {key: n for key, n in statistics.items() if ".mmu" in key[0]}


def test_the_tlb_misses_are_those_of_the_same_accesses_in_a_recording(
    cli: Cli, tmp_path: Path
) -> None:
    text, trace = tmp_path / "t.lackey", tmp_path / "t.pwt"
    text.write_text(lackey(accesses()))
    assert cli("trace", "convert", text, "-o", trace).returncode == 0
    expected = run(cli, trace)
    assert expected["core.0.mmu", "walks"] > 15_000
    plain, packed = tmp_path / "system.cpu.deptrace.proto", tmp_path / "deptrace.proto.gz"
    plain.write_bytes(elastic(accesses()))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    converted = tmp_path / "converted.pwt"
    answer = cli("trace", "convert", packed, "-o", converted)
    assert answer.returncode == 0, answer.stderr
    for found in (run(cli, plain), run(cli, packed), run(cli, converted)):
        assert tlb(found) == tlb(expected)
        assert found["core.0", "instructions"] == expected["core.0", "instructions"]


@pytest.mark.parametrize("virtual", [False, True])
def test_a_trace_without_virtual_addresses_is_refused(
    virtual: bool, cli: Cli, tmp_path: Path
) -> None:
    trace = tmp_path / "deptrace.proto"
    trace.write_bytes(elastic(accesses()[:50], virtual=virtual))
    answer = cli("run", "--trace", trace, "--json", "-")
    assert (answer.returncode == 0) == virtual, answer.stderr
    if not virtual:
        assert len(answer.stderr.splitlines()) == 1
        assert "physical addresses only" in answer.stderr
        assert "traceVirtAddr=True" in answer.stderr
