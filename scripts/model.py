"""Results of a small set of runs, by which a test notices that they have changed.

`python scripts/model.py --write` writes `tests/model.json`, after `MODEL_VERSION` in
crates/machine/src/lib.rs has been raised. Kept runs of another version are simulated again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.config import options, source

Json = dict[str, Any]

PATH = Path(__file__).resolve().parent.parent / "tests" / "model.json"

RUNS = {
    "gups": "--workload gups --size 256MiB --instructions 300K --warmup 100K",
    "bfs": "--workload bfs --size 64MiB --instructions 300K",
    "kv-redis": "--workload kv-redis --size 64MiB --instructions 300K",
    "kv-hash by requests": "--workload kv-hash --size 64MiB --requests 500 --warmup-requests 100",
    "mix": "--mix gups:size=64MiB,kv-btree:size=64MiB --set cores=2 --instructions 100K",
    "samples": "--workload xsbench --size 64MiB --instructions 2M --sample 20K/200K:all+50K",
    "STLT's machine": "--machine stlt-table3 --workload kv-map --size 64MiB --instructions 200K",
    "Revelator's machine": "--machine revelator-table1 --workload dlrm --instructions 200K",
    "ME-HPT's machine": "--machine mehpt-table3 --workload mummer --instructions 200K",
}
"""Options of runs, by their subject. Every shipped design runs on the first one."""
DESIGNS = ("radix", "thp", "mehpt", "revelator")


def found(name: str) -> Json:
    """The results of a run: for each design a hash of its numbers, and two of them."""
    words = RUNS[name].split()
    given: dict[str, Any] = {option.name: option.default for option in options.OPTIONS}
    flags = {option.spelled: option for option in options.OPTIONS}
    for flag, value in zip(words[::2], words[1::2], strict=True):
        given[flags[flag].name] = [value] if flag in {"--set", "--mix"} else value
    what = source.source(workload=given["workload"], size=given["size"], mix=given["mix"])
    designs = [one["name"] for one in native.designs()] if name == "gups" else DESIGNS
    spec = options.specification({**given, "jobs": 1}, list(designs), what)
    result = native.run(spec)
    return {design["name"]: _numbers(design) for design in result["designs"]}


def _numbers(design: Json) -> Json:
    numbers = {one["name"]: one["value"] for one in design["summary"]}
    # Numbers and their names; texts that explain them may change.
    named = [
        {key: value for key, value in one.items() if key != "meaning"}
        for part in ("summary", "cycle_stack", "stats", "histograms", "since_boot")
        for one in design.get(part) or []
    ]
    whole = json.dumps([design["status"], named, design.get("sampling")], sort_keys=True)
    return {
        "cycles": numbers.get("cycles"),
        "l2_tlb_mpki": numbers.get("l2_tlb_mpki"),
        "digest": hashlib.sha256(whole.encode()).hexdigest()[:16],
    }


def model() -> Json:
    """The results of all runs, with the version of the model."""
    return {"version": native.model_version(), "runs": {name: found(name) for name in RUNS}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write tests/model.json")
    text = json.dumps(model(), indent=1) + "\n"
    if parser.parse_args().write:
        PATH.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
