"""Turns the lines that guests print into the results in linux/results."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from typing import Any

Record = dict[str, Any]
TIERS = 6


def results(console: str) -> list[Record]:
    """The objects on lines that begin with RESULT."""
    lines = (line[7:] for line in console.splitlines() if line.startswith("RESULT {"))
    return [json.loads(line) for line in lines]


def model(p: float, hashes: int) -> list[float]:
    """Revelator, section 5.1.1: the share of each tier at pressure `p`, and of the fallback."""
    tiers = [p ** (i - 1) * (1 - p) for i in range(1, hashes + 1)]
    return [*tiers, p**hashes]


def shares(counts: list[int], fallback: int, hashes: int) -> list[float]:
    total = sum(counts) + fallback
    return [count / total for count in [*counts[:hashes], fallback]]


def figure10(records: list[Record]) -> list[Record]:
    """Shares of tiers, summed over repeats, beside the model at the mean pressure."""
    groups: dict[tuple[float, int, int], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "distribution":
            groups[r["target"], r["run"], r["hashes"]].append(r)
    rows = []
    for (target, run, hashes), found in sorted(
        groups.items(), key=lambda g: (g[0][1], g[0][0], g[0][2])
    ):
        p = statistics.fmean((r["pressure_before"] + r["pressure_after"]) / 2 for r in found)
        row: Record = {
            "pressure": target,
            "run": run,
            "hashes": hashes,
            "measured_pressure": round(p, 5),
        }
        for name in ("tiers", "tables"):
            counts = [sum(r[name][i] for r in found) for i in range(TIERS)]
            fallback = sum(r[f"{name}_fallback"] for r in found)
            total = sum(counts) + fallback
            measured = shares(counts, fallback, hashes)
            expected = model(p, hashes)
            row[name] = {
                "count": total,
                "measured": [round(m, 5) for m in measured],
                "model": [round(m, 5) for m in expected],
                "largest_difference_points": round(
                    max(100 * abs(a - b) for a, b in zip(measured, expected, strict=True)), 3
                ),
                "largest_standard_error_points": round(
                    max(100 * math.sqrt(e * (1 - e) / total) for e in expected), 3
                ),
            }
        rows.append(row)
    return rows


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % confidence interval (normal, or Student's t below 30)."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        return mean, math.inf
    return mean, t.get(n, 2.05 if n < 30 else 1.96) * statistics.stdev(values) / math.sqrt(n)


def fault_costs(records: list[Record]) -> list[Record]:
    """Instructions of a page fault. Faults that an interrupt hit are not excluded.

    The mean and its interval are over rounds, without the first, which finds cold per-CPU lists.
    """
    groups: dict[tuple[str, str, float], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "faults":
            groups[r["kernel"], r["state"], r["pressure"]].append(r)
    rows = []
    for (kernel, state, pressure), found in groups.items():
        means = [statistics.fmean(r["instructions"]) for r in found]
        each = sorted(i for r in found for i in r["instructions"])
        mean, half = interval(means[1:])
        rows.append(
            {
                "kernel": kernel,
                "state": state,
                "pressure": pressure,
                "rounds": len(means) - 1,
                "faults": len(each),
                "mean": round(mean, 2),
                "interval_95": round(half, 2),
                "median": each[len(each) // 2],
                "percentile_99": each[len(each) * 99 // 100],
            }
        )
    return rows


def lives(records: list[Record]) -> list[Record]:
    """Instructions of whole programs, from fork to exit, and requests for placement."""
    groups: dict[tuple[str, str, str, float], list[Record]] = defaultdict(list)
    for r in records:
        if r["kind"] == "life":
            groups[r["command"], r["kernel"], r["state"], r["pressure"]].append(r)
    rows = []
    for (command, kernel, state, pressure), runs in groups.items():
        # The first run reads the program and its data into the page cache.
        found = [r["instructions"] for r in runs]
        mean, half = interval(found[1:])
        rows.append(
            {
                "command": command,
                "kernel": kernel,
                "state": state,
                "pressure": pressure,
                "rounds": len(found) - 1,
                "requests": round(statistics.fmean(r["requests"] for r in runs[1:]), 1),
                "median": round(statistics.median(found[1:])),
                "mean": round(mean),
                "interval_95": round(half),
            }
        )
    return rows


def of_kind(records: list[Record], kind: str) -> list[Record]:
    return [{k: v for k, v in r.items() if k != "kind"} for r in records if r["kind"] == kind]


def churn(records: list[Record]) -> Record:
    """The steps of the first and the last round, and the pages by hash over all rounds."""
    rows = of_kind(records, "churn")
    last = rows[-1]["round"]
    for row in rows:
        row["hashed_percent"] = round(100 * sum(row["tiers"]) / row["pages"], 3)
    after: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        after[row["after"]].append(row["hashed_percent"])
    return {
        "rounds": last,
        "seconds": rows[-1]["seconds"],
        "faults": rows[-1]["faults"] - rows[0]["faults"],
        "hashed_percent": {
            step: {"least": min(found), "mean": round(statistics.fmean(found), 3)}
            for step, found in after.items()
        },
        "rows": [row for row in rows if row["round"] in (0, 1, last)],
    }


def causes(records: list[Record]) -> list[Record]:
    """Instructions of each fault by cause, with those of the time stamps."""
    rows = []
    for r in of_kind(records, "causes"):
        if not r["calls"]:
            continue
        parts = ("hash", "check", "search", "lists", "lock", "split", "prep")
        rows.append(
            {
                "state": r["state"],
                "pressure": r["pressure"],
                "faults": r["faults"],
                "calls_per_fault": round(r["calls"] / r["faults"], 3),
                **{part: round(r[part] / r["faults"], 1) for part in parts},
            }
        )
    return rows


def lists(records: list[Record]) -> Record:
    """The ways to treat per-CPU lists, side by side."""
    reuse: list[Record] = []
    way = ""
    for r in records:
        if r["kind"] == "way":
            way = r["way"]
        elif r["kind"] == "reuse":
            reuse.append({"way": way, **{k: v for k, v in r.items() if k != "kind"}})
    return {
        "reuse": reuse,
        "causes": causes(records),
        "faults": fault_costs(records),
        "programs": lives(records),
    }


def costs(records: list[Record]) -> Record:
    """Faults beside the unpatched kernel, and programs beside placement off in the same guest."""
    faults, programs = fault_costs(records), lives(records)
    # By medians: a round may wait for other processes.
    base = {r["pressure"]: r["median"] for r in faults if r["state"] == "unpatched"}
    for r in faults:
        r["more_percent"] = round(100 * (r["median"] / base[r["pressure"]] - 1), 3)
    off = {(r["command"], r["pressure"]): r for r in programs if r["state"] == "off"}
    for r in programs:
        of = off[r["command"], r["pressure"]]
        ratio = r["mean"] / of["mean"]
        # The relative errors of both means are independent.
        error = math.hypot(r["interval_95"] / r["mean"], of["interval_95"] / of["mean"])
        r["more_percent"] = round(100 * (ratio - 1), 3)
        r["more_interval_95"] = round(100 * ratio * error, 3)
    return {"faults": faults, "programs": programs}
