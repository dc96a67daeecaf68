"""Measures what each Cargo profile, and profile-guided optimisation, costs or gains a run.

    python scripts/profiles.py [--write]

Builds the example `speed` of crates/machine with each profile, and counts the host instructions
of another simulated instruction with cachegrind: a long run less a short one. The counts go to
validation/profiles.json; `--write` puts the table into docs/performance.md. It needs valgrind and
LLVM's tools (`rustup component add llvm-tools`), and takes some twenty minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import PAGE, ROOT, table

RESULTS = ROOT / "validation" / "profiles.json"
TARGET = ROOT / "target" / "profiles"
SHORT, LONG = 100_000, 1_100_000
"""Simulated instructions of the two runs whose difference counts."""
REPEATED = 2
"""Times that the example simulates them, beside its set-ups."""
TRAINED = [
    ("radix", "gups", "64MiB"),
    ("radix", "bfs", "64MiB"),
    ("mehpt", "xsbench", "1GiB"),
]
"""Designs and programs that profile-guided optimisation is trained with."""
HELD_OUT = [
    ("radix", "dlrm", "2GiB"),
    ("revelator", "tc", "64MiB"),
    ("thp", "mummer", "64MiB"),
]
"""Designs and programs that it has not seen."""
RELEASE, GUIDED = "release", "release with PGO"
PROFILES = ("dev-fast", "ci", RELEASE, GUIDED)

Run = tuple[str, str, str]


def built(profile: str, target: Path, flags: str = "") -> Path:
    """Builds the example; its path."""
    command = ["cargo", "build", "--quiet", "--locked", "--profile", profile]
    command += ["-p", "pagewalk-machine", "--example", "speed", "--target-dir", str(target)]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "RUSTFLAGS": flags})
    return target / profile / "examples" / "speed"


def arguments(run: Run, instructions: int) -> list[str]:
    """The arguments by which the example simulates this run alone."""
    design, program, size = run
    return [str(instructions), design, program, size]


def llvm_profdata() -> Path:
    """LLVM's tool of that name in the sysroot of rustc. Raises `SystemExit` without it."""
    out = subprocess.run(
        ["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True
    )
    found = next(Path(out.stdout.strip()).glob("lib/rustlib/*/bin/llvm-profdata"), None)
    if found is None:
        sys.exit("no llvm-profdata found; run 'rustup component add llvm-tools'")
    return found


def guided() -> Path:
    """Builds the example with the profile of `TRAINED`; its path."""
    merge = llvm_profdata()
    with tempfile.TemporaryDirectory() as folder:
        trained = built(RELEASE, TARGET / "trained", f"-Cprofile-generate={folder}")
        for run in TRAINED:
            subprocess.run([trained, *arguments(run, LONG)], check=True, stdout=subprocess.DEVNULL)
        profile = TARGET / "merged.profdata"
        raw = sorted(Path(folder).glob("*.profraw"))
        subprocess.run([merge, "merge", "-o", profile, *raw], check=True)
    return built(RELEASE, TARGET / "guided", f"-Cprofile-use={profile}")


def executed(program: Path, run: Run, instructions: int) -> int:
    """Host instructions that the example executes for this run."""
    with tempfile.TemporaryDirectory() as folder:
        counted = subprocess.run(
            [
                *("valgrind", "--tool=cachegrind", "--cache-sim=no"),
                f"--cachegrind-out-file={folder}/out",
                *(str(program), *arguments(run, instructions)),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    found = re.search(r"I +refs: +([\d,]+)", counted.stderr)
    if found is None:
        raise RuntimeError(f"cachegrind printed no count: {counted.stderr[-300:]}")
    return int(found[1].replace(",", ""))


def measured() -> dict[str, dict[str, float]]:
    """Host instructions of a simulated instruction, by run and profile."""
    binaries = {p: guided() if p == GUIDED else built(p, TARGET / p) for p in PROFILES}
    counts: dict[str, dict[str, float]] = {}
    more = REPEATED * (LONG - SHORT)
    for run in TRAINED + HELD_OUT:
        counts[" ".join(run)] = {
            profile: (executed(program, run, LONG) - executed(program, run, SHORT)) / more
            for profile, program in binaries.items()
        }
    return counts


def as_table(counts: dict[str, dict[str, float]]) -> str:
    """The counts relative to the release profile, as Markdown."""

    def mean(profile: str, runs: list[Run]) -> float:
        ratios = [counts[" ".join(r)][profile] / counts[" ".join(r)][RELEASE] for r in runs]
        return math.prod(ratios) ** (1 / len(ratios))

    head = ["run", "release", *(f"{p}, share of release" for p in PROFILES if p != RELEASE)]
    others = [p for p in PROFILES if p != RELEASE]
    rows = [
        [name, f"{of[RELEASE]:.0f}", *(f"{of[p] / of[RELEASE]:.2f}" for p in others)]
        for name, of in counts.items()
    ]
    for name, runs in (("trained with", TRAINED), ("held out", HELD_OUT)):
        rows.append([f"**mean, {name}**", "", *(f"**{mean(p, runs):.2f}**" for p in others)])
    return table(head, rows)


def main() -> None:
    """Measures, keeps the counts, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    counts = measured()
    RESULTS.write_text(json.dumps(counts, indent=1) + "\n")
    print(as_table(counts))
    if write:
        page = PAGE.read_text()
        marked = re.compile(r"(<!-- profiles -->\n).*?(<!-- end -->)", re.S)
        PAGE.write_text(marked.sub(lambda m: m[1] + as_table(counts) + "\n" + m[2], page))


if __name__ == "__main__":
    main()
