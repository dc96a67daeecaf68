"""STLT's figures: what they run, what they read, and the paper's numbers beside ours."""

from __future__ import annotations

import bisect
import importlib
import json
import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from invoking import Invoke
from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.reproduce import Outcome, Paper, Row, Run
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.form import Table
from pagewalk.runs.plan import keys, written

FAILED = Outcome("", None, "no luck")
MB = 1 << 20


@pytest.fixture(scope="module")
def paper() -> Paper:
    return papers.load("stlt", "smoke")


def test_sizes_of_a_scale_are_whole_numbers(paper: Paper) -> None:
    assert paper.sizes == [64, 512]  # type: ignore[attr-defined]
    for wrong in ("64", [64, "x"], [0], [1.5]):
        with pytest.raises(UserError, match=r"sizes: expected a list of whole numbers"):
            Table({"sizes": wrong}, "scales.smoke").wholes("sizes", 1, 512)


def module(paper: Paper, name: str) -> ModuleType:
    """A file of the paper's folder."""
    return importlib.import_module(f"{type(paper).__module__.rpartition('.')[0]}.{name}")


def rows(paper: Paper, name: str, results: Callable[[Run], Outcome]) -> list[Row]:
    return paper.figures([name])[name].rows(paper, results)


def outcome(**numbers: float) -> Outcome:
    """A finished run whose summary has these numbers; `stlt_loads` is `stlt.loads`."""
    summary, stats = [], []
    for name, value in numbers.items():
        if name.startswith("stlt_"):
            stats.append({"path": "stlt", "name": name[5:], "value": value, "unit": "",
                          "meaning": "", "gauge": False})  # fmt: skip
        else:
            summary.append({"name": name, "value": value, "unit": "", "meaning": ""})
    design = {
        "name": "x", "description": "", "status": "complete", "config": {}, "cycle_stack": [],
        "histograms": [],
        "since_boot": [], "stats": stats, "summary": summary,
    }  # fmt: skip
    return Outcome("key", {"name": "x", "design": design})


def found(paper: Paper, figure: str, group: str, series: str, panel: str = "", **of: Any) -> Row:
    results = of.pop("results", lambda _run: FAILED)
    (row,) = [
        row for row in rows(paper, figure, results)
        if (row.panel, row.group, row.series) == (panel, group, series)
    ]  # fmt: skip
    return row


def test_every_run_is_of_a_design_that_the_engine_takes() -> None:
    paper = papers.load("stlt", "smoke")
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in paper.figures([*paper.order, *paper.on_request]).items():
            _, wrong = keys(figure.runs(paper), Path(folder))
            assert wrong == {}, name


@pytest.mark.parametrize("scale", ["paper", "quarter", "eighth", "scaled", "smoke"])
def test_tables_and_warm_up_go_with_the_keys(scale: str) -> None:
    paper: Any = papers.load("stlt", scale)
    common = module(paper, "common")
    case = common.Case("map", "STLT")
    run = common.run(paper, case)
    params = run.program.params
    share = 10_000_000 // paper.keys
    assert share == paper.fewer
    assert int(params["keys"]) * share == 10_000_000
    # 80 % of ten accesses a key.
    assert int(params["earlier"]) == 8 * int(params["keys"])
    with tempfile.TemporaryDirectory() as folder:
        config = native.resolve(run.machine, str(written(run.design, Path(folder))))["config"]
    assert config["shortcut"]["stlt"]["rows"] * share == 512 * MB // 16
    assert run.limits["requests"] == run.requests
    slb = common.run(paper, case.of(table="SLB")).program.params
    assert int(slb["shortcut_size"]) * share == 10 * 1024 * MB
    few = common.run(paper, case.of(table="SLB", megabytes=64, slb=common.SLB_SAME_ENTRIES))
    assert int(few.program.params["shortcut_size"]) * share == 160 * MB
    assert common.run(paper, case.base).program.params["shortcut"] == "none"


def test_a_scaled_machine_is_smaller_by_the_factor_of_the_keys() -> None:
    paper: Any = papers.load("stlt", "scaled")
    common = module(paper, "common")
    with tempfile.TemporaryDirectory() as folder:

        def config(case: Any) -> Any:
            run = common.run(paper, case)
            return native.resolve(run.machine, str(written(run.design, Path(folder))))["config"]

        case = common.Case("map", "STLT")
        whole, small, base = config(case.of(fewer=1)), config(case), config(case.base)
    for one in (small, base):
        entries = [c["mmu"]["l2"]["main"]["entries"] for c in (whole, one)]
        l3, l2 = ([c[a][b]["size_kb"] for c in (whole, one)]
                  for a, b in (("memory", "l3"), ("caches", "l2")))  # fmt: skip
        walk_caches = [c["mmu"]["walk_caches"]["entries"] for c in (whole, one)]
        for large, little in (entries, l3, l2, walk_caches):
            assert large == paper.fewer * little
        assert one["caches"]["l1d"] == whole["caches"]["l1d"]
        assert one["mmu"]["l1d"] == whole["mmu"]["l1d"]


def test_an_slb_of_huge_pages_takes_them_from_the_pool(invoke: Invoke, tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    status, _, err = invoke(
        "run", "--design", "radix", "--set", "os.hugetlb.pages_2mb=8", "--workload", "kv-hash",
        "--param", "keys=1000", "--param", "shortcut=slb", "--param", "shortcut_size=4MiB",
        "--param", "slb_pages=2MB", "--instructions", "50K", "--json", str(written),
    )  # fmt: skip
    assert status == 0, err
    stats = json.loads(written.read_text())["designs"][0]["stats"]
    pool = {s["name"]: s["value"] for s in stats if s["path"] == "os.hugetlb"}
    # Slots of a fifth of 4 MiB and logs of the rest: a page and two.
    assert pool["pages_2mb"] - pool["free_2mb"] == 3
    assert pool["refused"] == 0


def test_the_paper_s_numbers_stand_beside_ours(paper: Paper) -> None:
    of_11 = {(r.group, r.series): r.paper for r in rows(paper, "fig11", lambda _: FAILED)
             if not r.panel}  # fmt: skip
    assert of_11["zipf 64B", "STLT"] == 1.43
    assert of_11["latest 256B", "SLB"] == 1.04
    assert of_11["Mean", "STLT"] == 1.38
    bars = [v for (g, s), v in of_11.items() if s == "STLT" and g != "Mean" and v]
    assert sum(bars) / 9 == pytest.approx(1.38, abs=0.005)
    text = {(r.group, r.series): r.paper for r in rows(paper, "fig13", lambda _: FAILED)}
    assert text["hash tables", "STLT"] == 2.42
    assert text["trees", "STLT"] == 11.2
    # The text's numbers for STLT over SLB are ratios of its means.
    assert text["hash tables", "SLB"] * 1.423 == pytest.approx(2.42, abs=0.005)  # type: ignore[operator]
    assert text["trees", "SLB"] * 1.73 == pytest.approx(11.2, abs=0.05)  # type: ignore[operator]
    table = {(r.group, r.series): r.paper for r in rows(paper, "table5", lambda _: FAILED)}
    assert table["uniform", "STLT"] == 3.61
    for name, figure in paper.figures([*paper.order, *paper.on_request]).items():
        for row in figure.rows(paper, lambda _: FAILED):
            reason = row.by_construction or row.deviation or figure.deviation
            assert row.paper is None or reason, (name, row)


def test_bits_follow_from_the_buffers_of_the_model(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = found(paper, "table1", "Total", "")
    assert (total.value, total.paper) == (6694, 6694)
    assert found(paper, "table1", "Total", "bytes").value == 837
    assert total.status == "agrees by construction"
    sizes = native.shortcut_buffers()
    monkeypatch.setattr(native, "shortcut_buffers", lambda: {**sizes, "insertion_buffer": 16})
    assert found(paper, "table1", "Total", "").value == 6694 + 8 * 172


def test_uniform_requests_miss_keys_beyond_the_rows_of_their_set(paper: Paper) -> None:
    common, table5 = module(paper, "common"), module(paper, "table5")
    for load in (0.2, 1.19, 3.0):
        direct = (load - 1 + math.exp(-load)) / load
        assert common.conflicts(load * 1000, 1000, 1) == pytest.approx(direct)
    # Keys thrown into sets: those beyond four of each.
    draw, sets, number = random.Random(1), 20_000, 40_000
    held = [0] * sets
    for _ in range(number):
        held[draw.randrange(sets)] += 1
    beyond = sum(max(x - 4, 0) for x in held) / number
    assert common.conflicts(number, sets, 4) == pytest.approx(beyond, rel=0.05)
    # 10 million keys over 8,388,608 sets, and e^-8 of them without a request.
    assert table5.closed_form(512) == pytest.approx(0.81, abs=0.02)
    assert table5.closed_form(table5.of_misses(3.61)) == pytest.approx(3.61, abs=0.01)


def test_zipf_misses_keys_that_were_never_requested_and_those_without_room(paper: Paper) -> None:
    """The formulas agree with draws from the law that they sum, over fewer items."""
    common = module(paper, "common")
    assert common.zeta(1000) == pytest.approx(7.728953217284729, rel=1e-6)
    assert common.zeta(10_000_000) == pytest.approx(18.066242574968303, rel=1e-6)
    draw = random.Random(1)
    items, keys, requests, sets, ways = 200_000, 2_000, 16_000, 1_000, 2
    shares, total = [0.0] * keys, common.zeta(items)
    of_items = [(draw.randrange(keys), i**-0.99 / total) for i in range(1, items + 1)]
    for key, share in of_items:
        shares[key] += share
    new = sum(share * (1 - share) ** requests for share in shares)
    rows: list[list[float]] = [[] for _ in range(sets)]
    for share in shares:
        rows[draw.randrange(sets)].append(share)
    crowded = sum(sum(sorted(row)[:-ways]) for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "SCRAMBLED", items)
        assert common.never_requested_zipf(requests, keys) == pytest.approx(new, rel=0.1)
        assert common.crowded_out_zipf(keys, sets, ways) == pytest.approx(crowded, rel=0.1)
    new, every = module(paper, "table5").closed_form_zipf()
    assert new == pytest.approx(1.59, abs=0.01)
    assert every == pytest.approx(1.83, abs=0.02)


def test_latest_misses_the_first_get_of_each_key(paper: Paper) -> None:
    common = module(paper, "common")
    draw, loaded, sets, requests = random.Random(1), 1_000, 0.05, 40_000
    inserts = int(requests * sets)
    weights = [i**-0.99 for i in range(1, loaded + inserts + 1)]
    bounds: list[float] = []
    for weight in weights:
        bounds.append(weight + (bounds[-1] if bounds else 0.0))
    keys, seen, missed, gets = loaded, set(), 0, 0
    for number in range(requests + 20_000):
        if draw.random() < sets:
            keys += 1
            continue
        rank = bisect.bisect(bounds, draw.random() * bounds[min(keys, len(bounds)) - 1])
        key = keys - rank
        if number >= requests:
            gets += 1
            missed += key not in seen
        seen.add(key)
    expected = common.never_requested_latest(requests, loaded)
    assert missed / gets == pytest.approx(expected, rel=0.1)


def test_misses_of_a_table_in_software_follow_from_instructions(paper: Paper) -> None:
    """The misses come from programs whose misses, ways and SETs are known."""
    way, sets, driver = {"map": 700.0, "umap": 120.0}, {"map": 60.0, "umap": 25.0}, 100.0
    missed = {"none": 1.0, "stlt": 0.03, "slb": 0.07}

    def result(run: Run) -> Outcome:
        program = {"kv-map": "map", "kv-hash": "umap"}.get(run.program.workload, "umap")
        shortcut = run.program.params["shortcut"]
        table = {"none": 0.0, "stlt": 40.0, "slb": 90.0}[shortcut]
        executed = driver + table + sets[program] + missed[shortcut] * way[program]
        return outcome(
            instructions_per_request=executed, cycles_per_request=executed,
            stlt_loads=1000.0, stlt_hits=970.0,
        )  # fmt: skip

    for distribution in ("zipf", "latest", "uniform"):
        row = found(paper, "table5", distribution, "SLB", results=result)
        assert row.value == pytest.approx(7.0), distribution
        assert found(paper, "table5", distribution, "STLT", results=result).value == pytest.approx(
            3.0
        )


def test_speedups_are_of_cycles_a_request(paper: Paper) -> None:
    def result(run: Run) -> Outcome:
        return outcome(
            cycles_per_request={"none": 900.0, "slb": 450.0, "stlt": 300.0}.get(
                run.program.params["shortcut"], 900.0
            )
        )

    assert found(paper, "fig11", "uniform 128B", "STLT", results=result).value == 3
    assert found(paper, "fig11", "uniform 128B", "SLB", results=result).value == 2
    ahead = "workloads on which STLT is ahead of SLB"
    assert found(paper, "fig11", ahead, "", "text", results=result).value == 9
    differ = found(paper, "fig11", "value sizes differ by, zipf", "STLT", "text", results=result)
    assert (differ.value, differ.status) == (0, "agrees")
    assert found(paper, "fig19", "map", "STLT", results=result).value == 1.5
    broken = rows(paper, "fig11", lambda _run: FAILED)
    assert all(row.value is None for row in broken)
    assert broken[0].failed == "no luck"


def test_parts_of_a_request_are_a_whole(paper: Paper) -> None:
    cycles = {
        ("Perfect TLB", "none"): 500.0, ("Original", "none"): 620.0,
        ("STLT", "xxh3"): 400.0, ("STLT", "siphash"): 444.0, ("Perfect TLB, STLT", "xxh3"): 380.0,
    }  # fmt: skip

    def result(run: Run) -> Outcome:
        label = run.design.label.split(" 512")[0]
        return outcome(
            cycles_per_request=cycles[label, run.program.params.get("fast_hash", "none")]
        )

    parts = {r.part: r.value for r in rows(paper, "fig1", result) if r.part}
    assert sum(value for value in parts.values() if value is not None) == pytest.approx(100)
    assert parts["translation"] == pytest.approx(100 * 120 / 620)
    # 88 of SipHash's 133 instructions took 44 cycles.
    assert parts["hashing"] == pytest.approx(100 * 66.5 / 620)


def test_each_reading_changes_the_run(paper: Paper) -> None:
    readings, common = module(paper, "readings"), module(paper, "common")
    for reading in readings.READINGS:
        if reading == readings.AS_IS:
            continue
        one = common.run(paper, readings.case(paper, reading, "Redis", "zipf"))
        shipped = common.run(paper, readings.case(paper, readings.AS_IS, "Redis", "zipf"))
        assert one.identity != shipped.identity, reading


def test_each_part_of_a_request_of_redis_is_a_row(paper: Paper) -> None:
    requests, common = module(paper, "requests"), module(paper, "common")
    every = [common.run(paper, requests.case(r, 64)) for r in requests.READINGS.values()]
    assert len({run.identity for run in every}) == len(requests.PARTS) + 2
    last = every[-1].program.params["request"]
    assert set(last.split("+")) == {"search", *requests.PARTS}

    def result(run: Run) -> Outcome:
        is_last = run.program.params["request"] == last
        faster = 1.4 if is_last else 2.0
        saved = 0.3 if is_last else 0.6
        table = run.program.params["shortcut"] == "stlt"
        return outcome(
            cycles_per_request=1000 / faster if table else 1000,
            walks=10 * (1 - saved) if table else 10, requests=1,
        )  # fmt: skip

    fits = {r.group: r.value for r in rows(paper, "requests", result) if r.series == "fits"}
    assert fits == dict.fromkeys(list(requests.READINGS)[:-1], 0) | {"and arguments": 6}


def test_averages_with_all_keys_are_over_the_same_run_without_a_table(paper: Paper) -> None:
    whole, common = module(paper, "whole"), module(paper, "common")
    cases = [*whole.redis(), *whole.containers().values(), *whole.PARTS.values()]
    assert {common.run(paper, case).program.params["keys"] for case in cases} == {"10000000"}
    own, slb = (whole.containers()[table, "map", "zipf"] for table in (whole.STLT, whole.SLB))
    assert len({common.run(paper, case.base).identity for case in (own, slb)}) == 1
    assert {(case.distribution, case.value) for case in whole.redis()} == {
        ("zipf", 64), ("zipf", 128), ("zipf", 256), ("latest", 64), ("uniform", 64),
    }  # fmt: skip

    def result(run: Run) -> Outcome:
        shortcut = run.program.params["shortcut"]
        cycles = {"none": 1200, "slb": 800, "stlt-sw": 900, "stlt": 600}[shortcut]
        if "STLT-VA" in str(run.design):
            cycles = 750
        return outcome(cycles_per_request=cycles)

    found = {(r.panel, r.group, r.series): r for r in rows(paper, "whole", result)}
    for kind in ("hash tables", "trees", "Redis", "map"):
        assert found["text", kind, "STLT"].value == 2.0
        assert found["text", kind, "SLB"].value == 1.5
    # The paper's bars of the same five workloads.
    assert found["text", "Redis", "STLT"].paper == pytest.approx(1.406)
    assert found["parts", "map", "STLT-SW"].value == pytest.approx(800 / 900)
    assert found["text", "pairs of neighbours in the paper's order", ""].value == 15
