"""Finds comparisons that the compiler has lost: bools that optimised code reads unset.

rustc 1.95 can remove `let is_it = n != 0` (rust-lang/rust issue 158206; its pass
`SimplifyComparisonIntegral`). It does so if `is_it` is used once, as in
`counter += u64::from(!is_it)`, and then decides a branch of the same block. Only optimised builds
are wrong, and the tests run in others. This script builds the crates as for a release, with the
compiler's intermediate code (MIR). It names each function that may read a bool before it has a
value, with the line. It takes some minutes; the exit status is 1 if there is such a function.

    python scripts/lost_comparisons.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The plugin for QEMU has bindings of 600 MB in this form, and nothing that counts.
LEFT_OUT = "pagewalk-qemu-plugin"

_LOCAL = re.compile(r"(?<!\w)_\d+\b")
_BOOL = re.compile(r"\s+let (?:mut )?(_\d+): bool;")
_BLOCK = re.compile(r"    (bb\d+)(?: \(cleanup\))?: \{")
_STORAGE = re.compile(r"Storage(?:Live|Dead)\((_\d+)\)")
_ASSIGNED = re.compile(r"(_\d+) = (.*)")
_BORROWED = re.compile(r"&(?:raw (?:mut|const) |mut )?(_\d+)\b")


def functions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each function of a file of MIR: its head, and the lines of its body."""
    head = ""
    body: list[str] = []
    for line in text.splitlines():
        if not head:
            if line.startswith(("fn ", "const ", "static ", "promoted")) and line.endswith("{"):
                head, body = line, []
        elif line.startswith("}"):
            yield head, body
            head = ""
        else:
            body.append(line)


def unset(body: list[str]) -> list[str]:
    """Lines of a function that may read a bool which has no value yet."""
    bools = frozenset(found[1] for line in body if (found := _BOOL.match(line)))
    blocks = _blocks(body)
    if not bools or "bb0" not in blocks:
        return []
    # Bools that some path to each block leaves without a value.
    before = {"bb0": bools}
    waiting = ["bb0"]
    while waiting:
        block = waiting.pop()
        after = _behind(blocks[block], before[block], bools, [])
        for to in set(re.findall(r"\bbb\d+\b", blocks[block][-1])) & blocks.keys():
            joined = after | before.get(to, frozenset())
            if joined != before.get(to):
                before[to] = joined
                waiting.append(to)
    read: list[str] = []
    for block, state in before.items():
        _behind(blocks[block], state, bools, read)
    return read


def _blocks(body: list[str]) -> dict[str, list[str]]:
    blocks: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in body:
        if found := _BLOCK.match(line):
            lines = blocks.setdefault(found[1], [])
        elif line == "    }":
            lines = None
        elif lines is not None and line.strip():
            lines.append(line.strip())
    return {name: lines for name, lines in blocks.items() if lines}


def _behind(
    lines: list[str], state: frozenset[str], bools: frozenset[str], read: list[str]
) -> frozenset[str]:
    """The bools without a value behind `lines`; adds the lines that read one to `read`."""
    without = set(state)
    for line in lines:
        if storage := _STORAGE.match(line):
            without |= {storage[1]} & bools
            continue
        assigned = _ASSIGNED.match(line)
        source = assigned[2] if assigned else line
        # Code with a reference may set it.
        borrowed = set(_BORROWED.findall(source))
        if without & set(_LOCAL.findall(source)) - borrowed:
            read.append(line)
        without -= borrowed | ({assigned[1]} if assigned else set())
    return frozenset(without)


def main() -> int:
    """Builds, looks, and says what there is."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mir"
    settings = {
        "CARGO_TARGET_DIR": str(target),
        "CARGO_PROFILE_RELEASE_LTO": "off",
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
        "RUSTFLAGS": "--emit=mir",
    }
    command = ["cargo", "check", "--release", "--locked", "--workspace", "--exclude", LEFT_OUT]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=True)
    # The last file of each crate: others are of another compiler.
    written = sorted((target / "release" / "deps").glob("*.mir"), key=lambda p: p.stat().st_mtime)
    last = {path.name.rpartition("-")[0]: path for path in written}
    looked = lost = 0
    for path in (last[name] for name in sorted(last) if name.startswith(("pagewalk_", "_native"))):
        for head, body in functions(path.read_text(encoding="utf-8")):
            looked += 1
            for line in unset(body):
                lost += 1
                print(f"{path.name}: {head}\n    {line}")
    print(f"{looked} functions, {lost} bools that are read unset")
    return 1 if lost or not looked else 0


if __name__ == "__main__":
    sys.exit(main())
