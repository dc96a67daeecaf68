"""Our own choices one at a time: which of the paper's numbers each reading fits."""

from __future__ import annotations

from dataclasses import replace

from pagewalk.reproduce import Figure, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import EARLIER, Case, Found, runs
from .printed import (
    CACHE_SAVED,
    FIGURE_11,
    HASH_BY_DISTRIBUTION,
    NEAR,
    TLB_SAVED,
    TREE_TABLES,
    Said,
)

PROGRAMS = ("Redis", "umap", "dhash", "map")
DISTRIBUTIONS = ("zipf", "uniform")

Keys = tuple[tuple[str, object], ...]
Params = tuple[tuple[str, str], ...]

AS_IS = "as shipped"
READINGS: dict[str, tuple[Params, Keys]] = {
    AS_IS: ((), ()),
    "lookup alone: no value is read": ((("reply", "none"),), ()),
    "zipf in the order of insertion": ((("distribution", "zipfian"),), ()),
    "the whole request of Redis": ((("request", "whole"),), ()),
    "no limit on memory's bandwidth": ((), (("memory.dram.fixed.bandwidth_gbs", 0.0),)),
    "no walk caches": ((), (("mmu.walk_caches.entries", 0),)),
    "reply before the row": ((), (("shortcut.stlt.waits_for_set", False),)),
    "a window of 32 instructions": ((), (("core.rob", 32),)),
    "a window of 256 instructions": ((), (("core.rob", 256),)),
    "L3 of 8 MB": ((), (("memory.l3.size_kb", 8192),)),
    "a quarter of the warm-up": ((("earlier", "/4"),), ()),
    "all records in the table": ((("earlier", "*8"),), ()),
    "stride prefetcher at L1D": (
        (),
        tuple(
            (f"caches.l1d.prefetcher.ip_stride.{key}", value)
            for key, value in (("entries", 64), ("degree", 4), ("lookahead", 8))
        ),
    ),
    "lookup alone, no walk caches, all records in the table": (
        (("reply", "none"), ("earlier", "*8")),
        (("mmu.walk_caches.entries", 0),),
    ),
}
"""Changed parameters of the program, and changed keys of the machine, by reading."""


def case(paper: Paper, reading: str, program: str, distribution: str) -> Case:
    """Values of 128 bytes, an STLT of 512 MB."""
    params, keys = READINGS[reading]
    earlier = EARLIER // int(getattr(paper, "fewer"))  # noqa: B009 (own class)
    own = []
    for name, value in params:
        if name == "earlier":
            factor = int(value[1:])
            own.append((name, str(earlier // factor if value[0] == "/" else earlier * factor)))
        elif name != "distribution" and (name != "request" or program == "Redis"):
            own.append((name, value))
    if ("distribution", "zipfian") in params and distribution == "zipf":
        own.append(("distribution", "zipfian"))
    return Case(program, "STLT", distribution, 128, params=tuple(own), keys=keys)


class Readings(Figure):
    title = "Our choices one at a time"
    place = "ours"
    about = (
        "Speedups of STLT with values of 128 bytes, and which of the paper's nine numbers of them "
        "a reading fits within 15 % (savings: within their range): two bars of figure 11, two "
        "ranges of the hash tables, the trees' mean, and the savings of figure 12 on Redis. "
        "Trees: the map, whose mean of zipf and uniform stands for theirs."
    )
    timing = True

    def _cases(self, paper: Paper) -> dict[tuple[str, str, str], Case]:
        return {
            (reading, program, name): case(paper, reading, program, name)
            for reading in READINGS
            for program in PROGRAMS
            for name in DISTRIBUTIONS
        }

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, self._cases(paper).values())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        cases = self._cases(paper)
        rows = []
        for reading in READINGS:
            of = {
                (program, name): cases[reading, program, name]
                for program in PROGRAMS
                for name in DISTRIBUTIONS
            }
            speed = {key: found.speedup(c) for key, c in of.items()}
            rows += [
                Row(reading, f"{p} {n}", value, panel="speedups", failed=found.why(of[p, n]))
                for (p, n), value in speed.items()
            ]
            redis = {name: of["Redis", name] for name in DISTRIBUTIONS}
            rows += [
                Row(reading, f"misses, {n}", found.missed(c), unit="%", panel="speedups")
                for n, c in redis.items()
            ]
            compared: list[tuple[Said, float | None]] = []
            for name in DISTRIBUTIONS:
                said = Said(FIGURE_11[name, "STLT"][1], "figure 11", tolerance=NEAR)
                compared.append((said, speed["Redis", name]))
                hashed = mean([speed["umap", name], speed["dhash", name]])
                compared.append((replace(HASH_BY_DISTRIBUTION[name], tolerance=NEAR), hashed))
                compared.append((TLB_SAVED["STLT"], found.saved(redis[name], "walks")))
                compared.append((CACHE_SAVED["STLT"], found.saved(redis[name], "dram_reads")))
            trees = mean([speed["map", name] for name in DISTRIBUTIONS])
            compared.append((TREE_TABLES["STLT"], trees))
            known = all(value is not None for _, value in compared)
            fits = sum(
                said.row("", "", value).status.startswith("agrees") for said, value in compared
            )
            rows.append(
                Row(reading, "fits", float(fits) if known else None, panel="fits",
                    note=f"of {len(compared)}")
            )  # fmt: skip
        return rows
