"""Containers compiled with -O0 and with -O2: what a GET costs, and what an STLT saves of it.

    python validation/unoptimised.py [--only KIND[,KIND...]] [--live]

Builds the programs of validation/programs with both, and counts in two ways.

- Instructions, loads and stores: under Valgrind's Callgrind with 100,000 keys and two numbers of
  zipfian GETs. The difference of the two runs leaves the load out. Not with `--live`, nor for
  the B-tree.
- Speedups: live on `stlt-table3`, with and without an STLT, with 20,000 keys. Second-level TLB,
  L2 and L3 are smaller in proportion, as far as the first level allows. A GET of each key fills the
  table before scrambled zipfian GETs are measured.

Results of the chosen containers go to validation/unoptimised.json. Needs g++, valgrind,
libsparsehash-dev, libabsl-dev, libxxhash-dev and the packages of `pagewalk doctor`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import kv_asked
import script_arguments

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "validation" / "programs"
KEPT = ROOT / "validation" / "unoptimised.json"
COUNTED = ("map", "hash", "dense")
LEVELS = ("-O0", "-O2")
KEYS, FEW, MANY = 100_000, 5_000, 25_000
LIVE_KEYS, LIVE_GETS = 20_000, 4_000
VALUE, HEAD = 64, 32
"""Bytes of a value, and of a request without one."""
ROWS = 1 << 16
"""As many for each key as with the paper's keys and 512 MB, rounded to a power of two."""
MACHINE = {
    "mmu.l2.main.entries": 64,
    "mmu.walk_caches.entries": 4,
    "caches.l2.size_kb": 32,
    "memory.l3.size_kb": 64,
}
COMPILER = ("g++", "-std=c++17", "-I", str(ROOT / "include"))


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


def counted(container: str, level: str, folder: Path) -> dict[str, float]:
    """Instructions, loads and stores a GET, without a table."""
    program = folder / f"{container}{level}"
    source = SOURCES / f"kv_{container}.cc"
    subprocess.run([*COMPILER, level, "-o", program, source], check=True)
    few, many = (counts(program, folder / str(n)) for n in (FEW, MANY))
    each = [(b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
    return dict(zip(("instructions", "loads", "stores"), each, strict=True))


def each_key_once(requests: bytes) -> bytes:
    """The requests of `LIVE_KEYS` SETs and some GETs, with a GET of each key between them."""
    load = LIVE_KEYS * (HEAD + VALUE)
    gets = (bytes(8) + requests[at + 8 : at + HEAD] for at in range(0, load, HEAD + VALUE))
    return requests[:load] + b"".join(gets) + requests[load:]


def sped_up(container: str, level: str, folder: Path) -> dict[str, float]:
    """Cycles a GET without an STLT and with it, their ratio, and the share of GETs that hit."""
    program = folder / f"asked_{container}{level}"
    defined = [f"-DINDEX_{container.upper()}", f"-DEARLIER={LIVE_KEYS}"]
    libraries = ["-labsl_throw_delegate"] if container == "btree" else []
    source = SOURCES / "kv_asked.cc"
    subprocess.run([*COMPILER, level, *defined, "-o", program, source, *libraries], check=True)
    report = folder / "result.json"
    settings = [word for key, value in MACHINE.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "pagewalk", "compare", "--roi", "--warmup", "0"]
    command += ["--instructions", "1T", "--machine", "stlt-table3", *settings]
    command += ["--designs", f"radix,stlt[shortcut.stlt.rows={ROWS}]", "--json", str(report)]
    shell = f'exec "{program}" {LIVE_KEYS} < "{folder}/live" > /dev/null'
    command += ["--", "sh", "-c", shell]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    without, table = kv_asked.designs(report, LIVE_GETS)
    return {
        "cycles": without.cycles, "cycles_with_stlt": table.cycles,
        "speedup": without.cycles / table.cycles, "hits": table.hits,
    }  # fmt: skip


def main() -> int:
    """Builds, runs and keeps the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default=",".join(kv_asked.REAL), help="containers, with commas")
    parser.add_argument("--live", action="store_true", help="speedups alone")
    given = parser.parse_args()
    names = script_arguments.names(parser, "--only", given.only, kv_asked.REAL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        client = folder / "requests"
        subprocess.run([*COMPILER, "-O2", "-o", client, SOURCES / "kv_requests.cc"], check=True)
        for operations in () if given.live else (FEW, MANY):
            words = [str(KEYS), str(operations), "zipfian", "0", str(VALUE)]
            with (folder / str(operations)).open("w") as out:
                subprocess.run([client, *words], check=True, stdout=out)
        words = [str(LIVE_KEYS), str(LIVE_GETS), "scrambled", "0", str(VALUE)]
        made = subprocess.run([client, *words], check=True, stdout=subprocess.PIPE).stdout
        (folder / "live").write_bytes(each_key_once(made))
        for container, level in ((c, o) for c in names for o in LEVELS):
            found = (
                {} if given.live or container not in COUNTED else counted(container, level, folder)
            )
            found |= sped_up(container, level, folder)
            print(container, level, *(f"{k} {v:.3g}" for k, v in found.items()), flush=True)
            kept = json.loads(KEPT.read_text())
            kept.setdefault(container, {}).setdefault(level, {}).update(found)
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
