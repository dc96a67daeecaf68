"""Built-in programs against public simulation logs of the same programs.

The logs are those of EMT: xlab-uiuc/dynamorio, results/radix/radix_never_*_asplos_config.log.
References are user mode's; TLB counters are those after the simulator's warm-up, a percent of
kernel instructions among them. No parameter here was chosen by the result.

    python validation/reference_logs.py [gups] [bfs] [pr] [sysbench] [tc]
        [--instructions N] [--warmup N] [--sample LENGTH/PERIOD|none]

Without flags every program runs as long as its log, and is measured in samples.
"""

from __future__ import annotations

import argparse
from typing import Any

import pagewalk

# The programs of the logs: `gups_vanilla 30 1024 1000000` built with -O -DCHECK, GraphBIG's kernels
# on LDBC's graph of a million vertices, and a fork of sysbench. The fork writes the same value to
# each word: its log has 8 stores in 11 instructions.
PROGRAMS: dict[str, dict[str, Any]] = {
    "gups": {
        "workload": "gups",
        "size": "8GiB",
        "params": {"variant": "check", "chunk": 1_000_000},
    },
    "bfs": {
        "workload": "bfs",
        "params": {"graph": "ldbc", "vertices": 1_000_000, "layout": "graphbig"},
    },
    "pr": {
        "workload": "pr",
        "params": {"graph": "ldbc", "vertices": 1_000_000, "layout": "graphbig"},
    },
    "sysbench": {"workload": "sysbench", "size": "8GiB", "params": {"value": "constant"}},
    "tc": {
        "workload": "tc",
        "params": {"graph": "ldbc", "vertices": 1_000_000, "layout": "graphbig"},
    },
}

# User loads, stores and instructions. Hits and misses of TLB-L1I, with an access each instruction,
# and of TLB-L1D; misses of TLB-LL. Walks by the level that served each of their reads.
LOGS: dict[str, dict[str, int]] = {
    "gups": {
        "loads": 320_000_572,
        "stores": 160_000_428,
        "instructions": 2_000_000_000,
        "fetches": 1_943_448_109 + 49_303,
        "l1d_hits": 372_777_026,
        "l1d_misses": 96_102_541,
        "l2_misses": 77_049_227,
        "PWC,MEMORY,MEMORY,MEMORY": 2,
        "ZERO,PWC,MEMORY,MEMORY": 44_645,
        "ZERO,PWC,MEMORY,L2": 388,
        "ZERO,PWC,MEMORY,LLC": 14_904,
        "ZERO,PWC,MEMORY,ZERO": 1_777,
        "ZERO,PWC,L2,MEMORY": 53_096_156,
        "ZERO,PWC,L2,L2": 947_897,
        "ZERO,PWC,L2,LLC": 20_640_649,
        "ZERO,PWC,L2,ZERO": 4_140,
        "ZERO,PWC,LLC,MEMORY": 2_510_656,
        "ZERO,PWC,LLC,L2": 27_205,
        "ZERO,PWC,LLC,LLC": 940_260,
        "ZERO,PWC,LLC,ZERO": 1_972,
        "ZERO,ZERO,PWC,MEMORY": 493_138,
        "ZERO,ZERO,PWC,L2": 86_903,
        "ZERO,ZERO,PWC,LLC": 221_809,
    },
    "bfs": {
        "loads": 299_798_042,
        "stores": 66_583_788,
        "instructions": 742_106_621,
        "fetches": 687_395_113 + 16_448,
        "l1d_hits": 273_262_000,
        "l1d_misses": 64_914_951,
        "l2_misses": 43_832_864,
        "PWC,MEMORY,MEMORY,MEMORY": 4,
        "ZERO,PWC,MEMORY,MEMORY": 92_451,
        "ZERO,PWC,MEMORY,L2": 241,
        "ZERO,PWC,MEMORY,LLC": 1_152,
        "ZERO,PWC,MEMORY,ZERO": 1_734,
        "ZERO,PWC,L2,MEMORY": 3_632_519,
        "ZERO,PWC,L2,L2": 5_034_347,
        "ZERO,PWC,L2,LLC": 11_786_957,
        "ZERO,PWC,L2,ZERO": 22_383,
        "ZERO,PWC,LLC,MEMORY": 629_647,
        "ZERO,PWC,LLC,L2": 3_806,
        "ZERO,PWC,LLC,LLC": 19_112,
        "ZERO,PWC,LLC,ZERO": 7_192,
        "ZERO,ZERO,PWC,MEMORY": 931_812,
        "ZERO,ZERO,PWC,L2": 19_026_925,
        "ZERO,ZERO,PWC,LLC": 4_332_989,
    },
    "pr": {
        "loads": 672_182_270,
        "stores": 61_652_519,
        "instructions": 1_686_616_760,
        "fetches": 1_625_000_719 + 160,
        "l1d_hits": 565_783_852,
        "l1d_misses": 144_107_071,
        "l2_misses": 67_933_134,
        "PWC,MEMORY,MEMORY,MEMORY": 10,
        "ZERO,PWC,MEMORY,MEMORY": 50_863,
        "ZERO,PWC,MEMORY,L2": 420,
        "ZERO,PWC,MEMORY,LLC": 1_320,
        "ZERO,PWC,MEMORY,ZERO": 2_686,
        "ZERO,PWC,L2,MEMORY": 7_544_105,
        "ZERO,PWC,L2,L2": 9_491_734,
        "ZERO,PWC,L2,LLC": 25_147_270,
        "ZERO,PWC,L2,ZERO": 40_117,
        "ZERO,PWC,LLC,MEMORY": 53_221,
        "ZERO,PWC,LLC,L2": 8_639,
        "ZERO,PWC,LLC,LLC": 5_650,
        "ZERO,PWC,LLC,ZERO": 7_245,
        "ZERO,ZERO,PWC,MEMORY": 1_867_379,
        "ZERO,ZERO,PWC,L2": 19_052_993,
        "ZERO,ZERO,PWC,LLC": 6_143_294,
    },
    "sysbench": {
        "loads": 778,
        "stores": 1_454_543_960,
        "instructions": 2_000_000_000,
        "fetches": 1_953_200_617 + 48_631,
        "l1d_hits": 1_415_885_605,
        "l1d_misses": 3_038_186,
        "l2_misses": 2_759_387,
        "MEMORY,MEMORY,MEMORY,MEMORY": 1,
        "PWC,MEMORY,MEMORY,MEMORY": 8,
        "PWC,MEMORY,MEMORY,L2": 1,
        "PWC,MEMORY,MEMORY,ZERO": 2,
        "PWC,L2,MEMORY,MEMORY": 1,
        "PWC,L2,MEMORY,ZERO": 1,
        "ZERO,PWC,MEMORY,MEMORY": 692,
        "ZERO,PWC,MEMORY,L2": 7,
        "ZERO,PWC,MEMORY,LLC": 2,
        "ZERO,PWC,MEMORY,ZERO": 111,
        "ZERO,PWC,L2,MEMORY": 137,
        "ZERO,PWC,L2,L2": 2,
        "ZERO,PWC,L2,ZERO": 477,
        "ZERO,PWC,LLC,MEMORY": 4_658,
        "ZERO,PWC,LLC,LLC": 2,
        "ZERO,PWC,LLC,ZERO": 91,
        "ZERO,ZERO,PWC,MEMORY": 344_130,
        "ZERO,ZERO,PWC,L2": 2_449_586,
        "ZERO,ZERO,PWC,LLC": 422,
    },
    "tc": {
        "loads": 410_272_243,
        "stores": 3_564_259,
        "instructions": 2_000_000_000,
        "fetches": 1_928_157_748 + 113,
        "l1d_hits": 372_335_858,
        "l1d_misses": 30_490_061,
        "l2_misses": 6_176_383,
        "MEMORY,MEMORY,MEMORY,MEMORY": 1,
        "ZERO,PWC,MEMORY,MEMORY": 186,
        "ZERO,PWC,MEMORY,L2": 102,
        "ZERO,PWC,MEMORY,LLC": 195,
        "ZERO,PWC,MEMORY,ZERO": 27,
        "ZERO,PWC,L2,MEMORY": 701_070,
        "ZERO,PWC,L2,L2": 733_588,
        "ZERO,PWC,L2,LLC": 1_660_024,
        "ZERO,PWC,L2,ZERO": 25_956,
        "ZERO,PWC,LLC,MEMORY": 2_022,
        "ZERO,PWC,LLC,L2": 2_294,
        "ZERO,PWC,LLC,LLC": 5_809,
        "ZERO,PWC,LLC,ZERO": 9_577,
        "ZERO,ZERO,PWC,MEMORY": 93_307,
        "ZERO,ZERO,PWC,L2": 2_562_444,
        "ZERO,ZERO,PWC,LLC": 492_097,
    },
}
# Cycles, as the logs' authors count them; a walk cache's answer waits for all three.
CYCLES = {"MEMORY": 200, "LLC": 56, "L2": 16, "PWC": 4, "ZERO": 0}


def reference(log: dict[str, int]) -> dict[str, float]:
    """The numbers of a log, by the columns of the table."""
    walks = [(key.split(","), count) for key, count in log.items() if "," in key]
    total = sum(count for _, count in walks)
    read = ("MEMORY", "LLC", "L2")
    reads = sum(count for levels, count in walks for level in levels if level in read)
    cycles = 0
    for levels, count in walks:
        # Without an answer, all three are waited for.
        extra = 4 * (2 - levels.index("PWC") if "PWC" in levels else 3)
        cycles += count * (sum(CYCLES[level] for level in levels) + extra)
    lookups = log["l1d_hits"] + log["l1d_misses"]
    return {
        "data references an instruction": (log["loads"] + log["stores"]) / log["instructions"],
        "stores of 1000 instructions": 1000 * log["stores"] / log["instructions"],
        "L1D-TLB misses a lookup, %": 100 * log["l1d_misses"] / lookups,
        "L2-TLB misses a lookup, %": 100 * log["l2_misses"] / log["l1d_misses"],
        "L2-TLB MPKI": 1000 * log["l2_misses"] / log["fetches"],
        "reads a walk": reads / total,
        "cycles a walk": cycles / total,
    }


# References that warm the logs' TLBs up, of instructions and data (-warmup_refs).
WARMUP_REFERENCES = 100_000_000


def simulated(name: str, given: argparse.Namespace) -> dict[str, float]:
    """The same numbers of a simulated run."""
    log = LOGS[name]
    data = log["loads"] + log["stores"]
    result = pagewalk.run(
        "radix",
        machine="emt-reference",
        **PROGRAMS[name],
        warmup=given.warmup
        or WARMUP_REFERENCES * log["instructions"] // (log["instructions"] + data),
        instructions=given.instructions or log["fetches"],
        sample=None if given.sample == "none" else given.sample,
        progress=False,
    )
    design = result["radix"]
    misses = design["l1d_tlb_mpki"] * design["instructions"] / 1000
    stats = result.data["designs"][0]["stats"]
    stores = sum(s["value"] for s in stats if (s["path"], s["name"]) == ("core.0", "stores"))
    return {
        "data references an instruction": design["memory_operands"] / design["instructions"],
        "stores of 1000 instructions": 1000 * stores / design["instructions"],
        "L1D-TLB misses a lookup, %": 100 * misses / design["memory_operands"],
        "L2-TLB misses a lookup, %": 100 * design["l2_tlb_mpki"] / design["l1d_tlb_mpki"],
        "L2-TLB MPKI": design["l2_tlb_mpki"],
        "reads a walk": design["walk_reads_per_walk"],
        "cycles a walk": design["walk_cycles_mean"],
    }


def main() -> None:
    """Prints a table for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS), choices=list(PROGRAMS))
    parser.add_argument("--instructions")
    parser.add_argument("--warmup")
    parser.add_argument("--sample", default="1M/16M")
    given = parser.parse_args()
    for name in given.programs:
        found = simulated(name, given)
        print(f"{name:<34}{'log':>10}{'here':>10}{'ratio':>8}")
        for what, expected in reference(LOGS[name]).items():
            ratio = found[what] / expected
            print(f"  {what:<32}{expected:>10.3f}{found[what]:>10.3f}{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
