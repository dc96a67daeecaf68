"""Python's types of the engine's answers: generated of the schema, which the answers fit."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import pagewalk
from pagewalk import engine_types, native
from pagewalk.measurements.design import DesignResult, ProgramResult
from pagewalk.measurements.from_json import FromJson
from pagewalk.measurements.intervals import Intervals

Json = dict[str, Any]

ROOT = Path(__file__).parent.parent
SMALL = {"workload": "gups", "size": "16MiB", "instructions": "100K", "warmup": 0}
RUNS: dict[str, Json] = {
    "intervals": {**SMALL, "interval": "50K"},
    "mix": {
        "mix": ["gups:size=16MiB", "bfs:scale=12"],
        "settings": {"cores": 2},
        "instructions": "50K",
    },
    "machines": {
        **SMALL,
        "machine": ["epyc-milan", "mehpt-table3"],
        "settings": {"cores": 1},
    },
    "samples": {**SMALL, "instructions": "2M", "sample": "10K/200K:all+20K"},
}


@pytest.fixture(scope="module", params=RUNS)
def data(request: pytest.FixtureRequest) -> Json:
    result = pagewalk.compare(["radix", "thp"], progress=False, **RUNS[request.param])
    return dict(result.data)


def test_the_generated_types_are_those_of_the_engine() -> None:
    command = [sys.executable, "scripts/result_types.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_result_fits_its_schema(data: Json) -> None:
    schema = pagewalk.result_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, _closed(schema))
    wrong = {**data, "designs": [{**data["designs"][0], "status": "done"}]}
    with pytest.raises(jsonschema.ValidationError, match="'done' is not"):
        jsonschema.validate(wrong, schema)


def _closed(schema: Json) -> Json:
    """The schema, with no other keys than those that it names."""
    closed = json.loads(json.dumps(schema))
    for one in [closed, *closed["$defs"].values()]:
        if "properties" in one:
            one["additionalProperties"] = False
    return dict(closed)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("Explanation", lambda: native.explain("mmu.walkers")),
        ("Explanation", lambda: native.explain("gups")),
        ("Explanation", lambda: native.explain("thp")),
        ("Explanation", lambda: native.explain("wlks")),
        ("Definitions", native.statistics),
        ("Installed", native.doctor),
        ("ShortcutBuffers", native.shortcut_buffers),
        ("Key", lambda: native.config_keys()[0]),
        ("Program", lambda: native.workloads()[0]),
        ("Shipped", lambda: native.machines()[0]),
        ("Resolved", lambda: native.resolve("epyc-milan", "thp")),
    ],
)
def test_an_answer_fits_its_schema(name: str, answer: Any) -> None:
    schema = _closed(pagewalk.result_schema())
    jsonschema.validate(answer(), {"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})


def test_a_trace_s_answers_fit_their_schema(tmp_path: Path) -> None:
    schema = _closed(pagewalk.result_schema())
    trace, other = str(tmp_path / "a.pwt"), str(tmp_path / "a.champsim.xz")
    source = {"workload": {"name": "gups", "size": "4MiB", "threads": 1, "params": {}}}
    reports: list[Json] = []

    class Observer:
        def update(self, progress: engine_types.Progress) -> None:
            reports.append({**progress})

        def stopping(self, _number: int) -> None: ...

    recorded = native.record({"source": source, "instructions": 300_000}, trace, Observer())
    for name, answer in {
        "RecordResult": recorded,
        "TraceInfo": native.trace_info(trace),
        "TraceCheck": native.trace_check(trace),
        "Converted": native.trace_convert(trace, other),
        "BlockVectors": native.block_vectors(trace, 50_000, 1),
    }.items():
        jsonschema.validate(answer, {"$defs": schema["$defs"], "$ref": f"#/$defs/{name}"})
    for report in reports:
        jsonschema.validate(report, {"$defs": schema["$defs"], "$ref": "#/$defs/Progress"})


def test_a_design_is_read_as_it_was_written(data: Json) -> None:
    """Each field of the JSON is in the objects, of the classes with behaviour."""
    for written in data["designs"]:
        design = DesignResult.from_json(written)
        assert {type(one) for one in design.programs} <= {ProgramResult}
        given = {key: value for key, value in _json(design).items() if key in written}
        # A design without intervals has none, rather than nothing that could have some.
        expected = {**written, "intervals": written["intervals"] or _json(Intervals())}
        assert _complete(json.loads(json.dumps(given))) == _complete(expected)


def _json(value: Any) -> Any:
    """The JSON of an object that was read."""
    if isinstance(value, FromJson):
        of = fields(value)  # type: ignore[arg-type]
        found = {f.metadata.get("key", f.name): getattr(value, f.name) for f in of}
        return {key: _json(one) for key, one in found.items() if one is not None}
    if isinstance(value, dict):
        return {key: _json(one) for key, one in value.items()}
    return [_json(one) for one in value] if isinstance(value, (list, tuple)) else value


def _complete(value: Any) -> Any:
    """The JSON without keys that have no value."""
    if isinstance(value, dict):
        return {key: _complete(one) for key, one in value.items() if one is not None}
    return [_complete(one) for one in value] if isinstance(value, list) else value
