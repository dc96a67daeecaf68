"""The Python API as one meets it: names, what shows itself, arguments, frames, interrupts."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import fake
import pagewalk
from pagewalk.config.options import Arguments
from pagewalk.result import Result

ARGUMENTS: Any = {
    "workload": "gups",
    "size": "1MiB",
    "instructions": "20K",
    "warmup": 0,
    "progress": False,
}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Runs of designs with other parts, with and without intervals, cost and several programs."""
    return [
        pagewalk.run("radix", **ARGUMENTS),
        pagewalk.run("ecpt", interval="5K", **ARGUMENTS),
        pagewalk.compare(["radix", "mehpt"], interval="8K", **ARGUMENTS),
        pagewalk.compare(
            ["thp"],
            mix=["gups:size=1MiB", "gups:size=2MiB"],
            **{k: v for k, v in ARGUMENTS.items() if k not in ("workload", "size")},
        ),
    ]


def test_the_package_shows_its_names_and_no_others() -> None:
    code = "import pagewalk; print(*sorted(set(dir(pagewalk)) ^ set(pagewalk.__all__)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == ""
    assert len(set(pagewalk.__all__)) == len(pagewalk.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'desing'") as error:
        _ = pagewalk.desing
    assert error.value.name == "desing"


def test_everything_public_has_a_docstring() -> None:
    for name in pagewalk.__all__:
        thing = getattr(pagewalk, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing) and thing.__module__.startswith("pagewalk"):
            for member, value in vars(thing).items():
                if not member.startswith("_") and callable(getattr(value, "fget", value)):
                    assert inspect.getdoc(value), f"{name}.{member}"


def test_each_repr_is_one_short_line(results: list[Result]) -> None:
    design, changed = pagewalk.design("radix"), pagewalk.design("radix")
    changed.mmu.walkers = 1
    shown = [
        design,
        design.mmu,
        design.mmu.l2.main,
        changed,
        pagewalk.machine("epyc-milan"),
        pagewalk.designs(),
        pagewalk.machines(),
        pagewalk.workloads(),
        pagewalk.Block(list(range(1000)), gap=3),
        pagewalk.Mapping(0, 4096),
    ]
    for result in results:
        shown.append(result)
        for each in result.designs:
            shown += [each, each.energy, each.intervals, *each.histograms]
            shown += [*each.quantities, *each.cycle_stack, *each.programs]
    for thing in shown:
        text = repr(thing)
        assert "\n" not in text
        assert len(text) < 600, text
    assert "mmu.walkers=1" in repr(changed)
    assert "entries=2048" in repr(design.mmu.l2.main)
    assert "1,000 operations" in repr(shown[8])
    ipc = results[0].designs[0]["ipc"]
    assert f"ipc {ipc:.3f}" in repr(results[0].designs[0])
    for thing in (design, design.mmu, results[0], results[0].designs[0], pagewalk.workloads()):
        assert "<t" in thing._repr_html_()
    assert "mmu.l2.main.entries</th><td>2048" in design._repr_html_()


def test_frames_of_several_runs_go_together(results: list[Result]) -> None:
    for kind in ("summary", "programs"):
        frames = [getattr(result, kind) for result in results]
        assert len({tuple(frame.schema.items()) for frame in frames}) == 1, kind
        assert polars.concat(frames).height == sum(frame.height for frame in frames)
    for frame in (f for r in results for f in (r.summary, r.frame(), r.intervals(), r.programs)):
        assert polars.Null not in frame.dtypes
    for method in ("frame", "histograms"):
        polars.concat([getattr(result, method)() for result in results])
    intervals = [result.intervals() for result in results]
    # The first of them has none, and yet the columns that all have.
    assert intervals[0].is_empty()
    assert intervals[0].columns[:3] == ["design", "first_instruction", "instructions"]
    together = polars.concat(intervals, how="diagonal")
    assert together.height == sum(frame.height for frame in intervals) > 0
    types: dict[str, Any] = {}
    for frame in intervals:
        for name, dtype in frame.schema.items():
            assert types.setdefault(name, dtype) == dtype


def test_frames_of_several_runs_go_together_in_pandas(results: list[Result]) -> None:
    # Pagewalk does without: these are frames of those who have it.
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for frames in (
        [result.summary.to_pandas() for result in results],
        [result.frame().to_pandas() for result in results],
        [result.programs.to_pandas(use_pyarrow_extension_array=True) for result in results],
        [result.intervals().to_pandas(use_pyarrow_extension_array=True) for result in results],
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            whole = pandas.concat(frames)
        assert len(whole) == sum(len(frame) for frame in frames)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"program": "ls -l 'a b'"}, r"program: .* program=\['ls', '-l', 'a b'\]"),
        ({"program": "ls"}, r"is one text; expected a list .* program=\['ls'\]"),
        ({"program": []}, "program: an empty list"),
        ({"program": 3}, "program: 3 is no list"),
        ({"workload": ["gups", "bfs"]}, r"lists built-in programs; .* mix=\[…\]"),
        ({"workload": "gups", "threads": "two"}, "threads: 'two' is no whole number; expected 1"),
        ({"workload": "gups", "threads": 1.5}, "threads: 1.5 is no whole number"),
        ({"workload": "gups", "threads": True}, "threads: True is no whole number"),
        ({"workload": "gups", "seed": "x"}, "seed: 'x' is no whole number; expected 0 to"),
        ({"workload": "gups", "seed": 1.5}, "seed: 1.5 is no whole number"),
        ({"workload": "gups", "jobs": [1]}, r"jobs: \[1\] is no whole number"),
        ({"workload": "gups", "instructions": [1]}, r"instructions: \[1\] is not understood"),
        ({"workload": "gups", "size": {}}, "size: {} is not understood; expected a size"),
        ({"workload": "gups", "params": "scale=16"}, "params: 'scale=16' is no dictionary"),
        ({"workload": "gups", "settings": "cores=2"}, "settings: 'cores=2' is no dictionary"),
        ({"workload": "gups", "sample": 3}, "sample: 3 is not understood; expected LENGTH/PERIOD"),
        ({"workload": "gups", "machine": 3}, "machine: 3 is no machine; expected a name"),
        ({"workload": "gups", "roi": "no"}, "roi: 'no' is not understood; expected True or False"),
        ({"workload": "gups", "translation_cost": "no"}, "translation_cost: 'no' is not underst"),
        ({"workload": "gups", "perfetto": 3}, "perfetto: 3 is not understood; expected the path"),
        ({"trace": 3}, "trace: 3 is not understood; expected the path of a trace"),
        ({"mix": 3}, "mix: 3 is no list of programs"),
        ({"workload": iter([1]), "mappings": 5}, "mappings: 5 is no list"),
        ({"workload": iter([1]), "mappings": ["a"]}, r"mappings: expected each to be a .*Mapping"),
        ({"workload": iter([1]), "mappings": [("a", 1)]}, "mappings: at: 'a' is no whole number"),
    ],
)
def test_a_mistake_in_an_argument_names_it(given: dict[str, Any], message: str) -> None:
    arguments = {"instructions": "10K", "warmup": 0, "progress": False, **given}
    with pytest.raises(pagewalk.UserError, match=message):
        pagewalk.run("radix", **arguments)


MIXES: tuple[Any, ...] = (
    *("gups", "no.pwt", 3, ["gups", 3], ["gups:hot"], ["gups:threads=0", "bfs"]),
    *([{}], [{"program": "ls"}], [{"trace": "t.pwt", "size": 1}]),
)
REGIONS = Path(__file__).parent / "regions.toml"
"""Regions of a trace; no other program has regions."""

WRONG: dict[str, list[dict[str, Any]]] = {
    "machine": [{"machine": "nowhere"}, {"machine": ["epyc-milan"] * 2}],
    "settings": [{"settings": {"nothing": 1}}, {"settings": {"nobody:cores": 1}}],
    "workload": [{"workload": None}, {"trace": "t.pwt"}],
    "size": [{"size": "much"}, {"workload": None, "trace": os.devnull, "size": "1GiB"}],
    "threads": [{"threads": 0}, {"workload": None, "mix": ["gups", "bfs"], "threads": 2}],
    "params": [{"params": {"no": 1}}, {"workload": None, "mix": "gups,bfs", "params": {"no": 1}}],
    "trace": [{"workload": None, "trace": "no.pwt"}],
    "mix": [{"workload": None, "mix": mix} for mix in MIXES],
    "program": [{"program": ["ls"]}],
    "cpu": [{"cpu": 3}, {"cpu": "max"}],
    "clock": [{"clock": 3}, {"clock": "simulated"}],
    "skip": [{"skip": "much"}],
    "warmup": [{"warmup": "much"}],
    "instructions": [{"instructions": 0}],
    "skip_requests": [{"workload": "sysbench", "skip_requests": 1}],
    "warmup_requests": [{"warmup_requests": "many"}],
    "requests": [{"requests": 0}, {"workload": "bfs", "requests": 1}],
    "roi": [{"roi": 3}],
    "precision": [
        *({"precision": "much"}, {"precision": 2}, {"precision": True}),
        *({"precision": "2%:speed"}, {"workload": None, "mix": "gups,bfs", "precision": "2%"}),
    ],
    "sample": [
        *({"sample": "1M"}, {"sample": "999K/1M"}, {"sample": "1K/1M:lots"}),
        {"workload": None, "mix": "gups,bfs", "sample": "1K/1M"},
    ],
    "regions": [
        *({"regions": 3}, {"regions": "no.toml"}, {"regions": os.devnull}),
        *({"regions": REGIONS}, {"workload": None, "mix": "gups,bfs", "regions": REGIONS}),
    ],
    "seed": [{"seed": -1}],
    "jobs": [{"jobs": 0}],
    "cluster": [{"cluster": 3}, {"cluster": "nowhere"}, {"cluster": "tcp://127.0.0.1:1"}],
    "frames": [{"frames": 3}, {"frames": "frames.txt"}],
    "page_mappings": [{"page_mappings": 3}],
    "ignore_memory": [{"ignore_memory": 3}],
    "translation_cost": [
        *({"translation_cost": 3}, {"workload": None, "mix": "gups,bfs", "translation_cost": True}),
    ],
    "interval": [{"interval": 0}],
    "perfetto": [{"perfetto": 3}],
    "perfetto_walks": [{"perfetto_walks": 0}],
    "mappings": [{"mappings": [(0, 4096)]}],
}
"""Invalid values of each keyword, alone or beside others."""


def test_every_keyword_has_mistakes() -> None:
    assert WRONG.keys() == Arguments.__annotations__.keys() - {"progress"}


@pytest.mark.parametrize(
    ("name", "given"),
    [(name, given) for name, mistakes in WRONG.items() for given in mistakes],
    ids=lambda part: part if isinstance(part, str) else str(list(part.values())),
)
def test_errors_in_python_name_keywords_and_not_flags(name: str, given: dict[str, Any]) -> None:
    arguments = {"workload": "gups", "instructions": "10K", "warmup": 0, "progress": False, **given}
    with pytest.raises(pagewalk.UserError) as raised:
        pagewalk.compare(["radix"], **arguments)
    said = str(raised.value)
    assert "--" not in said
    assert name.removesuffix("s") in said
    unknown_key = given == {"settings": {"nothing": 1}}
    about = "nothing" if unknown_key else None if said.startswith("what to run") else name
    assert raised.value.option == about


def test_errors_of_parameters_in_python_name_keywords() -> None:
    arguments = {**ARGUMENTS, "workload": "bfs", "params": {"direction": "optimizing"}}
    with pytest.raises(pagewalk.UserError, match=r"add params=\{'symmetric': 'yes'\};"):
        pagewalk.run("radix", **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pagewalk.run(3, workload="gups"), "design: 3 is no design; expected a name"),  # type: ignore[arg-type]
        (lambda: pagewalk.compare([3], workload="gups"), "designs: 3 is no design"),  # type: ignore[list-item]
        (lambda: pagewalk.compare(3, workload="gups"), "designs: 3 is no list"),  # type: ignore[arg-type]
        (lambda: pagewalk.design(3), "design: 3 is no design"),  # type: ignore[arg-type]
        (lambda: pagewalk.machine(3), "machine: 3 is no machine"),  # type: ignore[arg-type]
        (lambda: pagewalk.design("radix", settings="a"), "settings: 'a' is no dictionary"),  # type: ignore[arg-type]
        (lambda: pagewalk.design("nothing"), "^design nothing: there is no design of that name"),
        (lambda: pagewalk.design("radix", "nowhere"), "^machine nowhere: there is no machine"),
        (lambda: pagewalk.machine("nowhere"), "^machine nowhere: there is no machine"),
        (lambda: pagewalk.explain(3), "name: 3 is no name"),  # type: ignore[arg-type]
        (
            lambda: pagewalk.run(pagewalk.design("radix").copy("x" * 300), workload="gups"),
            "label: .* cannot name a file; expected 1 to 200 bytes",
        ),
    ],
)
def test_an_invalid_name_is_an_error(call: Callable[[], object], message: str) -> None:
    with pytest.raises(pagewalk.UserError, match=message):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    arguments = {**ARGUMENTS, "size": np.int64(1 << 20), "instructions": np.uint32(5000)}
    result = pagewalk.run(seed=np.int16(7), threads=np.int8(1), jobs=np.int64(1), **arguments)
    assert result.data["seed"] == 7
    assert (
        pagewalk.run(**{**arguments, "instructions": 5e3}, seed=7).data["limits"]
        == (result.data["limits"])
    )


@pytest.fixture
def interrupts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Ctrl-C as Python has it, wherever the tests run; temporary folders have a place."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield tmp_path
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_a_loop_of_runs(engine: fake.Engine, interrupts: Path) -> None:
    def interrupted(spec: dict[str, Any], progress: Any) -> dict[str, Any]:
        if len(engine.specs) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            report = {"done": 1, "total": None, "phase": "measure"}
            while progress(json.dumps(report)):
                pass
            return {**fake.result(spec), "partial": True}
        return fake.result(spec)

    engine.script = interrupted
    with pytest.raises(pagewalk.Interrupted) as error:
        for _ in range(10):
            pagewalk.run("radix", workload="gups", progress=False)
    assert isinstance(error.value, KeyboardInterrupt)
    assert len(engine.specs) == 2
    assert error.value.result is not None
    assert error.value.result.partial
    assert list(interrupts.iterdir()) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_a_loop_of_generators(interrupts: Path, threads: int) -> None:
    runs = 0
    interrupted = False

    def addresses() -> Iterator[Any]:
        nonlocal interrupted
        for i in range(1 << 40):
            # In the engine's thread, when it runs; nothing would end it otherwise. Once: a second
            # interrupt would leave the run behind.
            if runs == 2 and i == 100 and not interrupted:
                interrupted = True
                os.kill(os.getpid(), signal.SIGINT)
            if runs == 1 and i == 100:
                return
            yield np.arange(0x1000_0000, 0x1001_0000, 8, dtype=np.uint64)

    with pytest.raises(pagewalk.Interrupted) as error:
        while runs < 10:
            runs += 1
            pagewalk.run("radix", workload=[addresses() for _ in range(threads)], progress=False)
    assert runs == 2
    assert error.value.result is not None
    assert error.value.result.designs[0]["instructions"] > 0
    assert list(interrupts.iterdir()) == []


def test_a_failure_at_an_interrupt_with_a_handler_is_raised(
    engine: fake.Engine, interrupts: Path
) -> None:
    signal.signal(signal.SIGINT, lambda _number, _frame: None)

    def interrupted(_spec: dict[str, Any], progress: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        while progress(json.dumps({"done": 1, "total": None, "phase": "measure"})):
            pass
        raise fake.Failure("nothing was measured")

    engine.script = interrupted
    with pytest.raises(pagewalk.Failure, match="nothing was measured"):
        pagewalk.run("radix", workload="gups", progress=False)


def test_a_design_without_numbers_has_all_columns(engine: fake.Engine) -> None:
    whole = fake.result({"designs": ["radix"], "seed": 1, "machine": "m", "limits": {}})
    ended = json.loads(json.dumps(whole))
    ended["designs"][0]["summary"] = []
    frames = [pagewalk.Result(data).summary for data in (whole, ended)]
    assert frames[0].schema == frames[1].schema
    assert frames[1]["ipc"].to_list() == [None]


def test_an_interrupt_with_a_handler_calls_the_handler(
    engine: fake.Engine, interrupts: Path
) -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))

    def interrupted(spec: dict[str, Any], progress: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGINT)
        while progress(json.dumps({"done": 1, "total": None, "phase": "measure"})):
            pass
        return {**fake.result(spec), "partial": True}

    engine.script = interrupted
    assert pagewalk.run("radix", workload="gups", progress=False).partial
    assert heard == [signal.SIGINT]


def test_a_polite_kill_ends_a_script_and_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(
        "import os, signal, numpy, pagewalk\n"
        "def addresses():\n"
        "    for i in range(1 << 40):\n"
        "        if i == 50: os.kill(os.getpid(), signal.SIGTERM)\n"
        "        yield numpy.arange(0x1000_0000, 0x1001_0000, 8, dtype=numpy.uint64)\n"
        "design = pagewalk.design('radix').copy('written to a folder')\n"
        "while True:\n"
        "    pagewalk.run(design, workload=addresses(), progress=False)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    answer = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TMPDIR": str(scratch)},
        timeout=120,
        check=False,
        capture_output=True,
    )
    assert answer.returncode == -signal.SIGTERM, answer.stderr
    assert list(scratch.iterdir()) == []
