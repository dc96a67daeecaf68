"""The libraries' containers with the machine's table in front, against the built-in programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from live import needs, needs_qemu

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "validation" / "programs"

pytestmark = needs("g++", "make", "xxhash.h")

NEEDS: dict[str, list[str]] = {
    "hash": [],
    "map": [],
    "dense": ["sparsehash/dense_hash_map"],
    "btree": ["absl/container/btree_map.h"],
}
# Two containers with the same keys in front of one table, by the sign that distinguishes them.
TWO, OWNER = ["-DTWO"], ["-DTWO", "-DOWNER"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(pytest.param(name, [], marks=needs(*more)) for name, more in NEEDS.items()),
        # Containers whose records move.
        *(pytest.param("dense", k, marks=needs(*NEEDS["dense"])) for k in (TWO, OWNER)),
        *(pytest.param("btree", k, marks=needs(*NEEDS["btree"])) for k in (TWO, OWNER)),
    ],
)
def test_records_that_move_are_found_where_they_are(
    name: str, kind: list[str], tmp_path: Path
) -> None:
    """Natively, with a table in software: what is freed is overwritten by the allocator."""
    flags = ["-O2", "-std=c++17", "-I", str(ROOT / "include"), "-I", str(PROGRAMS)]
    sources = {
        "requests": [str(PROGRAMS / "kv_requests.cc")],
        # With two containers, each kind of container gives the same answers.
        "plain": [*kind, str(PROGRAMS / f"kv_{'hash' if kind else name}.cc")],
        "with_table": [*kind, f"-DINDEX_{name.upper()}", str(PROGRAMS / "kv_asked.cc")],
    }
    libraries = ["-labsl_throw_delegate"] if name == "btree" else []
    for program, words in sources.items():
        command = ["g++", *flags, "-o", str(tmp_path / program), *words, *libraries]
        subprocess.run(command, check=True)
    # The dense map has to grow while it serves: at 32,768 keys.
    command = [str(tmp_path / "requests"), "32000", "60000", "latest", "5", "64"]
    command += ["0", "same", "2"] if kind else []
    requests = subprocess.run(command, check=True, capture_output=True).stdout

    def answers(program: str, **environment: str) -> bytes:
        return subprocess.run(
            [tmp_path / program, "32000"],
            input=requests,
            env={"MALLOC_PERTURB_": "165", **environment},
            capture_output=True,
            check=True,
        ).stdout

    plain = answers("plain")
    # With two containers, a new key is in one of them.
    assert len(plain) > (2_000_000 if kind else 3_000_000)
    for rows in ("", "256", "65536"):
        assert answers("with_table", **({"PAGEWALK_STLT_ROWS": rows} if rows else {})) == plain


@pytest.mark.qemu
@needs_qemu
@pytest.mark.parametrize(
    "which",
    ["one", pytest.param("identifiers,owner --distributions zipfian", marks=pytest.mark.long)],
)
def test_real_containers_gain_as_much_as_the_built_in_programs(which: str) -> None:
    """The script compares the answers of both designs' instances with the plain container's."""
    small = ["--only", "hash", "--keys", "4000", "--operations", "8000", "--rows", "16384"]
    small += ["--containers", *which.split()]
    done = subprocess.run(
        [sys.executable, str(ROOT / "validation" / "kv_asked.py"), *small],
        check=False,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [r[0] for r in rows] == ["`std::unordered_map`", "`kv-hash`"] * 2
    for real, built in zip(rows[::2], rows[1::2], strict=True):
        gets = 0.95 if real[1] == "latest" else 1.0
        for row in (real, built):
            loads, hits, inserts = map(float, row[-3:])
            assert loads == pytest.approx(gets, abs=0.01), row
            # Each that is not there is entered; with 4,000 keys in 16,384 rows few go.
            # A foreign record is a hit, and its row is taken.
            if real[1] != "zipfian, two, the record says whose":
                assert inserts == pytest.approx(loads - hits, abs=0.01), row
            else:
                assert inserts > loads - hits + 0.1, row
        assert float(real[-2]) == pytest.approx(float(built[-2]), abs=0.03)
        # Other compilers and libraries write other code.
        for column in (-5, -4):
            assert float(real[column]) == pytest.approx(float(built[column]), rel=0.2)
        for column in (-8, -7):
            assert float(real[column]) == pytest.approx(float(built[column]), rel=0.35)
