"""Replacement policies and prefetchers of TLBs: a table in docs/behind-the-tlbs.md.

    python validation/tlb_policies.py [--only NAME[,NAME...]] [--write]

Runs built-in programs on `epyc-milan` with 4 KB pages, all designs in one pass. Results are
kept in validation/tlb_policies.json; `--only` replaces those of the named programs, `--write`
puts the table of all that is kept into the page. A minute or two.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import marked
import pagewalk
import script_arguments

HERE = Path(__file__).parent
KEPT = HERE / "tlb_policies.json"
PAGE = HERE.parent / "docs" / "behind-the-tlbs.md"
MARK = "tlb-policies"
MACHINE = "epyc-milan"
PROGRAMS = ("gups", "sysbench", "bfs", "xsbench", "kv-hash")
SIZE = "1GiB"
PARAMETERS = {"bfs": {"layout": "graphbig"}}
DESIGNS = {
    "radix": "LRU",
    "tlb-srrip": "SRRIP",
    "tlb-random": "random",
    "tlb-next-page": "LRU, next page",
    "tlb-distance": "LRU, distance",
}
INSTRUCTIONS, WARMUP = 20_000_000, 5_000_000
REPORTED = ("l2_tlb_mpki", "ipc")
COUNTED = ("fetched", "useful", "late", "walk_reads")


def run(program: str) -> dict[str, dict[str, float]]:
    """The numbers of each design."""
    result = pagewalk.compare(
        list(DESIGNS),
        machine=MACHINE,
        workload=program,
        size=SIZE,
        params=PARAMETERS.get(program, {}),
        warmup=WARMUP,
        instructions=INSTRUCTIONS,
        progress=False,
    )
    if result.partial:
        raise SystemExit(f"{program} ended early: {result.why_partial}")
    found: dict[str, dict[str, float]] = {}
    for one in result.designs:
        numbers = {name: one[name] for name in REPORTED}
        for s in one.statistics:
            if s.path == "core.0.mmu" and s.name == "walk_reads":
                numbers["demand_reads"] = s.value
            if s.path == "core.0.mmu.prefetcher" and s.name in COUNTED:
                numbers[s.name] = s.value
        found[one.name] = numbers
    return found


def table(kept: Mapping[str, Any]) -> str:
    """Programs below each other, designs side by side."""
    lines = [marked.row("program", *DESIGNS.values()), marked.row("---", *["--:"] * len(DESIGNS))]
    for program in PROGRAMS:
        of = kept[program]
        cells = (f"{of[d]['l2_tlb_mpki']:.2f}, {of[d]['ipc']:.3f}" for d in DESIGNS)
        lines.append(marked.row(f"`{program}`", *cells))
    return "\n".join([*lines, "", *accuracy(kept)])


def accuracy(kept: Mapping[str, Any]) -> list[str]:
    """The use of prefetched translations, and the reads of their walks."""
    fetching = [d for d in DESIGNS if "fetched" in kept[PROGRAMS[0]][d]]
    head = [f"{DESIGNS[d].split(', ')[1]}: {what}" for d in fetching
            for what in ("used", "of them late", "reads of walks, times")]  # fmt: skip
    lines = [marked.row("program", *head), marked.row("---", *["--:"] * len(head))]
    for program in PROGRAMS:
        cells = []
        for design in fetching:
            of, plain = kept[program][design], kept[program]["radix"]
            cells.append(share(of["useful"], of["fetched"]))
            cells.append(share(of["late"], of["useful"]))
            reads = of["demand_reads"] + of["walk_reads"]
            cells.append(f"{reads / plain['demand_reads']:.2f}")
        lines.append(marked.row(f"`{program}`", *cells))
    return lines


def share(part: float, whole: float) -> str:
    """A part in per cent; a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def main() -> int:
    """Runs, keeps and writes."""
    chosen, write = script_arguments.again(__doc__, PROGRAMS)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in chosen:
        kept[name] = run(name)
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{name}: done", file=sys.stderr)
    print(table(kept))
    if write:
        marked.write(MARK, table(kept), PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
