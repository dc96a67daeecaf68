"""Calibration: rules on curves of known form, the file, and the command from end to end."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke, output_of, refused
from pagewalk import native
from pagewalk.calibrate import benchmarks, command, findings, machine_file, rules, simulated
from pagewalk.calibrate.benchmarks import Benchmark
from pagewalk.calibrate.findings import Finding, Times
from pagewalk.calibrate.rules import NOISY, NOT_DETERMINED, SURE, Estimate
from pagewalk.config import machines
from pagewalk.config.config import parse
from pagewalk.engine_types import HostProcessor, Measured

Json = dict[str, Any]

ZEN3: HostProcessor = {
    "vendor": "AuthenticAMD",
    "name": "AMD EPYC 7763",
    "family": 0x19,
    "model": 1,
    "hypervisor": False,
    "caches": [
        {"level": 1, "size_kb": 32, "ways": 8, "leaf": "0x8000001d"},
        {"level": 2, "size_kb": 512, "ways": 8, "leaf": "0x8000001d"},
        {"level": 3, "size_kb": 32768, "ways": 16, "leaf": "0x8000001d"},
    ],
    "tlbs": [
        {"level": 1, "entries": 64, "ways": 64, "leaf": "0x80000005"},
        {"level": 2, "entries": 2048, "ways": 8, "leaf": "0x80000006"},
    ],
}


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_idle_time_is_not_moved_by_repetitions_that_other_load_has_delayed() -> None:
    quiet = [10.0, 10.1, 10.05, 10.02, 10.03, 10.01, 10.04, 10.06, 10.07, 10.08]
    disturbed = [*quiet[:6], 15.0, 30.0, 80.0, 12.0]
    assert rules.idle(quiet) == rules.idle(disturbed) == 10.01
    assert rules.of_samples(quiet).confidence == SURE
    assert rules.of_samples([10.0] * 5 + [11.9] * 6).confidence == NOISY
    assert rules.of_samples([10.0] * 3 + [20.0] * 8).confidence == NOT_DETERMINED


def test_the_least_time_counts_where_other_threads_empty_a_cache() -> None:
    least = rules.least_of([50.0, 500.0, 51.0, 520.0, 52.0, 510.0])
    assert (least.value, least.spread, least.confidence) == (50.0, (50.0, 52.0), SURE)
    assert rules.least_of([50.0, 500.0, 510.0]).confidence == NOT_DETERMINED


def test_a_plateau_is_the_median_of_its_points_and_tells_how_flat_it_is() -> None:
    points = [Estimate(value, (value, value), 0.0) for value in (45.0, 46.0, 48.0)]
    level = rules.plateau(points)
    assert level.value == 46.0
    assert level.residual == pytest.approx(2 / 46)
    sloped = [Estimate(value, (value, value), 0.0) for value in (30.0, 46.0, 90.0)]
    assert rules.plateau(sloped).confidence == NOT_DETERMINED


def test_a_step_lies_where_the_curve_passes_the_middle() -> None:
    sizes = [32, 48, 64, 72, 96]
    assert rules.step(sizes, [0, 0.2, 0.1, 5.0, 7.0], 0, 7) == (64, 72)
    for flat in ([0.0] * 5, [7.0] * 5):
        with pytest.raises(ValueError, match="no step"):
            rules.step(sizes, flat, 0, 7)


L3 = rules.Cache(32 << 20, 16, 16.0, 120.0)


def chase_of(footprint: int, rate: float) -> rules.Chase:
    """A chase pass after pass, first in an empty cache, while others fill the cache at `rate`."""
    ns = L3.miss
    for _ in range(400):
        fills = rate * (footprint / 64 * ns) / (L3.size / L3.ways)
        missed = rules.missed_under_fills(L3.ways * footprint / L3.size + fills, L3.ways)
        ns = L3.hit + missed * (L3.miss - L3.hit)
    return rules.Chase(footprint, ns)


def test_misses_under_fills_have_the_law_of_poisson() -> None:
    assert rules.missed_under_fills(1.0, 1) == pytest.approx(1 - math.exp(-1))
    assert rules.missed_under_fills(2.0, 2) == pytest.approx(1 - 3 * math.exp(-2))
    for missed in (0.05, 0.5, 0.95):
        mean = rules.fills_that_miss(missed, 16)
        assert rules.missed_under_fills(mean, 16) == pytest.approx(missed)


def test_the_rate_of_fills_is_found_from_chases_of_which_a_part_misses() -> None:
    sizes = [int(share * (1 << 20)) for share in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28)]
    for rate in (0.3, 0.5, 2.5):
        rates, least, most = rules.fill_rates([chase_of(size, rate) for size in sizes], L3)
        assert rates == pytest.approx([rate] * len(rates)) and rates
        assert least <= rate <= most
    for rate in (0.8, 1.0, 3.0, 10.0):
        rates, least, most = rules.fill_rates([chase_of(size, rate) for size in sizes], L3)
        assert rates == [] and least <= rate <= most < math.inf
    assert rules.fill_rates([rules.Chase(size, 16.0) for size in sizes], L3)[:2] == ([], 0.0)
    rates, least, most = rules.fill_rates([rules.Chase(size, 120.0) for size in sizes], L3)
    assert rates == [] and least > 0 and most == math.inf


def test_the_first_plateau_is_that_of_the_nearest_level() -> None:
    def at(*values: float) -> list[Estimate]:
        return [Estimate(value, (value, value), 0.0) for value in values]

    assert rules.first_plateau(at(20, 46, 47, 300, 301), 150).value == 46.5
    with pytest.raises(ValueError, match="no two footprints"):
        rules.first_plateau(at(20, 46, 90, 300, 301), 150)


def test_a_load_is_found_from_the_wait_that_it_causes() -> None:
    service = rules.Service(2.5, 30.0, 32, 204.8)
    # M/D/1 by hand: the bus at one half, the bank at 0.5 * 30 / (2.5 * 32).
    assert rules.waiting(0.5, service) == pytest.approx(1.25 + 0.1875 * 30 / (2 * 0.8125))
    for load in (0.05, 0.3, 0.7, 0.95):
        assert rules.load_of(rules.waiting(load, service), service) == pytest.approx(load)
    assert rules.concurrency(400, 20) == 20


GHZ = 3.0


def synthetic(noise: float = 0.0, rate: float = 0.4) -> tuple[benchmarks.Plan, Times]:
    """The times of a machine whose parameters are known, with repetitions delayed at random."""
    plan = benchmarks.plan(ZEN3, 1 << 30)
    draw = random.Random(1)

    def cycles(one: Benchmark) -> float:
        footprint = one.footprint
        if one.kind == "add":
            return 1.0
        if one.kind == "words":
            return 1.5
        if one.kind == "touch":
            # 700 ns for a fault, 0.1 ns for a byte.
            return GHZ * (700 / 512 + 409.6 if one.huge else 700 + 409.6)
        if one.kind == "gather":
            return 360.0 / 20
        hit = 4.0 if footprint <= 32 << 10 else 13.0 if footprint <= 512 << 10 else 48.0
        if one in plan.l3:
            hit = GHZ * chase_of(footprint, rate).ns if footprint < L3.size else 360.0
        if one == plan.dram:
            hit = 360.0
        pages = one.bytes // 4096
        if one.lines_per_page == 1:
            hit += 0 if pages <= 64 else 7.0 if pages <= 2048 else 60.0
        return hit / (4 if one.chains > 1 else 1)

    measured: dict[Benchmark, Measured] = {}
    for one in plan.all():
        value = cycles(one) / GHZ
        late = [value * (1 + noise * draw.random()) for _ in range(20)]
        measured[one] = {"ns": [value, value, value, *late], "unmap_ns": [], "huge_share": 1.0}
    return plan, Times(measured, plan.add)


def values(found: list[Finding]) -> dict[str, float | int | None]:
    return {one.key: one.value for one in found}


def test_each_benchmark_determines_its_own_keys() -> None:
    base = machine_file.load_base("epyc-milan")
    plan, times = synthetic()
    found = values(findings.find(plan, times, ZEN3, base))
    assert found["frequency_ghz"] == GHZ
    assert (found["caches.l1d.latency"], found["caches.l2.latency"]) == (4, 13)
    assert found["memory.l3.latency"] == 48
    assert (found["mmu.l1d.main.entries"], found["mmu.l2.main.entries"]) == (64, 2048)
    assert found["mmu.l2.main.latency"] == 7
    assert found["caches.l1d.mshrs"] == 20
    assert found["caches.l2.prefetcher.streamer.lookahead"] == 360 / (8 * 1.5)
    assert found["memory.background.l3_fill_gbs"] == pytest.approx(0.4, rel=0.02)
    assert found["memory.background.bandwidth_gbs"] is None
    assert found["os.prices.trap_ns"] == 700
    assert found["os.prices.zero_ns_per_byte"] == pytest.approx(0.1)
    # A walk of 60 cycles, and a load of 73 cycles in a quarter of the time: 12 chains are enough.
    assert found["mmu.walkers"] == round(60 / (73 / 4))
    noisy = values(findings.find(*synthetic(noise=3.0), ZEN3, base))
    assert noisy["caches.l2.latency"] is None
    none = values(findings.find(*synthetic(rate=1000.0), ZEN3, base))
    assert none["memory.l3.latency"] is None
    assert float(none["memory.background.l3_fill_gbs"] or 0) > 10
    little = findings.find(benchmarks.plan(ZEN3, 64 << 20), synthetic()[1], ZEN3, base)
    assert values(little)["memory.background.l3_fill_gbs"] is None
    whole = values(findings.find(*synthetic(rate=0.0), ZEN3, base))
    assert whole["memory.background.l3_fill_gbs"] == 0


def test_the_controller_takes_what_the_simulated_memory_leaves() -> None:
    finding = findings.controller(Estimate(360, (355, 365), 0), 3.0, 180)
    assert (finding.value, finding.confidence) == (60, SURE)
    assert findings.controller(Estimate(360, (355, 365), 0), 3.0, 500).value == 0


def test_the_file_is_a_machine_and_says_how_sure_each_key_is() -> None:
    base = machine_file.load_base("epyc-milan")
    plan, times = synthetic()
    found = findings.find(plan, times, ZEN3, base)
    text = machine_file.text("host", "epyc-milan", machine_file.merged(base, found), found, ZEN3)
    again = machine_file.text("host", "epyc-milan", machine_file.merged(base, found), found, ZEN3)
    assert text == again
    fields = parse(text)
    assert fields["memory"]["l3"]["latency"] == 48
    assert fields["core"] == base["core"]
    assert fields["calibrated"] == {
        "vendor": "AuthenticAMD", "family": 25, "model": 1, "hypervisor": False,
        "base": "epyc-milan",
    }  # fmt: skip
    assert "spread 48 to 48; residual 0.0 %; sure" in text
    assert "#   memory.background.bandwidth_gbs: DRAM in" in text
    path = machines.folder() / "host.toml"
    machine_file.write(path, text)
    assert pagewalk.machine("host").memory.l3.latency == 48


def test_a_simulated_order_is_that_of_the_native_loop() -> None:
    numpy = pytest.importorskip("numpy")
    order = benchmarks.order(benchmarks.local(64 << 10), numpy).astype(int)
    assert sorted(at // 256 for at in order) == list(range(1024)), "a line of each four"
    pages = (order // 4096).reshape(-1, 16)
    assert (pages == pages[:, :1]).all(), "page after page"
    assert (order % 4096 // 2048 == numpy.arange(1024) % 2).all(), "the halves in turn"
    dense = benchmarks.order(benchmarks.dense(64 << 10, huge=False), numpy)
    assert sorted(dense) == [64 * n for n in range(1024)]


def test_a_simulated_chase_costs_the_latencies_of_the_machine() -> None:
    chase = benchmarks.dense(16 << 10, huge=True)
    machine = native.DATA / "machines" / "epyc-milan.toml"
    assert simulated.cycles(chase, machine, "thp") == pytest.approx(4, abs=0.1)
    few, many = (simulated.cycles(benchmarks.of_pages(n), machine, "radix") for n in (32, 512))
    assert few == pytest.approx(4, abs=0.1)
    assert many - few == pytest.approx(8, abs=0.5)


def write_host(hypervisor: bool = False) -> Path:
    text = (native.DATA / "machines" / "epyc-milan.toml").read_text()
    text += f"\n[calibrated]\nhypervisor = {json.dumps(hypervisor)}\n"
    path = machines.folder() / "host.toml"
    machine_file.write(path, text.replace("rob = 256", "rob = 128"))
    return path


def run_small(invoke: Invoke, *more: str) -> tuple[Json, str]:
    status, out, err = invoke("run", *SMALL, "--json", "-", *more)
    assert status == 0
    result: Json = json.loads(out)
    return result, err


def said(invoke: Invoke, *more: str) -> str:
    return run_small(invoke, *more)[1]


def simulated_with(invoke: Invoke, *more: str) -> tuple[str, int]:
    """Name of the design, and entries of the reorder buffer, which distinguish the machines."""
    [design] = run_small(invoke, *more)[0]["designs"]
    return design["name"], design["config"]["core"]["rob"]


SMALL = ("--workload", "gups", "--size", "1MiB", "--instructions", "20K", "--warmup", "0")


def test_the_calibrated_machine_is_the_default_of_run_and_says_so(invoke: Invoke) -> None:
    assert "calibrated" not in said(invoke)
    path = write_host()
    assert f"note: the machine is {path}, as calibrated; --machine epyc-milan" in said(invoke)
    assert simulated_with(invoke) == ("radix", 128)
    assert simulated_with(invoke, "--machine", "epyc-milan") == ("radix", 256)
    assert "calibrated" not in said(invoke, "--machine", "epyc-milan")
    assert simulated_with(invoke, "--machine", "host") == ("radix", 128)
    assert "\nhost " in output_of(invoke, "machines")


def test_a_calibrated_virtual_machine_has_virtual_designs_by_default(invoke: Invoke) -> None:
    write_host(hypervisor=True)
    assert "and a virtual one: --design radix-virtual; --machine" in said(invoke)
    assert simulated_with(invoke) == ("radix-virtual", 128)
    assert simulated_with(invoke, "--design", "thp") == ("thp", 128)
    assert simulated_with(invoke, "--machine", "epyc-milan") == ("radix", 256)


def test_python_and_studies_keep_the_shipped_default() -> None:
    write_host()
    assert pagewalk.design("radix").core.rob == 256
    assert pagewalk.design("radix", machine="host").core.rob == 128


def test_the_command_measures_writes_and_simulates(invoke: Invoke, tmp_path: Path) -> None:
    out = output_of(
        invoke, "calibrate", "--quick", "--name", "mine", "--json", str(tmp_path / "found.json")
    )
    path = machines.folder() / "mine.toml"
    assert str(path) in out
    assert parse(path.read_text())["calibrated"]["base"] == "epyc-milan"
    found = json.loads((tmp_path / "found.json").read_text())
    keys = {one["key"]: one for one in found["findings"]}
    # Any processor of the last decades adds once a cycle, at 0.5 to 7 GHz.
    # A host that is too busy leaves it open.
    frequency = keys["frequency_ghz"]["value"]
    assert frequency is None or 0.5 < frequency < 7
    assert keys["memory.dram.ddr.controller_ns"]["value"] is None
    assert all(row["measured"] > 0 for row in found["rows"])
    assert sum(row["simulated"] is not None for row in found["rows"]) == len(found["rows"]) - 1
    assert not (machines.folder() / "host.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--base", "epyc-milam"], "did you mean 'epyc-milan'?"),
        (["--name", "epyc-milan"], "is shipped; expected another name"),
        (["--name", "a/b"], "cannot name a machine"),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(
    invoke: Invoke, arguments: list[str], says: str
) -> None:
    assert says in refused(invoke, "calibrate", *arguments)


def test_an_unwritable_folder_and_a_missing_proc_are_named(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert "make it writable, or set XDG_CONFIG_HOME" in refused(invoke, "calibrate", "--quick")
    monkeypatch.setattr(command, "MEMINFO", tmp_path / "meminfo")
    with pytest.raises(pagewalk.Failure, match="mount /proc"):
        command.available()
