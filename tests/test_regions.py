"""Regions that stand for a whole trace: how they are found, written, read and run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fake
import pagewalk
from invoking import Invoke, output_of, refused
from pagewalk import native, regions
from pagewalk.errors import UserError
from pagewalk.programs import kmeans
from pagewalk.result import Result
from terminals import shown

CHURN = "--workload churn --size 8MiB --param rounds=3 --param reads=200".split()
"""Fills memory with one loop, and reads it with another, three times."""


@pytest.fixture(scope="module")
def churn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "churn.pwt"
    words = [sys.executable, "-m", "pagewalk", "record", *CHURN, "-o", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path


def phases(centres: int, each: int, noise: float, seed: int = 3) -> Any:
    """Vectors of stretches that go through so many phases in turn."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-0.5, 0.5, (centres, 15))
    return np.tile(places, (each, 1)) + rng.normal(0, noise, (centres * each, 15))


@pytest.mark.parametrize("noise", [0, 1e-9, 1e-4, 0.01])
@pytest.mark.parametrize("number", [1, 2, 3, 7, 12])
def test_as_many_clusters_as_phases_are_found(number: int, noise: float) -> None:
    vectors = phases(number, 40, noise)
    found = kmeans.find(vectors, 20, 1)
    assert found.number == number
    # Those of a phase are together.
    assert all(len({*found.labels[n::number]}) == 1 for n in range(number))
    assert found.spread == found.spreads[number - 1] <= found.spreads[0]
    assert len(found.spreads) == 20


def test_the_spread_within_clusters_falls_with_their_number() -> None:
    vectors = np.random.default_rng(5).normal(0, 0.1, (400, 15))
    spreads = kmeans.find(vectors, 12, 1).spreads
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] > 0


def test_a_seed_gives_one_answer() -> None:
    vectors = np.random.default_rng(6).normal(0, 0.1, (200, 15))
    one, same, other = (kmeans.find(vectors, 9, seed) for seed in (1, 1, 2))
    assert one.labels.tolist() == same.labels.tolist()
    assert one.spreads == same.spreads
    assert one.spreads != other.spreads


def test_few_stretches_have_few_clusters() -> None:
    for count, most in ((1, 1), (2, 1), (3, 2), (9, 5)):
        vectors = phases(count, 1, 0)
        assert kmeans.find(vectors, 30, 1).number <= most


def test_a_spread_is_the_share_of_instructions_in_other_blocks() -> None:
    """The spread is x if stretches have x of their instructions in a block of their own."""
    rng = np.random.default_rng(7)
    rows = rng.uniform(-1, 1, (2001, 15))
    shares = np.zeros((2000, 2001))
    shares[:, 0] = 0.9
    shares[np.arange(2000), np.arange(1, 2001)] = 0.1
    found = kmeans.find(shares @ rows, 1, 1)
    # No other stretch has the block, so one of the two shares that change by x counts.
    assert found.spread * 2**0.5 == pytest.approx(0.1, rel=0.05)


def test_the_phases_of_a_program_are_found(churn: Path, tmp_path: Path, invoke: Invoke) -> None:
    out = tmp_path / "regions.toml"
    prefix = tmp_path / "s"
    words = ("trace", "regions", str(churn), "--length", "10K", "-o", str(out))
    text = output_of(invoke, *words, "--simpoint", str(prefix))
    found = regions.read(out)
    assert (found.trace, found.length, found.seed) == ("churn.pwt", 10_000, 1)
    assert found.instructions == native.trace_info(str(churn))["instructions"]
    assert sum(r.weight for r in found.regions) == pytest.approx(1, abs=1e-12)
    total = found.instructions or 0
    assert sum(r.stretches or 0 for r in found.regions) == total // 10_000
    assert all(r.instructions == 10_000 and r.at % 10_000 == 0 for r in found.regions)
    assert found.spread is not None and found.spread_of_all is not None
    assert found.spread < 0.01 < found.spread_of_all
    for region in found.regions:
        assert f"{region.at:,}" in text
    assert f"pagewalk run --trace {churn} --sample" in text

    points = [line.split() for line in (tmp_path / "s.simpoints").read_text().splitlines()]
    weights = [line.split() for line in (tmp_path / "s.weights").read_text().splitlines()]
    assert [(int(at) * 10_000, n) for at, n in points] == [
        (r.at, str(i)) for i, r in enumerate(found.regions)
    ]
    assert [(float(w), n) for w, n in weights] == [
        (r.weight, str(i)) for i, r in enumerate(found.regions)
    ]
    # Nothing else is left there, and the same words write the same file.
    assert {p.name for p in tmp_path.iterdir()} == {"regions.toml", "s.simpoints", "s.weights"}
    again = tmp_path / "again.toml"
    output_of(invoke, *words[:-1], str(again))
    assert again.read_bytes() == out.read_bytes()
    other = output_of(invoke, *words[:-2], "--seed", "2")
    assert other != text


def test_two_regions_are_of_the_two_loops_of_a_program(churn: Path, tmp_path: Path) -> None:
    found = regions.find(str(churn), length=10_000, max_regions=2, seed=1)
    assert found is not None
    # Stores are of the loop that fills, which comes first; each round has both.
    cut = tmp_path / "cut.pwt"
    words = [sys.executable, "-m", "pagewalk", "record", *CHURN]
    subprocess.run(
        [*words, "-o", str(cut), "--instructions", "2M"], check=True, capture_output=True
    )
    whole, first = (native.trace_info(str(path)) for path in (churn, cut))
    fills = first["instructions"] / first["stores"] * whole["stores"] / whole["instructions"]
    by_weight = sorted(found.regions.regions, key=lambda region: region.weight)
    assert [r.weight for r in by_weight] == pytest.approx([fills, 1 - fills], abs=0.01)
    assert by_weight[0].at < by_weight[1].at


def test_any_trace_has_regions(churn: Path, tmp_path: Path, invoke: Invoke) -> None:
    other = tmp_path / "churn.champsimtrace.gz"
    output_of(invoke, "trace", "convert", str(churn), "-o", str(other))
    lines = "".join(
        f"I  {0x1000 + 4 * (n % 9):x},4\n L {0x9000 + 8 * n:x},8\n" for n in range(5000)
    )
    lackey = tmp_path / "t.lackey"
    lackey.write_text(lines)
    for path, length in ((other, "100K"), (lackey, "100")):
        out = tmp_path / "r.toml"
        output_of(invoke, "trace", "regions", str(path), "--length", length, "-o", str(out))
        found = regions.read(out)
        assert found.instructions == native.trace_info(str(path))["instructions"]
        assert sum(r.weight for r in found.regions) == pytest.approx(1)


def test_an_old_flag_is_refused_by_its_new_name(invoke: Invoke) -> None:
    assert "--most is now --max-regions" in refused(invoke, "trace", "regions", "t", "--most=4")


def test_regions_have_the_requests_of_a_program_that_counts_them(
    tmp_path: Path, invoke: Invoke
) -> None:
    trace, out = tmp_path / "g.pwt", tmp_path / "g.toml"
    words = "record --workload gups --size 1MiB --instructions 1M -o".split()
    assert invoke(*words, str(trace))[0] == 0
    output_of(invoke, "trace", "regions", str(trace), "--length", "10K", "-o", str(out))
    found = regions.read(out)
    assert found.requests is not None and found.instructions is not None
    rate = sum(r.weight * (r.requests or 0) / r.instructions for r in found.regions)
    assert rate == pytest.approx(found.requests / found.instructions, rel=0.1)


def test_a_file_may_go_to_standard_output(churn: Path, tmp_path: Path, invoke: Invoke) -> None:
    status, out, err = invoke("trace", "regions", str(churn), "--length", "100K", "-o", "-")
    assert status == 0
    (tmp_path / "r.toml").write_text(out)
    assert regions.read(tmp_path / "r.toml").length == 100_000
    assert "No error bound" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["TRACE", "--length", "0"], "--length: 0 is not possible; expected a count"),
        (["TRACE", "--length", "much"], "--length: 'much' is not understood; expected a count"),
        (
            ["TRACE", "--length", "100M"],
            "TRACE has only 26.3 M instructions, less than a stretch of 100 M",
        ),
        (["TRACE", "--length", "1"], "are more than 100000 of this trace; give a larger --length"),
        (["TRACE", "--length", "100K", "-o", "/no/r.toml"], "--out: there is no folder '/no'"),
        (["TRACE", "--length", "1M", "--simpoint", "/no/r"], "--simpoint: there is no folder"),
        (["EMPTY", "--length", "1K"], "has no instructions; expected a trace that has some"),
        (["NOTHING"], "expected a trace"),
        (["no.pwt"], "there is no file 'no.pwt'; check the name"),
    ],
)
def test_invalid_arguments_are_refused(
    words: list[str], message: str, churn: Path, tmp_path: Path, invoke: Invoke
) -> None:
    names = {"TRACE": str(churn)}
    for name, content in (
        ("EMPTY", "==1== Lackey, an example Valgrind tool\n==1==\n"),
        ("NOTHING", ""),
    ):
        names[name] = str(tmp_path / name.lower())
        Path(names[name]).write_text(content)
    before = set(tmp_path.iterdir())
    err = refused(invoke, "trace", "regions", *(names.get(word, word) for word in words))
    assert message.replace("TRACE", str(churn)) in err
    assert set(tmp_path.iterdir()) == before


STOPPED = """
import json, os, signal, sys, time
sys.path.insert(0, {tests!r})
import fake, pagewalk
from pagewalk.__main__ import main

def block_vectors(path, length, seed, progress):
    os.kill(os.getpid(), signal.{number})
    while progress(json.dumps({{"done": 1, "total": None, "phase": "read", "seconds": 0}})):
        time.sleep(0.01)
    return "null"

engine = fake.Engine()
engine.block_vectors = block_vectors
sys.modules["pagewalk._native"] = pagewalk._native = engine
main(["trace", "regions", {trace!r}, "-o", {out!r}])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_search_and_leaves_no_file(
    number: signal.Signals, churn: Path, tmp_path: Path
) -> None:
    tests, out = str(Path(__file__).parent), tmp_path / "r.toml"
    script = STOPPED.format(tests=tests, number=number.name, trace=str(churn), out=str(out))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert "interrupted" in done.stderr or "ended by SIGTERM" in done.stderr
    assert not list(tmp_path.iterdir())


def vectors_of(monkeypatch: pytest.MonkeyPatch, kinds: list[int], last: int) -> None:
    """An engine that finds stretches of 100 instructions of these kinds, the last one shorter."""
    places = phases(max(kinds) + 1, 1, 0)
    sizes = [100] * (len(kinds) - 1) + [last]
    answer = {
        "name": "t",
        "request": None,
        "instructions": sum(sizes),
        "stretches": [
            {"instructions": size, "requests": 0, "vector": list(places[kind])}
            for kind, size in zip(kinds, sizes, strict=True)
        ],
    }
    engine = fake.install(monkeypatch, fake.Engine())
    monkeypatch.setattr(engine, "block_vectors", lambda *_: json.dumps(answer), raising=False)


def test_a_rest_shorter_than_a_stretch_has_no_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vectors_of(monkeypatch, [0, 1] * 5 + [2], 40)
    found = regions.find("t", length=100, max_regions=9, seed=1)
    assert found is not None
    assert [(r.at, r.weight) for r in found.regions.regions] == [(0, 0.5), (100, 0.5)]
    assert (found.stretches, found.regions.instructions) == (10, 1040)


def test_more_are_proposed_where_few_stretches_hide_phases(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, invoke: Invoke
) -> None:
    trace = tmp_path / "t.pwt"
    trace.touch()
    vectors_of(monkeypatch, [0, 1, 2, 3], 100)
    text = output_of(invoke, "trace", "regions", str(trace), "--length", "100")
    assert "So few stretches hide phases; --length 10 would make more." in text
    assert "For a spread of 1 % 2 are too few" in text.replace("1.00", "1")
    vectors_of(monkeypatch, [0, 1] * 40, 100)
    text = output_of(invoke, "trace", "regions", str(trace), "--length", "100")
    assert "So few" not in text
    assert "For a spread" not in text


GOOD = """
version = 1
trace = "t.pwt"
instructions = 1000
length = 100
seed = 1

[[regions]]
at = 100
instructions = 100
weight = 0.25

[[regions]]
at = 700
instructions = 100
weight = 0.75
stretches = 7
"""


def test_a_file_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    found = regions.read(path)
    assert found.regions == (
        regions.Region(at=100, instructions=100, weight=0.25),
        regions.Region(at=700, instructions=100, weight=0.75, stretches=7),
    )
    assert (found.instructions, found.spread) == (1000, None)
    # The written file reads back as the same regions.
    found.write(str(path))
    assert regions.read(path) == found
    few = "version = 1\nregions = [{at = 0, instructions = 5, weight = 1}]"
    path.write_text(few)
    assert regions.read(str(path)).regions == (regions.Region(0, 5, 1.0),)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("version = 1", "version = 2", "version: expected 1, found 2"),
        ("version = 1", "version = true", "version: expected 1, found True"),
        ("version = 1", "", "version: expected 1, found none; is it a file of regions?"),
        ("seed = 1", "sed = 1", "sed: there is no such key; did you mean 'seed'?"),
        ("seed = 1", "seed = -1", "seed: -1 is not possible; expected 0 or more"),
        ("length = 100", "length = 1.5", "length: 1.5 is not possible; expected 1 or more"),
        ('"t.pwt"', "3", "trace: 3 is no text"),
        ("at = 700", "at = -1", "region 2: at: -1 is not possible; expected 0 or more"),
        ("at = 700", "", "region 2: at: is missing"),
        ("at = 700", "at = 150", "region 2: at: 150 lies before the end of the region before it"),
        ("at = 700", "at = 950", "region 2: at: the region ends at 1050, behind the trace's 1000"),
        ("0.75", "0.7", "weight: those of all regions add up to 0.95; expected 1"),
        ("0.75", "0", "region 2: weight: 0 is not possible; expected above 0, up to 1"),
        ("0.75", "nan", "region 2: weight: nan is not possible"),
        ("0.75", "true", "region 2: weight: True is not possible"),
        ("0.75", f"1{'0' * 400}", "region 2: weight: 1000"),
        ("seed = 1", "spread = inf", "spread: inf is not possible; expected a number, 0 or more"),
        ("stretches = 7", "streches = 7", "region 2: streches: there is no such key; did you"),
        (GOOD, "version = 1", "regions: expected tables [[regions]], at least one"),
        (GOOD, "version = 1\nregions = []", "regions: expected tables"),
        (GOOD, "version = 1\nregions = [3]", "region 1: expected a table, found 3"),
        (GOOD, "= 3", "is not TOML"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    before: str, after: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(UserError, match=re.escape(message)) as error:
        regions.read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("length = 100\n", ""),
        ("at = 700", "at = 750"),
        ("instructions = 100\nw", "instructions = 9\nw"),
    ],
)
def test_a_region_that_is_no_stretch_has_no_simpoint_number(
    before: str, after: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    regions.read(path).write_simpoint(str(tmp_path / "p"))
    assert (tmp_path / "p.simpoints").read_text() == "1 0\n7 1\n"
    path.write_text(GOOD.replace(before, after))
    with pytest.raises(UserError, match="a region is not a stretch of 'length' instructions"):
        regions.read(path).write_simpoint(str(tmp_path / "q"))
    assert not list(tmp_path.glob("q*"))


def test_a_missing_file_of_regions_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file; 'pagewalk trace regions' writes"):
        regions.read(tmp_path / "r.toml")
    with pytest.raises(UserError, match="is a folder"):
        regions.read(tmp_path)


def written(path: Path, *places: tuple[int, int, float]) -> Path:
    """A file of regions: where each begins, its instructions, and its weight."""
    each = (regions.Region(at, instructions, weight) for at, instructions, weight in places)
    regions.Regions(tuple(each)).write(str(path))
    return path


def numbers(design: pagewalk.DesignResult) -> dict[str, Any]:
    """All counts of a design."""
    summary = {q.name: q.value for q in design.quantities}
    return {
        **summary,
        **{f"{s.path}.{s.name}": s.value for s in design.statistics},
        "histograms": design.histograms,
        "stack": design.cycle_stack,
        "energy": design.energy,
    }


def test_one_region_that_is_the_whole_gives_its_numbers(churn: Path, tmp_path: Path) -> None:
    whole = written(tmp_path / "r.toml", (0, 3_000_000, 1))
    names = ["radix", "thp"]
    plain = pagewalk.compare(names, trace=churn, instructions="3M", progress=False)
    found = pagewalk.compare(names, trace=churn, regions=whole, progress=False)
    for one, other in zip(found.designs, plain.designs, strict=True):
        assert numbers(one) == numbers(other)
        assert (one.speedup, one.translation_cost) == (other.speedup, other.translation_cost)
        assert one.regions is not None and one.sampling is None
        assert [r.weight for r in one.regions.regions] == [1]


def test_the_result_of_two_regions_is_their_weighted_mean(churn: Path, tmp_path: Path) -> None:
    places, weights = ((300_000, 100_000), (3_000_000, 50_000)), (0.3, 0.7)

    def run(name: str, *chosen: tuple[int, int, float]) -> pagewalk.DesignResult:
        # All is warmed: what comes before the second is the same with the first and without.
        file = f"{written(tmp_path / name, *chosen)}:100M"
        return pagewalk.run(trace=churn, regions=file, progress=False).designs[0]

    alone = [run(f"{i}.toml", (*place, 1.0)) for i, place in enumerate(places)]
    both = run("r.toml", *((*p, w) for p, w in zip(places, weights, strict=True)))
    cpis = [d["cycles"] / d["instructions"] for d in alone]
    cpi = sum(w * cpi for w, cpi in zip(weights, cpis, strict=True))
    assert both.regions is not None
    each = both.regions.regions
    assert [(r.at, r.weight) for r in each] == [
        (p[0], w) for p, w in zip(places, weights, strict=True)
    ]
    measured = [r.cycles / r.instructions for r in each]
    assert cpis[0] == pytest.approx(measured[0], rel=1e-12)
    assert cpis[1] == pytest.approx(measured[1], rel=0.02)
    # Exactly of what was measured here; its cycles are whole ones.
    exact = sum(w * cpi for w, cpi in zip(weights, measured, strict=True))
    assert 1 / both["ipc"] == pytest.approx(exact, rel=1e-5)
    assert 1 / both["ipc"] == pytest.approx(cpi, rel=0.02)
    assert both["instructions"] == sum(r.instructions for r in each)
    assert both["ipc"] == both["instructions"] / both["cycles"]
    mpki = sum(w * d["l1d_tlb_mpki"] for w, d in zip(weights, alone, strict=True))
    assert both["l1d_tlb_mpki"] == pytest.approx(mpki, rel=0.02)
    assert both["page_faults"] > 0
    # Not by length, nor each alike.
    assert not 0.9 < cpis[0] / cpis[1] < 1.1


def test_regions_that_are_found_can_be_run(churn: Path, tmp_path: Path, invoke: Invoke) -> None:
    out, answer = tmp_path / "r.toml", tmp_path / "r.json"
    text = output_of(invoke, "trace", "regions", str(churn), "--length", "100K", "-o", str(out))
    assert f"pagewalk run --trace {churn} --regions {out}" in text
    found = regions.read(out)
    for command in (["run"], ["compare", "--designs", "radix,thp"]):
        words = [*command, "--trace", str(churn), "--regions", str(out), "--json", str(answer)]
        text = output_of(invoke, *words)
        n = len(found.regions)
        assert f"Regions ({n}, by their weights)" in text
        assert f"All numbers are those of {n} regions" in text
        assert "no error bound is known" in text
        data = json.loads(answer.read_text())
        whole = data["regions"]
        assert whole["warming"] == {"filtered": None, "warmed": 50_000}
        assert whole["trace_instructions"] == found.instructions
        assert [r["at"] for r in whole["regions"]] == [r.at for r in found.regions]
        weights = [r.weight for r in found.regions]
        assert [r["weight"] for r in whole["regions"]] == pytest.approx(weights, rel=1e-12)
        for design in data["designs"]:
            assert design["status"] == "complete"
            measured = design["regions"]
            assert measured["error_bound"] is None
            assert design["sampling"] is None
            assert len(measured["regions"]) == n
            # A region ends with an operation, which may stand for several instructions.
            off = [m["instructions"] - 100_000 for m in measured["regions"]]
            assert all(abs(instructions) < 20 for instructions in off)
    first, second = (d["summary"] for d in data["designs"])
    ipc = [next(m["value"] for m in s if m["name"] == "ipc") for s in (first, second)]
    assert data["designs"][1]["speedup"] == pytest.approx(ipc[1] / ipc[0], rel=1e-3)
    whole = pagewalk.run(trace=churn, progress=False).designs[0]
    assert ipc[0] == pytest.approx(whole["ipc"], rel=0.1)
    assert "regions by their weights, no error bound" in Result(data).to_html()


def test_the_warming_before_a_region_can_be_set(churn: Path, tmp_path: Path) -> None:
    # A name with a colon is one.
    path = written(tmp_path / "r:5K", (500_000, 10_000, 1))
    for given, warming in (
        (path, {"filtered": None, "warmed": 50_000}),
        (f"{path}:20K", {"filtered": 0, "warmed": 20_000}),
        (f"{path}:100K+20K", {"filtered": 100_000, "warmed": 20_000}),
        (f"{path}:all+0", {"filtered": None, "warmed": 0}),
    ):
        result = pagewalk.run(trace=churn, regions=given, progress=False)
        assert result.data["regions"]["warming"] == warming
        (design,) = result.designs
        assert design.regions is not None
        # A fast-forward without filtered warming leaves stale state in the caches.
        unknown = design.regions.warming.unknown if design.regions.warming else {}
        assert (sum(unknown.get("l3", [0])) > 0) == (warming["filtered"] is not None)


THREADS = "record --workload gups --size 1MiB --threads 2 --instructions 100K -o".split()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", "TRACE", "--sample", "1K/1M"], "--regions and --sample: "),
        (["--trace", "TRACE", "--precision", "2%"], "--regions and --precision: "),
        (["--trace", "TRACE", "--instructions", "1M"], "--regions and --instructions: "),
        (["--trace", "TRACE", "--warmup", "1M"], "--regions and --warmup: "),
        (["--trace", "TRACE", "--roi"], "--regions and --roi: "),
        (["--workload", "gups"], "--regions: regions are places of a trace; expected --trace"),
        (["--mix", "gups,bfs"], "--regions: regions are places of a trace; expected --trace"),
        (["--", "true"], "--regions: regions are places of a trace; expected --trace"),
    ],
)
def test_regions_are_refused_where_they_are_none(
    words: list[str], message: str, churn: Path, tmp_path: Path, invoke: Invoke
) -> None:
    path = written(tmp_path / "r.toml", (0, 1000, 1))
    given = [str(churn) if word == "TRACE" else word for word in words]
    at = given.index("--") if "--" in given else len(given)
    words = ["run", *given[:at], "--regions", str(path), *given[at:]]
    assert message in refused(invoke, *words)


def test_every_title_of_their_report_is_explained(churn: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "r.toml", (5000, 10_000, 1))
    words = ("-m", "pagewalk", "run", "--trace", str(churn), "--regions", str(path))
    status, text = shown(100, *words, raw=True)
    assert status == 0
    bold = re.findall(r"^ *\x1b\[1m([^\x1b\n]*)\x1b\[0m\s*$", text, re.MULTILINE)
    titles = {title.split(" (")[0] for title in bold}
    assert "Regions" in titles
    assert [title for title in titles if "found" not in native.explain(title)] == []


def test_regions_of_another_trace_are_refused(churn: Path, tmp_path: Path, invoke: Invoke) -> None:
    run = ("run", "--trace", str(churn), "--regions")
    path = tmp_path / "r.toml"
    path.write_text(GOOD)
    err = refused(invoke, *run, str(path))
    assert "--regions: they are of a trace of 1000 instructions, and " in err
    err = refused(invoke, *run, str(written(path, (26_346_000, 1000, 1))))
    assert "the last region ends at 26347000, behind the 26346072 instructions" in err
    err = refused(invoke, *run, str(tmp_path / "none.toml"))
    assert f"--regions: {tmp_path / 'none.toml'}: there is no such file" in err
    err = refused(invoke, *run, f"{path}:much")
    assert "--regions: 'much' is not understood; expected a count" in err


def test_a_trace_that_ends_before_its_last_region_says_so(tmp_path: Path, invoke: Invoke) -> None:
    # One that does not say how long it is.
    lackey = tmp_path / "t.lackey"
    lackey.write_text(
        "".join(f"I  {0x1000 + 4 * (n % 9):x},4\n L {0x9000:x},8\n" for n in range(900))
    )
    path = written(tmp_path / "r.toml", (100, 200, 0.5), (800, 200, 0.5))
    status, out, _ = invoke("run", "--trace", str(lackey), "--regions", str(path))
    assert status == 1
    said = " ".join(out.split())
    assert "the program ended after 900 instructions, before the end of region 2 of 2" in said


def test_regions_of_several_threads_are_refused(tmp_path: Path, invoke: Invoke) -> None:
    trace = tmp_path / "t.pwt"
    assert invoke(*THREADS, str(trace))[0] == 0
    path = written(tmp_path / "r.toml", (50_000, 1000, 1))
    status, out, _ = invoke("run", "--trace", str(trace), "--regions", str(path))
    assert status == 1
    said = " ".join(out.split())
    assert "the program starts a second thread" in said
    assert "expected --sample instead of --regions" in said
