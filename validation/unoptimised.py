"""Containers compiled with -O0 and with -O2: instructions, loads and stores a GET.

    python validation/unoptimised.py

Builds the programs of validation/programs with both, and runs them under Valgrind's Callgrind with
100,000 keys and two numbers of zipfian GETs. The difference of the two runs leaves the load out.
Counts go to validation/unoptimised.json. Needs g++, valgrind and libsparsehash-dev.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "validation" / "programs"
KEPT = ROOT / "validation" / "unoptimised.json"
CONTAINERS = ("map", "hash", "dense")
KEYS, FEW, MANY = 100_000, 5_000, 25_000


def counts(program: Path, requests: Path) -> list[int]:
    """Instructions, loads and stores of a run."""
    with tempfile.TemporaryDirectory() as folder, requests.open() as stdin:
        out = Path(folder, "counts")
        tool = ["valgrind", "--tool=callgrind", "--cache-sim=yes", f"--callgrind-out-file={out}"]
        whole = [*tool, str(program), str(KEYS)]
        subprocess.run(whole, stdin=stdin, check=True, capture_output=True)
        found = re.search(r"^(?:summary|totals): (\d+) (\d+) (\d+)", out.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{program}: Callgrind wrote no totals")
    return [int(count) for count in found.groups()]


def main() -> int:
    """Builds, runs and keeps the counts."""
    kept: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        client = folder / "requests"
        common = ["g++", "-std=c++17", "-I", str(ROOT / "include")]
        subprocess.run([*common, "-O2", "-o", client, SOURCES / "kv_requests.cc"], check=True)
        for operations in (FEW, MANY):
            words = [str(KEYS), str(operations), "zipfian", "0", "64"]
            with (folder / str(operations)).open("w") as out:
                subprocess.run([client, *words], check=True, stdout=out)
        for container in CONTAINERS:
            for level in ("-O0", "-O2"):
                program = folder / f"{container}{level}"
                source = SOURCES / f"kv_{container}.cc"
                subprocess.run([*common, level, "-o", program, source], check=True)
                few, many = (counts(program, folder / str(n)) for n in (FEW, MANY))
                each = [(b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
                titles = ("instructions", "loads", "stores")
                kept.setdefault(container, {})[level] = dict(zip(titles, each, strict=True))
                print(container, level, *(f"{n:.1f}" for n in each), flush=True)
                KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
