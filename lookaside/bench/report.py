"""Draws lookaside/speedup.svg and writes the tables of lookaside/README.md from results.json.

lookaside/bench/report.py [--check]
"""

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import altair as alt

ROOT = Path(__file__).resolve().parent.parent
README, RESULTS, PICTURE = ROOT / "README.md", ROOT / "results.json", ROOT / "speedup.svg"
NAMES = {
    "map": "std::map",
    "btree": "absl::btree_map",
    "umap": "std::unordered_map",
    "flat": "absl::flat_hash_map",
    "dense": "dense_hash_map",
}
REDIS_TESTS = ROOT / "redis" / "test-results.txt"
PICTURED = (10**7, 64)
"""Records of the picture and of the latencies, and bytes of a value."""
GUARANTEE = 0.97
"""Lowest speedup that the automatic switch promises."""

Case = dict[str, Any]


def speedup(case: Case) -> str:
    """The speedup with the automatic switch, two digits."""
    return f"{case['auto_speedup']:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown: names to the left, numbers to the right."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main_table(cases: list[Case]) -> str:
    """Speedups of each index by number of records, value size, distribution and mode."""
    columns = sorted(
        {
            (c["records"], c["value_bytes"], c["distribution"], c["mode"])
            for c in cases
            if c["workload"] == "C" and c["distribution"] in ("zipf", "uniform")
        }
    )
    rows = []
    for records, value_bytes, distribution, mode in columns:
        row = [f"{records // 10**6} M, {value_bytes} B, {distribution}, {mode}"]
        for index in NAMES:
            key = (index, records, value_bytes, distribution, mode)
            found = [
                c
                for c in cases
                if c["workload"] == "C"
                and (c["index"], c["records"], c["value_bytes"], c["distribution"], c["mode"])
                == key
            ]
            row.append(speedup(found[0]) if found else "–")
        rows.append(row)
    return table(["records, values, distribution, mode", *NAMES.values()], rows)


def workload_table(cases: list[Case]) -> str:
    """Speedups by workload, single lookups."""
    chosen = [
        c
        for c in cases
        if c["mode"] == "single" and c["records"] == 10**7 and c["distribution"] != "uniform"
    ]
    kinds = sorted({(c["workload"], c["distribution"]) for c in chosen})
    rows = []
    for kind in kinds:
        found = {c["index"]: c for c in chosen if (c["workload"], c["distribution"]) == kind}
        rows.append([" ".join(kind), *(speedup(found[i]) if i in found else "–" for i in NAMES)])
    return table(["workload", *NAMES.values()], rows)


def losses_table(cases: list[Case]) -> str:
    """Every case in which lookups are slower with the table, always on or automatic."""
    rows = [
        [
            f"{NAMES[c['index']]}, {c['records'] // 10**6} M, {c['value_bytes']} B, "
            f"{c['workload']} {c['distribution']}, {c['mode']}",
            f"{c['on_speedup']:.2f}",
            speedup(c),
            f"{c['auto_interval'][0]:.2f} to {c['auto_interval'][1]:.2f}",
            f"{c['auto_admitted'] * 100:.0f} %",
            f"{c['on_hits'] * 100:.0f} %",
        ]
        for c in sorted(cases, key=lambda c: c["on_speedup"])
        if c["on_speedup"] < 1 or c["auto_speedup"] < GUARANTEE
    ]
    head = [
        "case",
        "always on",
        "automatic",
        "95 % interval",
        "lookups through the table",
        "hits",
    ]
    lowest = min(cases, key=lambda c: c["auto_speedup"])
    below = [c for c in cases if c["auto_speedup"] < GUARANTEE]
    surely = sum(c["auto_interval"][1] < GUARANTEE for c in below)
    sum_up = (
        f"Lowest automatic speedup of all {len(cases)} cases: {speedup(lowest)}. "
        f"Cases below {GUARANTEE}: {len(below)}, {surely} of them with their whole interval."
    )
    return (
        sum_up
        + "\n\n"
        + (table(head, rows) if rows else "No case is slower with the table always on.")
    )


def latency_table(cases: list[Case]) -> str:
    """Percentiles of single lookups in cycles."""
    rows = [
        [
            f"{NAMES[c['index']]}, {'with' if side == 'on' else 'without'}",
            *(str(c[f"{side}_percentiles_cycles"][p]) for p in ("50", "90", "99", "99.9")),
        ]
        for index in NAMES
        for c in cases
        if (c["index"], c["distribution"]) == (index, "zipf")
        and (c["records"], c["value_bytes"]) == PICTURED
        and "on_percentiles_cycles" in c
        for side in ("base", "on")
    ]
    return table(["index", "median", "90 %", "99 %", "99.9 %"], rows)


def memory_table(cases: list[Case]) -> str:
    """Resident memory after the load, and the table's part."""
    seen: dict[tuple[str, int, int], Case] = {}
    for case in cases:
        seen.setdefault((case["index"], case["records"], case["value_bytes"]), case)
    rows = [
        [
            f"{NAMES[i]}, {records // 10**6} M, {value_bytes} B",
            f"{c['resident_kib'] / 1024:.0f}",
            f"{c['table_bytes'] / 2**20:.0f}",
        ]
        for (i, records, value_bytes), c in seen.items()
    ]
    return table(["index, records, values", "process (MiB)", "table (MiB)"], rows)


def redis_table(redis: list[Case]) -> str:
    """Requests a second of Redis, paired runs."""
    rows = [
        [r["case"], f"{r['base']:.0f}", f"{r['lookaside']:.0f}", f"{r['speedup']:.2f}"]
        for r in redis
    ]
    return table(["case", "base (CPU ns a request)", "lookaside", "speedup"], rows)


def rocksdb_table(pairs: list[Case]) -> str:
    """CPU time of a Get in RocksDB's memtable, paired slices."""
    rows = [
        [f"{p['base']:.0f}", f"{p['lookaside']:.0f}", f"{p['base'] / p['lookaside']:.2f}"]
        for p in pairs
    ]
    return table(["skip list alone (CPU ns a Get)", "with lookaside", "speedup"], rows)


def simulator_table(simulator: dict[str, Case]) -> str:
    """Measured times of the bench, each side in a process of its own, beside simulated ones."""
    rows = []
    for case, found in simulator.items():
        if not {"measured", "simulated"} <= found.keys():
            continue
        index, distribution, mode = case.split(":")
        measured = [statistics.median(found["measured"][side]) for side in ("index", "table")]
        for variant in found["simulated"]["index"]:
            simulated = [found["simulated"][side][variant]["ns"] for side in ("index", "table")]
            ratios = [times[0] / times[1] for times in (measured, simulated)]
            rows.append(
                [
                    f"{NAMES[index]}, {distribution}, {mode}",
                    variant,
                    *(f"{ratio:.2f}" for ratio in ratios),
                    f"{(ratios[1] / ratios[0] - 1) * 100:+.0f} %",
                    *(f"{m:.0f} / {s:.0f}" for m, s in zip(measured, simulated, strict=True)),
                ]
            )
    head = ["case", "simulated machine", "measured speedup", "simulated", "difference"]
    return table([*head, "index alone (ns)", "with the table (ns)"], rows)


def redis_tests_table(text: str) -> str:
    """Units, tests and lookups of Redis' own tests, by suite."""
    suites = {"unit/moduleapi/": "modules", "cluster/": "cluster", "": "main"}
    sums: dict[str, list[int]] = {name: [0] * 7 for name in ("main", "modules", "cluster")}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 7 and "/" in words[0] and words[1].isdigit():
            suite = next(name for prefix, name in suites.items() if words[0].startswith(prefix))
            for i, number in enumerate([1, *map(int, words[1:])]):
                sums[suite][i] += number
    head = ["tests", "units", "passed", "fail also without", "fail only with", "unsteady"]
    rows = [[name, *(f"{n:,}" for n in numbers)] for name, numbers in sums.items()]
    first = re.search(r"(\d+) of (\d+) units", text)
    assert first
    left = "" if first[1] == first[2] else f"{first[1]} of {first[2]} units ran.\n\n"
    return left + table([*head, "lookups", "hits"], rows)


def picture(cases: list[Case]) -> str:
    """Bars of speedups for 10 million records under Zipf's distribution."""
    rows = [
        {"index": NAMES[c["index"]], "lookups": c["mode"], "speedup": c["auto_speedup"]}
        for c in cases
        if (c["records"], c["value_bytes"]) == PICTURED
        and (c["workload"], c["distribution"]) == ("C", "zipf")
        and c["mode"] in ("single", "batch")
    ]
    bars = (
        alt.Chart(alt.InlineData(rows), title="Ten million records, 64-byte values, Zipf 0.99")
        .mark_bar()
        .encode(
            x=alt.X("speedup:Q", title="speedup over the index alone"),
            y=alt.Y("index:N", sort=list(NAMES.values()), title=None),
            yOffset=alt.YOffset("lookups:N", sort=["single", "batch"]),
            color=alt.Color("lookups:N", sort=["single", "batch"], title="lookups"),
        )
    )
    rule = alt.Chart(alt.InlineData([{"speedup": 1}])).mark_rule().encode(x="speedup:Q")
    import vl_convert

    return str(vl_convert.vegalite_to_svg((bars + rule).properties(width=480).to_dict())) + "\n"


def main() -> None:
    """Writes the files, or with --check says whether they are up to date."""
    results = json.loads(RESULTS.read_text())
    cases = results["cases"]
    regions = {
        "speedups": main_table(cases),
        "workloads": workload_table(cases),
        "losses": losses_table(cases),
        "latencies": latency_table(cases),
        "memory": memory_table(cases),
        "redis": redis_table(results["redis"]) if "redis" in results else "Not measured.",
        "rocksdb": rocksdb_table(results["rocksdb"]) if "rocksdb" in results else "Not measured.",
    }
    regions["host"] = f"The processor is an {results['machine']['processor']}."
    regions["simulator"] = simulator_table(results.get("simulator", {}))
    regions["redis-tests"] = redis_tests_table(REDIS_TESTS.read_text())
    text = README.read_text()
    for name, body in regions.items():
        before, rest = text.split(f"<!-- {name} -->\n")
        text = before + f"<!-- {name} -->\n{body}\n" + rest[rest.index("<!-- end -->") :]
    drawn = picture(cases)
    if "--check" in sys.argv:
        if README.read_text() != text:
            raise SystemExit("lookaside/README.md is out of date: run lookaside/bench/report.py")
        return
    README.write_text(text)
    PICTURE.write_text(drawn)


if __name__ == "__main__":
    main()
