"""A stand-in for the engine: it answers at once and keeps the specifications of its runs.

A test can make it do things that a real run does not do on demand. Its results have the form of the
engine's; their numbers, causes and texts are made up.
"""

from __future__ import annotations

import difflib
import json
import sys
import types
from collections.abc import Callable
from typing import Any

CAUSES = {"retiring": 0.1, "page walks": 0.55, "DRAM": 0.3, "branches": 0.0, "faults": 0.05}


class _Error(Exception):
    @property
    def fields(self) -> str:
        sentence = [str(self)]
        return json.dumps({"option": None, "place": None, "lead": [], "text": sentence})


class UserError(_Error):
    pass


class Failure(_Error):
    pass


def design_result(name: str, cycles: int, speedup: float, **changes: Any) -> dict[str, Any]:
    instructions = 20_000_000
    summary = [
        ("ipc", instructions / cycles, "instructions/cycle", "Instructions retired a cycle"),
        ("cycles", cycles, "cycles", "Cycles of the measured part"),
        ("instructions", instructions, "instructions", "Instructions measured"),
        ("l1d_tlb_mpki", 66.5, "misses/kilo-instruction", "L1 data TLB misses"),
        ("l2_tlb_mpki", 61.25, "misses/kilo-instruction", "L2 TLB misses"),
        ("walks", 1_234_567, "walks", "Page walks"),
        ("walk_cycles_mean", 88.25, "cycles", "Mean duration of a page walk"),
        ("walk_reads_per_walk", 1.5, "reads", "Memory reads of a page walk"),
        ("page_faults", 262_144, "faults", "Page faults"),
        ("page_table_bytes", 2_105_344, "bytes", "Memory that the page tables take"),
        ("largest_contiguous_bytes", 4096, "bytes", "Largest block of a table"),
    ]
    return {
        "name": name,
        "description": f"What {name} is",
        "status": "complete",
        "message": None,
        "config": {
            "cores": 1,
            "mmu": {"l2": {"main": {"entries": 2048}}, "perfect": name == "perfect-tlb"},
            "placement": {"thp" if name == "thp" else "buddy": {}},
            "page_table": {"radix": {"levels": 4}},
        },
        "summary": [
            dict(zip(("name", "value", "unit", "meaning"), row, strict=True)) for row in summary
        ],
        "speedup": speedup,
        "cycle_stack": [
            {
                "cause": cause,
                "cycles": cycles * share,
                "share": share,
                "meaning": f"What {cause} is",
            }
            for cause, share in CAUSES.items()
        ],
        "stats": [
            {
                "path": "core.0.mmu.l2_tlb",
                "name": "misses",
                "unit": "lookups",
                "meaning": "Lookups that found nothing",
                "gauge": False,
                "value": 1_225_000,
            }
        ],
        "energy_ratio": cycles / 100_000_000,
        "energy": {
            "total_nj": 3500.0,
            "dynamic_nj": 1000.0,
            "static_nj": 2500.0,
            "seconds": 0.01,
            "parts": [
                {
                    "part": part,
                    "group": group,
                    "total_nj": dynamic + static,
                    "dynamic_nj": dynamic,
                    "static_nj": static,
                    "static_mw": 41.0,
                    "number": 1,
                    "source": f"energy.{group}",
                    "events": [
                        {"event": "read", "count": 10, "each_pj": 19.0, "total_nj": dynamic}
                    ],
                }
                for part, group, dynamic, static in (
                    ("core", "core", 300.0, 1500.0),
                    ("l1d", "caches", 600.0, 499.0),
                    ("mmu.pwc.2", "walk_caches", 0.5, 1.0),
                    ("dram", "dram", 99.5, 500.0),
                )
            ],
        },
        "histograms": [
            {
                "path": "core.0.mmu",
                "name": "walk_latency",
                "unit": "cycles",
                "meaning": "Length of a walk",
                "count": 1000,
                "sum": 88_250,
                "mean": 88.25,
                "p50": 20,
                "p90": 135,
                "p99": 411,
                "largest": 700,
                "buckets": [[20, 20, 600], [132, 135, 350], [408, 415, 40], [688, 703, 10]],
            }
        ],
        # The last interval is of three instructions: its ratios say nothing.
        "intervals": {
            "first_instruction": [0, 10_000_000, 20_000_000],
            "instructions": [10_000_000, 10_000_000, 3],
            "cycles": [cycles // 2, cycles // 2, 1],
            "complete": [True, True, False],
            "values": {"ipc": [0.2, 0.2, 3.0], "l2_tlb_mpki": [61.0, 62.0, 333.0]},
            "stats": [
                {
                    "path": "core.0.mmu.l2_tlb",
                    "name": "misses",
                    "gauge": False,
                    "values": [600_000, 625_000, 0],
                }
            ],
            "histograms": [],
        },
        "sampling": None,
        **changes,
    }


def mixed(names: list[str], speedup: float) -> dict[str, Any]:
    """Further fields of a design's result for a mix of these programs."""
    programs = [
        {
            "name": name,
            "instructions": 10_000_000,
            "requests": 0,
            "cycles": 20_000_000 * (i + 1),
            "ipc": 0.5 / (i + 1),
            "ipc_alone": 0.625 / (i + 1),
            "speedup": speedup,
            **{"l1d_tlb_mpki": 0.5, "l1i_tlb_mpki": None, "l2_tlb_mpki": 0.25},
            "walk_cycles_mean": 20.0,
            **{"mapped_4kb": 4096, "mapped_2mb": 2 << 20, "mapped_1gb": 0},
            "page_table_bytes": 8192,
            "own": {
                **{"core_cycles": 9, "walks": 3, "walk_cycles": 60},
                **{"page_faults": 2, "fault_cycles": 500},
            },
            "later": {"walks": 7},
        }
        for i, name in enumerate(names)
    ]
    return {
        **{"programs": programs, "weighted_speedup": 0.8 * len(names)},
        **{"harmonic_speedup": 0.8, "antt": 1.25, "outside_programs": {"walks": 0}},
    }


def on(machine: str, design: str, speedup: float) -> dict[str, Any]:
    """Further fields of a design's result when several machines are compared."""
    return {"machine": machine, "design": design, "speedup_in_time": speedup}


def by_requests(design: dict[str, Any], requests: int) -> None:
    """Makes the design's result one of a program that has done so many requests."""
    cycles = next(q["value"] for q in design["summary"] if q["name"] == "cycles")
    design["speedup_by"] = "request"
    design["summary"] += [
        {"name": name, "value": value, "unit": unit, "meaning": f"What {name} says"}
        for name, value, unit in (
            ("requests", requests, "requests"),
            ("cycles_per_request", cycles / requests, "cycles/request"),
            ("instructions_per_request", 20_000_000 / requests, "instructions/request"),
        )
    ]


def result(spec: dict[str, Any]) -> dict[str, Any]:
    mix = (spec.get("source") or {}).get("mix")
    names = [p["workload"]["name"] for p in mix["programs"]] if mix else []
    several = spec["machine"] if isinstance(spec["machine"], list) else []
    designs = [
        design_result(
            name if machine is None else f"{name} on {machine}",
            90_000_000 // (i + 1),
            1.0 * (i + 1),
            **(mixed(names, 1.0 * (i + 1)) if names else {}),
            **(on(machine, name, (i + 1) / (number + 1)) if machine else {}),
        )
        for number, machine in enumerate(several or [None])
        for i, name in enumerate(spec["designs"])
    ]
    for design in designs if several else []:
        design["summary"] += [
            {"name": "seconds", "value": 0.03, "unit": "s", "meaning": "Simulated time"},
        ]
    return {
        "version": "0.1.0",
        "partial": False,
        "seed": spec["seed"],
        "source": {
            "name": "gups 1 GiB",
            "infer_mappings": False,
            "no_dependences": False,
            "deterministic": True,
            "cpu": None,
            "exit_status": None,
        },
        "machine": spec["machine"],
        "limits": spec["limits"],
        "warnings": [],
        "failed_files": [],
        "host": {
            "seconds": 1.5,
            "simulated_instructions_per_second": 26.5e6,
            "threads": 2,
            "peak_rss_bytes": 150 << 20,
        },
        "designs": designs,
    }


Run = Callable[[dict[str, Any], Callable[[str], bool] | None], dict[str, Any]]


class Engine(types.ModuleType):
    """The part of `pagewalk._native` that runs programs and lists them.

    `run` calls `script`, and `specs` holds the specifications. `workloads` and `explain`
    return `listed` and `explained`. No key of a configuration has a usual value. The
    stand-in can neither record nor read traces.
    """

    UserError = UserError
    Failure = Failure

    def __init__(self, run: Run | None = None) -> None:
        super().__init__("pagewalk._native")
        self.script: Run = run or (lambda spec, _progress: result(spec))
        self.specs: list[dict[str, Any]] = []
        self.explained: dict[str, Any] = {}
        self.listed: list[dict[str, Any]] = []

    def set_data_dir(self, path: str) -> None:
        self.data_dir = path

    def version(self) -> str:
        return "0.1.0"

    def model_version(self) -> int:
        return 1

    def run(
        self, spec: str, progress: Callable[[str], bool] | None = None, _hosts: None = None
    ) -> str:
        self.specs.append(json.loads(spec))
        return json.dumps(self.script(self.specs[-1], progress))

    def resolve(self, _spec: str) -> str:
        return "[]"

    def workloads(self) -> str:
        return json.dumps(self.listed)

    def statistics(self) -> str:
        design = design_result("radix", 1, 1.0)
        by_requests(design, 1)
        names = [*(q["name"] for q in design["summary"]), "l2p_entries", "seconds"]
        metrics = [{"name": name, "unit": "", "text": ""} for name in names]
        return json.dumps({"metrics": metrics, "programs": [], "statistics": []})

    def config_keys(self) -> str:
        return "[]"

    def explain(self, _name: str) -> str:
        return json.dumps(self.explained)

    def nearest(self, given: str, names: list[str]) -> str | None:
        return next(iter(difflib.get_close_matches(given, names, 1)), None)


def install(monkeypatch: Any, engine: Engine) -> Engine:
    import pagewalk
    from pagewalk import native

    monkeypatch.setitem(sys.modules, "pagewalk._native", engine)
    monkeypatch.setattr(pagewalk, "_native", engine, raising=False)
    monkeypatch.setattr(native, "_ready", False)
    return engine
