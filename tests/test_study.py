"""The points of a study, their order, and the run of each."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagewalk import native
from pagewalk.config import options
from pagewalk.config.config import variant
from pagewalk.errors import UserError
from pagewalk.host import load
from pagewalk.runs.cache import Cache
from pagewalk.runs.plan import Run, keys
from pagewalk.studies.command import estimate
from pagewalk.studies.point import Point
from pagewalk.studies.study import Study, read, study

ENTRIES, WAYS, WALKERS = "mmu.l2.main.entries", "mmu.l2.main.ways", "mmu.walkers"


def made(**definition: Any) -> Study:
    """A study of gups, unless it says what runs."""
    if not definition.keys() & {"workload", "trace", "mix"}:
        definition["workload"] = "gups"
    return study(definition)


def points(**definition: Any) -> list[Point]:
    return made(**definition).points()


def runs(**definition: Any) -> list[Run]:
    return [point.run for point in points(**definition)]


def resolved(run: Run, folder: Path) -> dict[str, Any]:
    """The whole configuration of a run, as the engine has it."""
    path = folder / f"{run.design.label}.toml"
    path.write_text(run.design.text())
    return native.resolve(run.machine, str(path))["config"]


def test_a_point_has_every_given_value() -> None:
    (point,) = points(
        designs=["thp[mmu.walkers=1]"], size="1GiB", threads=2, params={"updates": 1000},
        set={"cores": 2}, skip="1K", warmup=0, instructions="2M", seed=7,
    )  # fmt: skip
    assert list(point.values.items()) == [
        ("machine", "epyc-milan"),
        ("design", "thp[mmu.walkers=1]"),
        ("workload", "gups"),
        ("size", 1 << 30),
        ("threads", 2),
        ("param.updates", 1000),
        ("cores", 2),
        ("skip", 1000),
        ("warmup", 0),
        ("instructions", 2_000_000),
        ("seed", 7),
    ]
    run = point.run
    assert run.program.source() == {
        "workload": {"name": "gups", "size": "1GiB", "threads": 2, "params": {"updates": "1000"}}
    }
    assert run.limits == {"skip": 1000, "warmup": 0, "instructions": 2_000_000, "roi": False}
    assert (run.machine, run.seed, run.design.base) == ("epyc-milan", 7, "thp")
    assert run.design.changes == {"mmu.walkers": 1, "cores": 2}


def test_missing_values_have_the_defaults_of_the_command_line() -> None:
    (point,) = points()
    size = next(one["default_size"] for one in native.workloads() if one["name"] == "gups")
    assert point.values == {
        "machine": options.DEFAULT_MACHINE,
        "design": "radix",
        "workload": "gups",
        "size": size,
        "warmup": options.DEFAULT_WARMUP,
        "instructions": options.DEFAULT_INSTRUCTIONS,
        "seed": 1,
    }
    # The program's own, which may go by its parameters.
    assert point.run.program.size is None
    assert (point.run.design.label, point.run.design.changes) == ("radix", {})


@pytest.mark.parametrize(
    ("definition", "limits"),
    [
        ({}, {"warmup": 10_000_000, "instructions": 100_000_000}),
        ({"instructions": "5M"}, {"instructions": 5_000_000}),
        ({"warmup": 5}, {"warmup": 5, "instructions": 100_000_000}),
        ({"requests": "1K"}, {"requests": 1000, "warmup": 10_000_000}),
        (
            {"requests": "1K", "warmup_requests": 5},
            {"requests": 1000, "warmup_requests": 5},
        ),
        ({"mix": "gups,bfs,gups"}, {"warmup": 30_000_000, "instructions": 100_000_000}),
    ],
)
def test_limits_are_the_same_fixed_and_varied(
    definition: dict[str, Any], limits: dict[str, int]
) -> None:
    """The limits are those of `with_an_end` for a single run of the command line."""
    whole = {"skip": 0, "warmup": 0, "instructions": None, "roi": False, **limits}
    if "requests" in limits:
        whole.setdefault("warmup_requests", 0)
    (fixed,) = runs(**definition)
    assert fixed.limits == whole
    columns = [column.name for column in made(**definition).columns]
    assert [name for name in limits if name not in columns] == []
    for name, value in definition.items():
        other = "bfs,gups,bfs" if name == "mix" else 123
        varied = runs(**{n: v for n, v in definition.items() if n != name},
                      workload=None if "mix" in definition else "gups",
                      vary={name: [value, other]})  # fmt: skip
        assert varied[0].limits == whole
        changed = {} if name == "mix" else {name: 123}
        assert varied[1].limits == {**whole, **changed}


def test_a_trace_runs_to_its_end(tmp_path: Path) -> None:
    for name in ("a.pwt", "b.pwt"):
        (tmp_path / name).touch()
    found = points(trace=f"{tmp_path}/*.pwt", warmup="1K")
    assert [point.values["trace"] for point in found] == [
        f"{tmp_path}/a.pwt",
        f"{tmp_path}/b.pwt",
    ]
    assert found[0].run.limits["instructions"] is None
    assert found[0].run.program.trace == (tmp_path / "a.pwt").resolve()
    assert "size" not in found[0].values


def test_each_mix_is_warmed_for_its_programs() -> None:
    found = points(mix=["gups,bfs", "gups:size=1GiB,gups,bfs"])
    assert [point.values["mix"] for point in found] == ["gups,bfs", "gups:size=1GiB,gups,bfs"]
    assert [point.run.warmup for point in found] == [20_000_000, 30_000_000]
    assert [point.values["warmup"] for point in found] == [20_000_000, 30_000_000]
    first, second = (point.run.program for point in found)
    assert second.source()["mix"]["programs"][0]["workload"]["size"] == "1GiB"
    assert len(points(mix="gups,bfs")) == 1
    gups, bfs = (runs(workload=name)[0].program.memory for name in ("gups", "bfs"))
    assert first.memory == gups + bfs


def test_every_part_of_a_run_can_be_an_axis(tmp_path: Path) -> None:
    found = runs(
        machine=[one["name"] for one in native.machines()][:2],
        designs=["radix", "thp"], workload=["gups", "sysbench"], seeds=2,
        vary=["size=64MiB,128MiB", "threads=1,2", "instructions=1K,2K", "warmup=1,2",
              f"{ENTRIES}=1024,2048"],
    )  # fmt: skip
    assert len({run.identity for run in found}) == len(found)
    sources = {(r.program.workload, r.program.size, r.program.threads) for r in found}
    assert len(sources) == 8
    assert {(r.instructions, r.warmup) for r in found} == {
        (1000, 1), (1000, 2), (2000, 1), (2000, 2),
    }  # fmt: skip
    assert {r.seed for r in found} == {1, 2}
    assert len({r.machine for r in found}) == 2
    run = next(r for r in found if r.design.changes == {ENTRIES: 2048})
    assert resolved(run, tmp_path)["mmu"]["l2"]["main"]["entries"] == 2048


@given(
    designs=st.integers(1, 3), seeds=st.integers(1, 4), first=st.integers(0, 1000),
    entries=st.lists(st.integers(1, 10**6), min_size=1, max_size=5, unique=True),
    zipped=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=50)
def test_a_product_has_as_many_points_as_its_axes_together(
    designs: int, seeds: int, first: int, entries: list[int], zipped: int
) -> None:
    names = ["radix", "thp", "radix[mmu.walkers=1]"][:designs]
    together = {"size": [f"{i + 1}MiB" for i in range(zipped)], "threads": [*range(1, zipped + 1)]}
    definition = {
        "designs": names, "seeds": seeds, "seed": first, "vary": {ENTRIES: entries},
        "zip": [together],
    }  # fmt: skip
    found = points(**definition)
    assert len(found) == math.prod([designs, seeds, len(entries), zipped])
    assert len({tuple(point.values.items()) for point in found}) == len(found)
    assert {point.values["seed"] for point in found} == set(range(first, first + seeds))
    for point in found:
        assert point.values["size"] == int(point.values["threads"] or 0) << 20
        assert point.run.program.threads == point.values["threads"]
        assert point.run.design.changes[ENTRIES] == point.values[ENTRIES]
        assert point.run.seed == point.values["seed"]
    assert [point.values for point in points(**definition)] == [point.values for point in found]


def test_the_order_is_that_of_the_axes() -> None:
    definition: dict[str, Any] = {
        "designs": ["thp", "radix"], "workload": ["gups", "bfs"], "seeds": 2,
        "vary": [f"{ENTRIES}=2048,1024", "size=2GiB,1GiB"],
    }  # fmt: skip
    first, again = points(**definition), points(**definition)
    assert [point.values for point in first] == [point.values for point in again]
    assert [point.run for point in first] == [point.run for point in again]
    assert list(dict.fromkeys(point.values["design"] for point in first)) == ["thp", "radix"]
    # The last axis goes fastest.
    for one, next_one in pairwise(first):
        if one.values["seed"] == 1:
            assert {**one.values, "seed": 2} == dict(next_one.values)
    assert [column.name for column in made(**definition).columns] == list(first[0].values)


def test_columns_have_units_and_kinds() -> None:
    columns = {
        column.name: column
        for column in made(
            workload="kv-hash",
            vary=[f"{ENTRIES}=1,2", "param.distribution=zipfian,uniform", "param.sets=0,5"],
            set={"frequency_ghz": 2, "mmu.perfect": False},
        ).columns
    }
    assert {name: (column.kind, column.unit) for name, column in columns.items()} == {
        "machine": (str, ""),
        "design": (str, ""),
        "workload": (str, ""),
        "size": (int, "bytes"),
        "param.distribution": (str, ""),
        "param.sets": (int, "%"),
        "frequency_ghz": (float, columns["frequency_ghz"].unit),
        ENTRIES: (int, "entries"),
        "mmu.perfect": (bool, ""),
        "warmup": (int, "instructions"),
        "instructions": (int, "instructions"),
        "seed": (int, ""),
    }


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("size >= 2147483648", 4),
        ("size >= 2147483648 or design = 'radix'", 6),
        (f"{ENTRIES} = 1024", 4),
        (f"\"{ENTRIES}\" = 1024 AND workload = 'gups'", 4),
        (f"{ENTRIES} * 1048576 = size", 4),
        ("design = 'radix' and not (size = 1073741824 and mmu.l2.main.entries = 2048)", 3),
        ("design like 'thp%'", 4),
        ("design = 'thp[mmu.l2.main.ways=8]'", 4),
        ("design in ('radix') and seed between 1 and 3", 4),
    ],
)
def test_a_condition_leaves_points_out(where: str, kept: int) -> None:
    found = points(
        designs=["radix", "thp[mmu.l2.main.ways=8]"],
        vary=["size=1GiB,2GiB", f"{ENTRIES}=1024,2048"],
        where=where,
    )
    assert len(found) == kept


def test_a_condition_leaves_texts_as_they_are() -> None:
    """Also those that hold the name of a column."""
    name = "radix[mmu.l2.main.ways=8]"
    found = points(designs=["radix", name], set={WAYS: 4}, vary=[f"{WALKERS}=1,2"],
                   where=f"design = '{name}' and {WAYS} = 8")  # fmt: skip
    assert [point.values[WALKERS] for point in found] == [1, 2]
    assert {point.values["design"] for point in found} == {name}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("true", "where: 'true' names no column; expected a condition over machine, design, "),
        ("1 = 1", "where: '1 = 1' names no column; expected a condition over machine, design, "),
        ("size", "where: 'size' is no condition; expected one as workload = 'gups'"),
        ("max(size) = 1", "where: 'max(size) = 1' is no condition; expected one as workload"),
        ("size > 9e15", "where: 'size > 9e15' leaves no point; expected some to stay"),
        ("size >", "where: 'size >' is no condition over machine, design, workload, size, "),
        ("cores = 2", "where: 'cores = 2' is no condition over machine, design, workload, size, "),
        ("size = 1; drop", "where: 'size = 1; drop' is no condition over machine, design, "),
        ("size = 'x", 'where: "size = \'x" is no condition over machine, design, workload, size'),
        (3, "where: 3 is no text; expected a condition in SQL, as size >= 1073741824"),
    ],
)
def test_a_condition_that_is_none(where: object, said: str) -> None:
    with pytest.raises(UserError) as error:
        points(vary=["size=1GiB,2GiB"], where=where)
    assert str(error.value).startswith(said)


def test_a_program_may_be_sized_by_a_parameter(tmp_path: Path) -> None:
    """The engine refuses a size beside it, so that none is given."""
    found = points(workload="bfs", vary=["param.scale=12..14+1"])
    assert [point.run.program.source()["workload"] for point in found] == [
        {"name": "bfs", "size": None, "threads": 1, "params": {"scale": scale}}
        for scale in ("12", "13", "14")
    ]
    assert {point.values["size"] for point in found} == {None}
    assert len({point.run.program.memory for point in found}) == 3
    for point in found:
        spec = {
            "source": point.run.program.source(), "machine": point.run.machine,
            "designs": ["radix"], "seed": 1, "host_threads": 1,
            "limits": {"instructions": 1000, "warmup": 0, "skip": 0, "roi": False, "sample": None},
        }  # fmt: skip
        assert native.run(spec)["designs"][0]["status"] == "complete"


def test_a_design_has_a_name_of_its_own_for_its_changes() -> None:
    found = runs(designs=["radix", "thp"], vary=[f"{ENTRIES}=1024,2048", f"{WALKERS}=1,2"])
    labels = {run.design.label for run in found}
    assert len(labels) == len(found) == 8
    assert {label[:-9] for label in labels} == {"radix", "thp"}
    # The same changes, however they were said.
    (one,) = runs(designs=[f"radix[{WALKERS}=1,{ENTRIES}=1024]"])
    (other,) = runs(set={ENTRIES: 1024, WALKERS: 1})
    assert one.design.label == other.design.label in labels
    assert one.identity == other.identity


def test_design_files_of_the_same_name_get_different_labels(tmp_path: Path) -> None:
    shipped = native.DATA / "designs"
    paths = []
    for folder, base in (("a", "radix"), ("b", "thp")):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "mine.toml")
        paths[-1].write_text((shipped / f"{base}.toml").read_text())
    first, second = runs(designs=[str(path) for path in paths])
    assert first.design.label == "mine"
    assert second.design.label.startswith("mine-")
    found, wrong = keys([first, second], tmp_path)
    assert wrong == {}
    assert len(set(found.values())) == 2


def test_a_key_in_a_design_overrides_a_setting_for_all(tmp_path: Path) -> None:
    """The same as on the command line; the column has the effective value."""
    found = points(designs=["radix", f"radix[{WALKERS}=1]"], set={WALKERS: 4})
    assert [point.values[WALKERS] for point in found] == [4, 1]
    walkers = [resolved(point.run, tmp_path)["mmu"]["walkers"] for point in found]
    assert walkers == [4, 1]


@pytest.mark.parametrize(
    ("key", "value", "table", "found"),
    [
        ("placement", {"thp": {}}, "placement", ["thp"]),
        ("page_table", {"radix": {"levels": 5}}, "page_table", ["radix"]),
    ],
)
def test_a_table_of_settings_is_set(
    key: str, value: object, table: str, found: list[str], tmp_path: Path
) -> None:
    (fixed,) = runs(set={key: value})
    (varied, _) = runs(vary={key: [value, {"radix" if key == "page_table" else "buddy": {}}]})
    for run in (fixed, varied):
        assert list(resolved(run, tmp_path)[table]) == found
    assert resolved(fixed, tmp_path) == resolved(varied, tmp_path)


def test_ten_thousand_points_share_equal_programs_and_designs() -> None:
    found = points(
        designs=["radix", "thp"], seeds=5, vary=["size=1MiB..100MiB+1MiB", f"{ENTRIES}=1..10+1"]
    )
    assert len(found) == 10_000
    assert len({id(point.run.program) for point in found}) == 100
    assert len({id(point.run.design) for point in found}) == 20


def test_an_estimate_has_the_runs_time_and_memory_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([0.5, 1.0, 1.0])
    monkeypatch.setattr(load, "cpu_share", lambda _: next(left))
    cache = Cache(tmp_path / "cache")
    # Two spellings of one configuration are one run; one that cannot be is not there.
    walkers = resolved(runs()[0], tmp_path)["mmu"]["walkers"]
    definition = made(
        designs=["radix", f"radix[{WALKERS}={walkers}]"], size="16MiB", vary=["cores=0,1"]
    )
    plan = estimate(definition, cache, 2)
    assert (plan.points, plan.runs, plan.missing, len(plan.wrong)) == (4, 3, 1, 2)
    out = io.StringIO()
    plan.show(out)
    assert "of which 0 are there" in out.getvalue()
    assert "cannot run: " in out.getvalue()
    again = estimate(definition, cache, 1)
    # One run takes as long on one core as on two, but now no other load takes half of it.
    assert again.seconds == plan.seconds / 2
    larger = estimate(made(designs=["radix"], size="64GiB", instructions="1G"), cache, 1)
    assert larger.memory > plan.memory
    assert larger.seconds > plan.seconds


def test_samples_are_of_a_precision() -> None:
    (run,) = runs(precision="2%")
    assert run.precision == 0.02
    assert runs(precision=0.5)[0].precision == 0.5


def test_roi_is_off_by_default() -> None:
    assert [run.limits["roi"] for run in (*runs(), *runs(roi=True))] == [False, True]


EVERYTHING = """
designs = ["radix", "thp"]
machine = ["epyc-milan"]
workload = ["gups", "bfs"]
instructions = "100M"
seeds = 3
seed = 5
where = "size >= 2147483648 or design = 'radix'"
precision = "2%"

[set]
cores = 2
mmu.nested_tlb.entries = 64

[params]
populate = "yes"

[vary]
"mmu.l2.main.replacement" = "lru,srrip"
size = ["1GiB", "2GiB"]

[[zip]]
"mmu.l2.main.entries" = [1024, 2048]
"mmu.l2.main.ways" = "8,16"

[cluster]
where = "slurm:queue=long"
jobs = 4
"""


def test_a_study_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(EVERYTHING)
    whole = read(file)
    assert (whole.cluster, whole.jobs, whole.precision) == ("slurm:queue=long", 4, 0.02)
    found = whole.points()
    # Two designs, programs, policies, sizes and zipped steps, and three seeds.
    assert len(found) == 2**5 * 3 - 2 * 2 * 2 * 3
    assert {point.values["seed"] for point in found} == {5, 6, 7}
    assert list(found[0].values.items()) == [
        ("machine", "epyc-milan"),
        ("design", "radix"),
        ("workload", "gups"),
        ("size", 1 << 30),
        ("param.populate", "yes"),
        ("cores", 2),
        ("mmu.l2.main.entries", 1024),
        ("mmu.l2.main.replacement", "lru"),
        ("mmu.l2.main.ways", 8),
        ("mmu.nested_tlb.entries", 64),
        ("instructions", 100_000_000),
        ("seed", 5),
    ]
    zipped = {(point.values[ENTRIES], point.values[WAYS]) for point in found}
    assert zipped == {(1024, 8), (2048, 16)}
    again = made(
        designs="radix,thp", machine="epyc-milan", workload="gups,bfs", instructions=10**8,
        seeds=3, seed=5, where=whole.where, precision="2%",
        set={"cores": "2", "mmu.nested_tlb.entries": "64"}, params={"populate": "yes"},
        vary=["mmu.l2.main.replacement=lru,srrip", "size=1GiB,2GiB",
              f"{ENTRIES}=1024,2048;{WAYS}=8,16"],
    )  # fmt: skip
    assert again.points() == found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('"bfs"]', '"bsf"]'), ": there is no program 'bsf'; did you mean 'bfs'?"),
        (
            ('"thp"]', '"htp"]'),
            "2: designs: there is no design 'htp'; did you mean 'thp'?; 'pagewalk designs' lists",
        ),
        (
            ("epyc-milan", "epyc-milano"),
            "3: machine: there is no machine 'epyc-milano'; did you mean 'epyc-milan'?",
        ),
        (('"thp"]', '"./mine.toml"]'), "2: designs: there is no file './mine.toml'; check the"),
        (
            ('"thp"]', '"thp[mmu.wlkers=1]"]'),
            "2: designs: 'thp[mmu.wlkers=1]': there is no key 'mmu.wlkers' of the configuration; "
            "did you mean 'mmu.walkers'?",
        ),
        (
            ('"thp"]', '"thp[mmu.l2.main.ways=1]"]'),
            "2: designs: 'thp[mmu.l2.main.ways=1]' says mmu.l2.main.ways, which varies; expected",
        ),
        (('"thp"]', "3]"), "2: designs: 3 is no name; expected a text"),
        (("designs =", "desings ="), "2: desings: is nothing that a study says; did you mean"),
        (('"100M"', '"much"'), "5: instructions: 'much' is not understood; expected a count"),
        (("seeds = 3", "seeds = 0"), "6: seeds: 0 is not possible; expected 1 or more"),
        (("seed = 5", "seed = -5"), "7: seed: '-5' is not understood; expected a count"),
        (("size >=", "sise >="), "8: where: "),
        (('"2%"', '"200%"'), "9: precision: '200%' is not understood; expected a share"),
        (("cores = 2", "cores = 2.5"), "12: set.cores: 2.5 is not possible; expected a whole"),
        (("cores =", "coers ="), "12: set.coers: is nothing that a study can vary; expected "),
        (("populate", "populaet"), "16: params.populaet: is no parameter of any program; did you"),
        (("lru,srrip", "lru,sripp"), "19: vary.mmu.l2.main.replacement: 'sripp' is not possible"),
        (('["1GiB", "2GiB"]', '"1..2"'), "20: vary.size: '1..2' is no range; expected FIRST..LAST"),
        (("1024, 2048", "1024"), "22: zip: what steps together needs as many values each, and "),
        (("[vary]", "[veyr]"), "18: veyr: is nothing that a study says; did you mean"),
        (("[[zip]]", "[zip]"), "22: zip: "),
        (("[cluster]", "[cluster]\nwalltime = 3"), "27: cluster.walltime: is unknown; expected"),
        (("jobs = 4", "jobs = 0"), "28: cluster.jobs: 0 is not possible; expected 1 or more"),
        (('where = "slurm:queue=long"', "where = 3"), "27: cluster.where: 3 is no text; expected"),
        (("seeds = 3", "size = 4096\nseeds = 3"), "6: size: is said twice; expected it once"),
        (("seed = 5", "roi = 1"), "7: roi: 1 is not understood; expected true or false"),
        (("[set]", "[set"), ": is not TOML: "),
    ],
)
def test_a_mistake_in_a_file_says_where_it_is(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    assert EVERYTHING.count(change[0]) == 1
    file.write_text(EVERYTHING.replace(*change))
    with pytest.raises(UserError) as error:
        read(file).points()
    assert str(error.value).removeprefix(f"{file}:").lstrip().startswith(said.lstrip(": "))


def test_a_mistake_of_an_option_is_not_the_files(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text('workload = "gups"\n')
    with pytest.raises(UserError, match=r"^--vary: mmu\.wlkers: is nothing"):
        study({"workload": "gups", "vary": ["mmu.wlkers=1"]}, str(file))


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (
            {"workload": None},
            "what to run: expected exactly one of workload, trace, mix, found none; "
            "'pagewalk workloads' lists the built-in programs",
        ),
        (
            {"mix": "gups,bfs"},
            "what to run: expected exactly one of workload, trace, mix, found workload and mix; "
            "'pagewalk workloads' lists the built-in programs",
        ),
        (
            {"workload": None, "mix": "gups,bfs", "size": "1GiB"},
            "size belongs to a built-in program; add a workload or drop it",
        ),
        (
            {"workload": "gups,bfs", "params": {"scale": 12}},
            "param.scale: the program 'gups' has no such parameter; it has updates, variant, "
            "chunk, first, populate, region; give programs that have it a study of their own",
        ),
        (
            {"workload": "bfs", "params": {"scale": 12}, "size": "1GiB"},
            "param.scale: says how large 'bfs' is, and so does size; expected one of them",
        ),
        (
            {"precision": "2%", "requests": 5},
            "precision: samples are of instructions of one program; expected no requests and no "
            "mix beside it",
        ),
        (
            {"precision": "2%", "workload": None, "mix": "gups,bfs"},
            "precision: samples are of instructions of one program; expected no requests and no "
            "mix beside it",
        ),
        (
            {"precision": "2%:ipc"},
            "precision: '2%:ipc' names metrics; here it is of IPC and L2 TLB MPKI; expected a "
            "share alone, as 2%",
        ),
        (
            {"vary": [f"{ENTRIES}=1..2000+1", "seed=1..2000+1"]},
            "the study has 4000000 points; expected 1000000 at most: vary less",
        ),
        ({"vary": ["size=1GiB", "size=2GiB"]}, "size: is said twice; expected it once"),
        ({"seeds": 2, "vary": ["seed=1,2"]}, "seed: is said twice; expected it once"),
        ({"vary": 3}, "vary: 3 is no table; expected names with their values"),
        ({"vary": [3]}, "vary: [3] is no table; expected names with their values"),
        ({"zip": [3]}, "zip: [3] is no list of tables; expected [[zip]] of names"),
        ({"params": 3}, "params: 3 is no table; expected names with values"),
        ({"designs": []}, "designs: has no value; expected one or more, as design=A,B"),
        ({"trace": "/no/such.pwt", "workload": None}, "trace: there is no file '/no/such.pwt'; "
         "check the name"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence(definition: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        points(**{"workload": "gups", **definition})
    assert str(error.value) == said


def test_every_shipped_design_and_machine_is_known() -> None:
    names = [one["name"] for one in native.designs()]
    assert all(variant(name) == (name, "") for name in names)
    found = runs(designs=names, machine=[one["name"] for one in native.machines()])
    assert {run.design.label for run in found} == set(names)
