"""Results of a study: files, means, tables of the terminal, and charts."""

from __future__ import annotations

import io
import json
import math
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import fake
import pagewalk
from pagewalk import native
from pagewalk.errors import Failure, UserError
from pagewalk.host import files
from pagewalk.runs.cache import Outcome
from pagewalk.studies import dataset as datasets
from pagewalk.studies.dataset import Dataset, Study
from pagewalk.studies.layout import RATES
from pagewalk.studies.plot import geometric, plot, read, specification
from pagewalk.studies.point import Column
from pagewalk.studies.show import show
from pagewalk.studies.summary import grouped, interval, student
from pagewalk.studies.table import Table, scaled
from pagewalk.view import charts
from sweeping import COLUMNS, ENTRIES, dataset, failed, finished, key, point, points, sampled
from terminals import WIDTHS, holds, shown


def filled(folder: Path, cycles: dict[str, float], **axes: Any) -> Path:
    """A finished study whose designs take so many cycles, or fail where that is 0."""
    planned = points(designs=list(cycles), **axes)
    with dataset(folder, planned) as study:
        for at in planned:
            taken = cycles[str(at.values["design"])]
            study.add(at, finished(at, taken) if taken else failed(at))
    return folder


def rows(folder: Path) -> pl.DataFrame:
    """The rows in the files of a study."""
    return pl.read_parquet(folder / "runs" / "*.parquet")


def of(frame: pl.DataFrame, **where: Any) -> dict[str, Any]:
    """The one row that is so."""
    (row,) = frame.filter(**where).iter_rows(named=True)
    return row


def test_a_run_is_a_row_with_types_and_units(tmp_path: Path) -> None:
    folder = filled(tmp_path, {"radix": 40e6, "ecpt": 32e6})
    table = rows(folder)
    assert table.schema["mmu.l2.main.entries"] == pl.Int64
    assert table.schema["design"] == pl.String
    assert {*native.metrics(1)} < {*table.columns}
    row = of(table, design="ecpt")
    assert (row["status"], row["why"], row["host_seconds"]) == ("complete", "", 1.5)
    assert row["key"] == key(point(design="ecpt"))
    assert (row["cycles"], row["ipc"], row["cycles_per_instruction"]) == (32e6, 0.625, 1.6)
    assert row["ipc_low"] is None
    about = json.loads(pl.read_parquet_metadata(folder / "runs" / "part-00001.parquet")["pagewalk"])
    assert about["units"]["ipc"] == about["units"]["ipc_high"] == "instructions/cycle"
    assert about["units"]["mmu.l2.main.entries"] == "entries"
    assert about["meanings"].keys() == about["units"].keys() == {*table.columns}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["model"], manifest["version"]) == (1, native.version())
    assert (manifest["seeds"], manifest["points"]) == ([1], 2)
    assert manifest["host"].keys() == {"cpu", "cores"}


def test_the_rest_of_a_result_is_in_long_form(tmp_path: Path) -> None:
    at = point()
    study = dataset(tmp_path, [at], details={"histograms", "intervals"})
    study.add(at, finished(at))
    study.close()
    statistics = Study(tmp_path).details()
    assert statistics.columns == ["key", "path", "name", "unit", "value"]
    assert of(statistics, path="core.0.mmu.l2_tlb", name="misses")["value"] == 1_225_000
    assert of(statistics, path="core.0.mmu", name="walk_latency.p99")["unit"] == "cycles"
    assert of(statistics, path="energy.dram", name="static")["value"] == 500.0
    assert of(statistics, path="cycle_stack", name="page walks")["value"] == 22e6
    buckets = Study(tmp_path).details("histograms")
    assert buckets["count"].to_list() == [600, 350, 40, 10]
    intervals = Study(tmp_path).details("intervals")
    assert intervals["complete"].to_list() == [True, True, False]
    assert intervals["l2_tlb_mpki"].to_list() == [61.0, 62.0, 333.0]
    assert {*statistics["key"], *buckets["key"], *intervals["key"]} == {key(at)}


def test_the_same_study_is_the_same_files(tmp_path: Path) -> None:
    made = [filled(tmp_path / name, {"radix": 4e7, "ecpt": 3e7}, seeds=[1, 2]) for name in "ab"]
    contents = [
        {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*.*"))}
        for folder in made
    ]
    assert contents[0] == contents[1]
    assert len(contents[0]) == 4  # with the lock


def test_parts_come_by_time_and_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    planned = points(seeds=range(1, 30), designs=["radix"])
    study = dataset(tmp_path, planned, clock=lambda: now[0])
    waits = []
    for at in planned:
        study.add(at, finished(at))
        now[0] += 2
    parts = datasets._parts(tmp_path / "runs")
    waits = [len(pl.read_parquet(path)) for _, path in parts]
    # Each five seconds at least, a tenth of the time when that is longer.
    assert waits[0] == 4
    assert all(later >= 3 for later in waits)
    study.close()
    assert rows(tmp_path)["seed"].sort().to_list() == list(range(1, 30))
    monkeypatch.setattr(datasets, "MOST_RUNS", 10)
    many = dataset(tmp_path / "many", planned, clock=lambda: 0.0)
    for at in planned:
        many.add(at, finished(at))
    assert [len(pl.read_parquet(path)) for _, path in datasets._parts(tmp_path / "many/runs")] == [
        10,
        10,
    ]
    many.close()


def test_parts_become_rarer(tmp_path: Path) -> None:
    now = [0.0]
    planned = points(seeds=range(1, 1001), designs=["radix"])
    with dataset(tmp_path, planned, clock=lambda: now[0]) as study:
        for at in planned:
            now[0] += 36
            study.add(at, finished(at))
    # Ten hours of a run each 36 seconds.
    assert 100 < len(datasets._parts(tmp_path / "runs")) < 200


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Writing a file fails whose path has one of these in it."""
    broken: list[str] = []
    write = files.write

    def fail(path: str, content: Any) -> None:
        if any(part in path for part in broken):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(files, "write", fail)
    yield broken


@pytest.mark.parametrize("place", ["runs/part-00002", "statistics/part-00002"])
def test_a_study_killed_between_two_files_can_be_continued(
    tmp_path: Path, breaking: list[str], place: str
) -> None:
    planned = points(seeds=[1, 2, 3])
    study = dataset(tmp_path, planned)
    for at in planned[:2]:
        study.add(at, finished(at))
    study.flush()
    breaking.append(place)
    study.add(planned[2], finished(planned[2]))
    with pytest.raises(KeyboardInterrupt):
        study.flush()
    assert len(rows(tmp_path)) == 2
    study._lock.close()
    breaking.clear()
    again = dataset(tmp_path, planned)
    assert again.there() == {key(at) for at in planned[:2]}
    assert again.has(key(planned[0]), planned[0])
    assert not again.has(key(planned[2]))
    for at in planned:
        again.add(at, finished(at))
    again.close()
    assert rows(tmp_path)["key"].sort().to_list() == sorted(map(key, planned))
    numbers = Study(tmp_path).details().filter(name="misses")["key"].sort().to_list()
    assert numbers == sorted(map(key, planned))


def test_a_failed_run_is_replaced_when_it_succeeds(tmp_path: Path) -> None:
    planned = points()
    with dataset(tmp_path, planned) as study:
        study.add(planned[0], finished(planned[0]))
        study.add(planned[1], failed(planned[1], "out of memory"))
    row = of(rows(tmp_path), design="ecpt")
    assert (row["status"], row["why"], row["ipc"]) == ("failed", "out of memory", None)
    with dataset(tmp_path, planned) as study:
        assert not study.has(key(planned[1]))
        study.add(planned[1], finished(planned[1], 20e6))
        study.add(planned[1], failed(planned[1]))  # the finished run is kept
        assert len(rows(tmp_path)) == 2
    table = rows(tmp_path)
    assert len(table) == 2
    assert of(table, design="ecpt")["speedup"] == 2.0


def test_a_design_that_ended_early_has_its_status_and_no_numbers(tmp_path: Path) -> None:
    at = point()
    early = finished(at, status="out_of_memory", message="no block of 128 MiB")
    with dataset(tmp_path, [at]) as study:
        study.add(at, early)
    row = of(rows(tmp_path))
    assert (row["status"], row["why"]) == ("out_of_memory", "no block of 128 MiB")
    assert row["cycles"] is None
    assert Study(tmp_path).details().is_empty()


def test_points_of_one_key_have_a_row_each_and_one_set_of_statistics(tmp_path: Path) -> None:
    planned = points(designs=["radix"], entries=[1024, 2048])
    with dataset(tmp_path, planned) as study:
        same = finished(planned[0])
        study.add(planned[0], same)
        assert not study.has(same.key, planned[1])
        study.add(planned[1], same)
        assert study.has(same.key, planned[1])
    assert rows(tmp_path)[ENTRIES].to_list() == [1024, 2048]
    assert len(Study(tmp_path).details().filter(name="misses")) == 1


def test_a_result_of_another_engine_takes_the_place(tmp_path: Path) -> None:
    planned = points()
    with dataset(tmp_path, planned) as study:
        for at in planned:
            study.add(at, finished(at))
    study = dataset(tmp_path, planned)
    assert study.has(key(planned[1]), planned[1])
    new = finished(planned[0], 80e6)
    study.add(planned[0], Outcome("another", new.data))
    study.flush()
    # Nobody sees the speedup over what has gone.
    assert rows(tmp_path)["speedup"].to_list() == [None, None]
    study.close()
    assert of(rows(tmp_path), design="ecpt")["speedup"] == 2.0


def test_speedups_are_of_one_case_and_not_there_too_early(tmp_path: Path) -> None:
    planned = points(seeds=[1, 2], workloads=["gups", "redis"])
    cycles = {("radix", 1): 40e6, ("ecpt", 1): 32e6, ("radix", 2): 60e6, ("ecpt", 2): 50e6}
    study = dataset(tmp_path, planned)
    for at in planned:
        values = at.values
        if (values["workload"], values["design"], values["seed"]) == ("redis", "radix", 1):
            study.add(at, failed(at))
        elif values["workload"] == "gups" or values["seed"] == 1:
            study.add(at, finished(at, cycles[str(values["design"]), int(str(values["seed"]))]))
    study.flush()
    assert rows(tmp_path)["speedup"].null_count() == len(rows(tmp_path)) == 6
    frame = study.frame()
    study.close()
    for table in (frame, rows(tmp_path)):
        assert of(table, workload="gups", design="ecpt", seed=1)["speedup"] == 1.25
        assert of(table, workload="gups", design="ecpt", seed=2)["speedup"] == pytest.approx(1.2)
        assert of(table, workload="gups", design="radix", seed=2)["speedup"] == 1.0
        # Its reference failed.
        assert of(table, workload="redis", design="ecpt", seed=1)["speedup"] is None


def test_speedups_are_over_the_first_of_the_plan_that_is(tmp_path: Path) -> None:
    filled(tmp_path, {"radix": 40e6, "ecpt": 32e6})
    study = dataset(tmp_path, points(designs=["ecpt", "radix"]))
    assert rows(tmp_path)["speedup"].to_list() == [None, None]
    study.close()
    assert of(rows(tmp_path), design="radix")["speedup"] == 0.8


def test_a_shortcut_makes_speedups_by_requests(tmp_path: Path) -> None:
    planned = points(designs=["radix", "stlt"])

    def by_requests(at: Any, cycles: float, requests: float, **changes: Any) -> Outcome:
        outcome = finished(at, cycles, **changes)
        assert outcome.data is not None
        summary = outcome.data["design"]["summary"]
        one = {"name": "cycles_per_request", "unit": "cycles/request", "meaning": ""}
        summary.append({**one, "value": cycles / requests})
        return outcome

    with dataset(tmp_path, planned) as study:
        study.add(planned[0], by_requests(planned[0], 40e6, 1000))
        shortcut: dict[str, Any] = {"shortcut": {"stlt": {}}}
        # Simulated apart, it says that it goes by instructions.
        study.add(planned[1], by_requests(planned[1], 40e6, 3000, config=shortcut))
    assert of(rows(tmp_path), design="stlt")["speedup"] == pytest.approx(3.0)
    assert of(rows(tmp_path), design="stlt")["speedup_by"] == "request"
    assert of(rows(tmp_path), design="radix")["speedup"] == 1.0


def test_speedups_of_mixes_are_the_geometric_mean_of_their_programs(tmp_path: Path) -> None:
    planned = points()

    def mixed(at: Any, *speeds: float) -> Outcome:
        programs = fake.mixed(["a", "b"], 1.0)["programs"]
        own = [{**one, "ipc": ipc} for one, ipc in zip(programs, speeds, strict=True)]
        return finished(at, programs=own)

    with dataset(tmp_path, planned) as study:
        study.add(planned[0], mixed(planned[0], 1.0, 0.5))
        study.add(planned[1], mixed(planned[1], 1.0, 2.0))
    assert of(rows(tmp_path), design="ecpt")["speedup"] == pytest.approx(2.0)
    assert of(rows(tmp_path), design="ecpt")["speedup_by"] == "program"


def test_the_interval_of_a_speedup_combines_those_of_its_samples(tmp_path: Path) -> None:
    planned = points(designs=["radix", "ecpt", "whole"])
    with dataset(tmp_path, planned) as study:
        study.add(planned[0], finished(planned[0], 40e6, sampling=sampled(0.5, 0.45, 0.55)))
        study.add(planned[1], finished(planned[1], 25e6, sampling=sampled(0.8, 0.76, 0.85)))
        study.add(planned[2], finished(planned[2], 20e6))
    table = rows(tmp_path)
    row = of(table, design="ecpt")
    assert (row["samples"], row["ipc_low"], row["ipc_high"]) == (30, 0.76, 0.85)
    assert row["speedup"] == pytest.approx(1.6)
    below = math.hypot(math.log(0.8 / 0.76), math.log(0.55 / 0.5))
    above = math.hypot(math.log(0.85 / 0.8), math.log(0.5 / 0.45))
    assert row["speedup_low"] == pytest.approx(1.6 * math.exp(-below))
    assert row["speedup_high"] == pytest.approx(1.6 * math.exp(above))
    alone = of(table, design="whole")
    assert alone["speedup_low"] == pytest.approx(2.0 * 0.5 / 0.55)
    assert alone["speedup_high"] == pytest.approx(2.0 * 0.5 / 0.45)
    assert of(table, design="radix")["speedup_low"] is None
    means = grouped(Study(tmp_path).frame(), ["design"], ["speedup", "ipc"], names())
    assert of(means, design="ecpt")["speedup_low"] == row["speedup_low"]
    assert of(means, design="ecpt")["distinguishable"] is True
    assert of(means, design="ecpt")["ipc_high"] == 0.85


def test_samples_have_the_intervals_that_the_table_has_columns_for() -> None:
    result = pagewalk.run(
        workload="gups", size="16MiB", instructions="200K", warmup="20K", sample="20K/50K"
    )
    sampling = result.designs[0].sampling
    assert sampling is not None
    assert {*sampling.metrics} <= {*RATES} <= {*native.metrics(1)}
    marked = {"cycles_per_request", "instructions_per_request"}
    assert {*RATES} - {*sampling.metrics} <= marked


def names() -> list[str]:
    return [column.name for column in COLUMNS]


def test_an_axis_keeps_its_name(tmp_path: Path) -> None:
    columns = [*COLUMNS, Column("instructions", "instructions", int, "How many are measured")]
    at = point(instructions=5)
    with Dataset(tmp_path, columns, [at], model=1) as study:
        study.add(at, finished(at))
    row = of(rows(tmp_path))
    assert (row["instructions"], row["measured_instructions"]) == (5, 20_000_000)
    with pytest.raises(UserError, match="an axis cannot be called 'status'"):
        Dataset(tmp_path, [Column("status", "", str, "")], [], model=1)


def test_other_studies_are_refused(tmp_path: Path) -> None:
    filled(tmp_path / "a", {"radix": 4e7})
    more = [*COLUMNS, Column("thp", "", bool, "Huge pages")]
    with pytest.raises(UserError, match=r"other columns \(it lacks thp\); name another folder"):
        Dataset(tmp_path / "a", more, [], model=1)
    with pytest.raises(UserError, match=r"another version of the model \(1, this is 2\)"):
        dataset(tmp_path / "a", [point()], model=2)
    with (
        dataset(tmp_path / "a", [point()]),
        pytest.raises(UserError, match="another 'pagewalk sweep' writes"),
    ):
        dataset(tmp_path / "a", [point()])
    with pytest.raises(UserError, match=r"'.*b' is no study: there is no manifest\.json"):
        Study(tmp_path / "b")
    (tmp_path / "a/manifest.json").write_text("[]")
    with pytest.raises(UserError, match="is not what a study writes"):
        dataset(tmp_path / "a", [point()])
    (tmp_path / "a/manifest.json").unlink()
    with pytest.raises(UserError, match=r"no manifest\.json beside them"):
        dataset(tmp_path / "a", [point()])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    filled(tmp_path, {"radix": 4e7})
    part = tmp_path / "runs/part-00001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    for use in (lambda: Study(tmp_path).frame(), lambda: dataset(tmp_path, [point()])):
        with pytest.raises(UserError, match=r"part-00001\.parquet' cannot be read.*remove it"):
            use()
    pl.DataFrame({"a": [1]}).write_parquet(part)
    with pytest.raises(UserError, match="has other columns"):
        Study(tmp_path).frame()
    part.unlink()
    # As it says: what is missing is filled in.
    with dataset(tmp_path, [point()]) as study:
        assert study.there() == set()
        study.add(point(), finished(point()))
    assert len(Study(tmp_path).details().filter(name="misses")) == 1


def test_a_study_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="could not make the folder"):
        dataset(tmp_path / "file/study", [point()])


def test_ten_thousand_runs_are_fast_and_small(tmp_path: Path) -> None:
    planned = points(
        designs=[f"d{i}" for i in range(10)],
        entries=[2**i for i in range(10)],
        seeds=range(1, 11),
        workloads=[f"w{i}" for i in range(10)],
    )
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with dataset(tmp_path, planned) as study:
        for at in planned:
            study.add(at, finished(at))
    frame = Study(tmp_path).frame()
    means = grouped(frame, ["workload", "design", ENTRIES], ["speedup", "ipc"], names())
    assert time.process_time() - start < 20  # two or three on an idle host
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
    assert (len(frame), len(means)) == (10_000, 1000)
    assert Study(tmp_path).missing(frame) == 0
    assert frame["workload"].unique(maintain_order=True).to_list() == [f"w{i}" for i in range(10)]


# Two-sided 95 % points of Student's t: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
@pytest.mark.parametrize(
    ("freedom", "point_of_t"),
    [
        *[(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228)],
        *[(19, 2.093), (29, 2.045), (30, 2.042), (60, 2.000), (100, 1.984)],
    ],
)
def test_students_t(freedom: int, point_of_t: float) -> None:
    assert round(student(freedom), 3) == point_of_t


def test_an_interval_by_hand() -> None:
    # Mean 12, deviation 2: 12 ± 4.303 * 2 / sqrt(3).
    mean, low, high = interval([10.0, 12.0, 14.0])
    assert mean == 12.0
    assert high - mean == pytest.approx(4.9683, abs=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_groups_are_over_seeds(tmp_path: Path) -> None:
    planned = points(seeds=[1, 2, 3])
    taken = {"radix": [40e6, 50e6, 60e6], "ecpt": [20e6, 25e6, 30e6]}
    with dataset(tmp_path, planned) as study:
        for at in planned:
            design, seed = str(at.values["design"]), int(str(at.values["seed"]))
            study.add(at, finished(at, taken[design][seed - 1]))
    frame = Study(tmp_path).frame()
    means = grouped(frame, ["design"], ["speedup", "cycles"], names())
    row = of(means, design="ecpt")
    assert (row["seeds"], row["runs"], row["failed"]) == (3, 3, 0)
    assert row["cycles"] == 25e6
    assert row["cycles_high"] - row["cycles"] == pytest.approx(4.3027 * 5e6 / 3**0.5, rel=1e-4)
    # Seed by seed it is twice as fast, however much seeds differ.
    assert row["speedup"] == pytest.approx(2.0)
    assert row["speedup_low"] == pytest.approx(2.0)
    assert row["distinguishable"] is True
    assert of(means, design="radix")["distinguishable"] is False


def test_speedups_are_averaged_as_logarithms(tmp_path: Path) -> None:
    planned = points(seeds=[1, 2])
    speedups = {1: 2.0, 2: 0.5}
    with dataset(tmp_path, planned) as study:
        for at in planned:
            own = speedups[int(str(at.values["seed"]))] if at.values["design"] == "ecpt" else 1.0
            study.add(at, finished(at, 40e6 / own))
    row = of(grouped(Study(tmp_path).frame(), ["design"], ["speedup"], names()), design="ecpt")
    assert row["speedup"] == pytest.approx(1.0)
    half = 12.7062 * math.log(2) * 2**0.5 / 2**0.5
    assert row["speedup_high"] == pytest.approx(math.exp(half), rel=1e-4)
    assert row["distinguishable"] is False


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    frame = Study(filled(tmp_path, {"radix": 4e7, "ecpt": 2e7})).frame()
    row = of(grouped(frame, ["design"], ["speedup", "ipc"], names()), design="ecpt")
    assert (row["speedup"], row["speedup_low"], row["distinguishable"]) == (2.0, None, None)
    assert row["ipc_low"] is None


def test_a_mean_over_an_axis_is_of_seeds_that_have_all_of_it(tmp_path: Path) -> None:
    planned = points(entries=[1024, 4096], seeds=[1, 2])
    with dataset(tmp_path, planned) as study:
        for at in planned:
            values = at.values
            if values == {**point(design="ecpt", seed=2, entries=4096).values}:
                study.add(at, failed(at))
                continue
            fast = values["design"] == "ecpt"
            study.add(at, finished(at, (10e6 if values[ENTRIES] == 4096 else 20e6) * (1 + fast)))
    means = grouped(Study(tmp_path).frame(), ["design"], ["cycles"], names())
    assert of(means, design="radix")["cycles"] == 15e6
    ecpt = of(means, design="ecpt")
    assert (ecpt["cycles"], ecpt["seeds"], ecpt["failed"]) == (30e6, 1, 1)


def test_means_over_other_things_are_not_compared(tmp_path: Path) -> None:
    planned = [*points(workloads=["gups", "redis"]), *points(entries=[4096])]
    with dataset(tmp_path, planned) as study:
        for at in planned:
            study.add(at, finished(at))
    means = grouped(Study(tmp_path).frame(), ["design", ENTRIES], ["cycles"], names())
    there = {row[ENTRIES]: row["cycles"] for row in means.iter_rows(named=True)}
    assert there == {1024: 40e6, 4096: None}
    out = io.StringIO()
    show(tmp_path, out, by=["workload", "design"])
    assert "–: where no seed has all of them" in out.getvalue()
    apart = [*points(workloads=["redis"]), *points(entries=[4096])]
    with dataset(tmp_path / "apart", apart) as study:
        for at in apart:
            study.add(at, finished(at))
    with pytest.raises(Failure, match=r"no seed has 'ipc' for all of mmu\.l2\.main\.entries"):
        plot(tmp_path / "apart", "workload", "ipc", out=str(tmp_path / "c.svg"))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, three designs, sizes of a TLB and seeds; a design fails, a run is missing."""
    folder = tmp_path_factory.mktemp("study")
    designs = ["radix", "ecpt", "mehpt-thp"]
    planned = points(designs, [512, 1024, 2048], [1, 2, 3], ["gups", "redis"])
    speeds = {"radix": 1.0, "ecpt": 1.25, "mehpt-thp": 1.5}
    with dataset(folder, planned) as made:
        for number, at in enumerate(planned[:-1]):
            design, entries = str(at.values["design"]), int(str(at.values[ENTRIES]))
            if design == "mehpt-thp" and at.values["workload"] == "redis":
                made.add(at, failed(at, "out of memory:\x1b[2J no [red]block"))
                continue
            noise = 1 + 0.003 * (number % 3)
            made.add(at, finished(at, 40e6 / speeds[design] * noise * (1 - entries / 8192)))
    return folder


SHOW = """
import sys
from pathlib import Path
from pagewalk.studies.show import show
show(Path(sys.argv[1]), sys.stdout, by=sys.argv[2:] or None)
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_is_shown(width: int, study: Path) -> None:
    status, text = shown(width, "-c", SHOW, study)
    assert status == 0
    table = Table.of(study)
    means = table.grouped(table.varying, ["speedup", "ipc"])
    assert len(means) == 2 * 3 * 3
    for row in means.iter_rows(named=True):
        for name in ("speedup", "speedup_low", "speedup_high", "ipc"):
            if row[name] is not None and (row["design"] != "radix" or name == "ipc"):
                places = 3
                assert holds(text, f"{row[name]:.{places}f}"), (row, name)
    flat = " ".join(text.split())
    for text_part in ("53 of 54 runs", "8 failed", "machine epyc-milan", "1 run is missing"):
        assert text_part in flat, text_part
    assert "8 runs: out of memory:\\x1b[2J no [red]block" in flat
    assert "speedup: over radix" in flat
    assert "entries: mmu.l2.main.entries" in flat


def test_a_table_marks_significant_speedups(study: Path) -> None:
    out = io.StringIO()
    show(study, out, metrics=["walks", "page_table_bytes"], by=["workload", "design"])
    text = out.getvalue()
    lines = {tuple(line.split()[:2]): line.split() for line in text.splitlines()}
    assert lines["gups", "ecpt"][2] == "1.250"
    assert "yes" in lines["gups", "ecpt"]
    assert "1.23" in lines["gups", "ecpt"]  # million walks
    assert "2.01" in lines["gups", "ecpt"]  # MiB
    assert lines["gups", "radix"][2:5] == ["1.000", "–", "–"]
    assert lines["redis", "mehpt-thp"][2] == "–"
    assert "means are over mmu.l2.main.entries, of speedups the geometric ones" in text


def test_a_running_study_is_shown(tmp_path: Path) -> None:
    planned = points(seeds=[1, 2])
    running = dataset(tmp_path, planned)
    out = io.StringIO()
    show(tmp_path, out)
    assert "0 of 4 runs" in out.getvalue()
    running.add(planned[0], finished(planned[0]))
    show(running, out)
    assert "1 of 4 runs" in out.getvalue()
    assert "3 runs are missing" in out.getvalue()
    running.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metrics": ["ipx"]}, "--metrics: no number 'ipx' in this study; did you mean 'ipc'?"),
        ({"by": ["desing"]}, "--by: no axis 'desing' in this study; did you mean 'design'?"),
        ({"by": ["seed"]}, "--by: means are over seeds"),
    ],
)
def test_an_invalid_table_is_refused(
    study: Path, arguments: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(UserError) as error:
        show(study, io.StringIO(), **arguments)
    assert str(error.value).startswith(message)


def layers(study: Path, *names: str | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A chart's layers by what they are marked with, and its marks."""
    x, y, by, facet = (*names, None, None)[:4]
    made = read(Table.of(study), str(x), str(y), by, facet)
    drawn = specification(made, charts.COLUMN)
    inner = drawn.get("spec", drawn)
    (data,) = drawn["datasets"].values()
    found = {layer["mark"]["type"]: layer for layer in inner["layer"]}
    return {**found, "whole": drawn}, data


def test_numbers_are_lines_with_intervals(study: Path) -> None:
    found, data = layers(study, ENTRIES, "speedup", None, "workload")
    assert len(data) == 3 * 3 * 2
    assert found["line"]["encoding"]["x"]["scale"]["type"] == "log"
    assert found["line"]["encoding"]["x"]["scale"]["base"] == 2
    assert found["line"]["encoding"]["x"]["axis"]["values"] == [512, 1024, 2048]
    assert found["line"]["encoding"]["x"]["title"] == "mmu.l2.main.entries"
    assert found["line"]["encoding"]["y"]["title"] == ["speedup over radix"]
    assert found["line"]["encoding"]["color"]["scale"]["domain"] == ["radix", "ecpt", "mehpt-thp"]
    assert found["whole"]["facet"]["sort"] == ["gups", "redis"]
    drawn = [row for row in data if row["low"] is not None]
    assert all(row["low"] <= row["value"] <= row["high"] for row in drawn)
    # A numeric axis places each mark exactly; its shape tells series apart.
    assert {row["x"] for row in data} == {512, 1024, 2048}
    svg = charts.svg(found["whole"])
    assert svg.count(">1024<") == 2  # one each plot


def test_values_of_a_text_axis_are_bars_and_failed_runs_are_marked(study: Path) -> None:
    found, data = layers(study, "workload", "ipc")
    assert len(data) == 2 * 3
    assert [row["failed"] for row in data if row["value"] is None] == [True]
    assert "✗" in found["text"]["mark"]["text"]
    assert found["bar"]["encoding"]["y"]["scale"]["domain"][0] == 0
    assert found["bar"]["encoding"]["y"]["title"] == ["IPC, instructions/cycle"]
    svg = charts.svg(found["whole"])
    assert len(re.findall(r'<path d="[^"]+" fill="#[0-9a-f]{6}" stroke="white"', svg)) == 5


def test_units_are_those_that_suit(study: Path) -> None:
    found, data = layers(study, "design", "page_table_bytes")
    assert found["bar"]["encoding"]["y"]["title"] == ["page table, MiB"]
    assert data[0]["value"] == pytest.approx(2_105_344 / 2**20)
    found, _ = layers(study, "design", "walks")
    assert found["bar"]["encoding"]["y"]["axis"]["format"] == ".3~s"
    assert scaled("nJ", [2.5e6]) == ("mJ", 1e6)
    unit, factor = scaled("s", [0.002])
    assert unit == "ms"
    assert factor == pytest.approx(1e-3)


def test_a_geometric_axis_has_a_constant_ratio() -> None:
    assert geometric([64, 128, 256])
    assert geometric([0.1, 1, 10, 100])
    assert not geometric([1, 2, 3])
    assert not geometric([0, 1, 2])
    assert not geometric([1, 2])


def test_charts_become_files(study: Path, tmp_path: Path) -> None:
    starts = {".svg": b"<svg", ".pdf": b"%PDF", ".png": b"\x89PNG", ".html": b"<!doctype html>"}
    for ending, start in starts.items():
        path = tmp_path / f"chart{ending}"
        plot(study, ENTRIES, "speedup", facet="workload", out=str(path))
        assert path.read_bytes().startswith(start)
    page = (tmp_path / "chart.html").read_text()
    assert "default-src 'none'" in page
    assert "speedup over radix by mmu.l2.main.entries" in page
    assert page.count("<tr><th scope=row>") == 18
    assert "1.250" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("entires", "ipc"), "--x: no axis 'entires' in this study"),
        (("design", "ipcc"), "--y: no number 'ipcc' in this study; did you mean 'ipc'?"),
        (("design", "ipc", "sead"), "--by: no axis 'sead'"),
        (("design", "ipc", "design"), "'design' is asked for twice"),
    ],
)
def test_an_invalid_plot_is_refused(study: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError) as error:
        plot(study, *arguments)
    assert str(error.value).startswith(message)


def test_charts_need_an_ending_and_numbers(study: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'c\.gif' does not say what to write"):
        plot(study, "design", "ipc", out="c.gif")
    with pytest.raises(Failure, match="no run of the study has 'cycles_per_request' yet"):
        plot(study, "design", "cycles_per_request", out=str(tmp_path / "c.svg"))
