"""Measures lookaside in front of five indexes and writes lookaside/results.json.

    lookaside/bench/run.py [--index INDEX]... [--records N]... [--gate COMMAND]

Loads run at once. The timed part of each load runs under the gate, a command that keeps the machine
quiet while it runs. Results are kept load by load: a stopped run resumes where it was.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results.json"
INDEXES = ("map", "btree", "umap", "flat", "dense")
SINGLE = ("C:zipf:single", "C:uniform:single")
BATCH = ("C:zipf:batch",)
WORKLOADS = (
    "A:zipf:single",
    "B:zipf:single",
    "D:latest:single",
    "E:zipf:single",
    "F:zipf:single",
    "C:latest:single",
    "C:uniform:batch",
    "C:zipf:threads",
)
Load = tuple[int, int, int, int, tuple[str, ...]]
# Records, bytes of a value, rows of the table, lookups of a timed slice, cases.
LOADS: tuple[Load, ...] = (
    (1_000_000, 64, 1 << 20, 50_000, SINGLE + BATCH),
    (10_000_000, 64, 1 << 23, 50_000, SINGLE + BATCH + WORKLOADS),
    (30_000_000, 8, 1 << 23, 50_000, SINGLE + BATCH),
    (1_000_000, 8, 1 << 20, 50_000, SINGLE + BATCH),
    (1_000_000, 4096, 1 << 20, 50_000, SINGLE + BATCH),
)


def machine() -> dict[str, Any]:
    """The processor, its caches and the compiler."""
    text = Path("/proc/cpuinfo").read_text()
    fields = dict(line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    cpu = {key.strip(): value.strip() for key, value in fields.items()}
    caches = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind = (index / "level").read_text().strip(), (index / "type").read_text().strip()
        caches[f"L{level} {kind}"] = (index / "size").read_text().strip()
    compiler = subprocess.run(
        ["c++", "--version"], capture_output=True, text=True, check=True
    ).stdout
    return {
        "processor": cpu["model name"],
        "family": int(cpu["cpu family"]),
        "model": int(cpu["model"]),
        "caches": caches,
        "kernel": platform.release(),
        "compiler": compiler.splitlines()[0],
        "huge_pages": Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip(),
    }


def build(value_bytes: int, folder: Path) -> Path:
    """Compiles the program for values of this size."""
    root = HERE.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root.parent / "target"))
    program = folder / f"bench{value_bytes}"
    absl = subprocess.run(
        ["pkg-config", "--libs", "absl_flat_hash_map", "absl_btree"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    source, library = HERE / "bench.cc", target / "release/liblookaside.a"
    newest = max(p.stat().st_mtime for p in (source, library, *(root / "include").iterdir()))
    if not program.exists() or program.stat().st_mtime < newest:
        flags = [
            "-O2",
            "-std=c++20",
            f"-DVALUE_BYTES={value_bytes}",
            f"-I{root / 'include'}",
            f"-I{root.parent / 'include'}",
        ]
        subprocess.run(
            ["c++", *flags, source, "-o", program, library, *absl, "-lpthread"], check=True
        )
    return program


def measure(program: Path, index: str, load: Load, gate: list[str]) -> list[dict[str, Any]]:
    """One load and its cases."""
    records, value_bytes, rows, operations, cases = load
    if index not in ("map", "btree"):
        cases = tuple(case for case in cases if not case.startswith("E"))
    arguments = [str(program), index, str(records), str(rows), str(operations), *cases]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as bench:
        assert bench.stdin and bench.stdout
        _, resident = bench.stdout.readline().split()
        # The gate's command holds the machine until its input ends.
        with subprocess.Popen(
            [*gate, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as hold:
            assert hold.stdin and hold.stdout
            hold.stdin.write(b"\n")
            hold.stdin.flush()
            hold.stdout.read(1)
            bench.stdin.write("\n")
            bench.stdin.flush()
            lines = bench.stdout.read().splitlines()
            hold.stdin.close()
    if len(lines) != len(cases):
        raise SystemExit(f"{index}, {records} records: {len(lines)} of {len(cases)} cases")
    about = {
        "index": index,
        "records": records,
        "value_bytes": value_bytes,
        "rows": rows,
        "table_bytes": rows * 8,
        "resident_kib": int(resident),
    }
    return [{**about, **json.loads(line)} for line in lines]


def kept() -> dict[str, Any]:
    """Results of earlier runs."""
    return {"cases": [], **(json.loads(RESULTS.read_text()) if RESULTS.exists() else {})}


def main() -> None:
    """Measures every load that has no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", action="append", choices=INDEXES, help="Indexes to measure")
    parser.add_argument("--records", action="append", type=int, help="Sizes to measure")
    parser.add_argument("--value-bytes", type=int, help="Value size to measure")
    parser.add_argument("--gate", default="", help="Command that keeps the machine quiet")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="Folder of the programs")
    options = parser.parse_args()
    for load in LOADS:
        if options.records and load[0] not in options.records:
            continue
        if options.value_bytes and load[1] != options.value_bytes:
            continue
        program = build(load[1], Path(options.folder))
        for index in options.index or INDEXES:
            key = (index, *load[:2])
            if any((c["index"], c["records"], c["value_bytes"]) == key for c in kept()["cases"]):
                continue
            found = measure(program, index, load, options.gate.split())
            # Other scripts may have written meanwhile.
            results = kept()
            results["machine"] = machine()
            results["cases"] += found
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(index, load[0], load[1], "done", flush=True)


if __name__ == "__main__":
    main()
