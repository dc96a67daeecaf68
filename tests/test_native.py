"""The border to the engine: what the stub promises is there."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from pagewalk import native
from pagewalk.errors import UserError

PACKAGE = Path(pagewalk.__file__).parent


def test_the_stub_has_every_function_with_its_parameters() -> None:
    engine = native.engine()
    promised = {
        node.name: node
        for node in ast.parse((PACKAGE / "_native.pyi").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    there = {n for n in dir(engine) if inspect.isbuiltin(getattr(engine, n))}
    assert set(promised) == there
    for name, node in promised.items():
        parameters = inspect.signature(getattr(engine, name)).parameters
        assert [a.arg for a in node.args.args] == list(parameters), name
        without = [p for p in parameters.values() if p.default is inspect.Parameter.empty]
        assert len(node.args.args) - len(node.args.defaults) == len(without), name


def test_the_nearest_name_is_the_engines() -> None:
    names = ["radix", "radix5", "thp", "perfect-tlb"]
    assert native.nearest("raidx", names) == "radix"
    assert native.nearest("perfect_tlb", iter(names)) == "perfect-tlb"
    assert native.nearest("ecpt", names) is None


def test_file_names_that_are_no_utf8_keep_their_bytes() -> None:
    odd = "caf\udce9"
    assert not native.explain(odd).get("found")
    assert native.nearest(odd, ["caf\udce8", "x"]) in ("caf\udce8", None)
    spec: dict[str, Any] = json.loads(
        native._spec(
            {
                "source": {"mix": {"programs": [{"trace": {"path": odd}}]}},
                "perfetto": odd,
                "designs": ["radix"],
            }
        )
    )
    written = {"bytes": [99, 97, 102, 233]}
    assert spec["perfetto"] == written
    assert spec["source"]["mix"]["programs"] == [{"trace": {"path": written}}]
    assert json.loads(native._spec({"source": {"program": {"argv": ["a", odd]}}})) == {
        "source": {"program": {"argv": ["a", written]}}
    }


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"designs": ["radix", "caf\udce9"]}, "designs"),
        ({"machine": "caf\udce9"}, "machine"),
        ({"set": ["caf\udce9=1"]}, "set"),
        ({"source": {"workload": {"params": {"a": "caf\udce9"}}}}, "workload.params.a"),
        ({"source": {"workload": {"params": {"caf\udce9": "a"}}}}, "workload.params"),
    ],
)
def test_other_text_that_is_no_utf8_is_refused(spec: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError) as error:
        native._spec(spec)
    assert str(error.value).startswith(f"{what}: 'caf\\xe9")
    assert "is not UTF-8" in str(error.value)


def test_only_native_py_calls_the_engine() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "native.py":
            text = path.read_text()
            assert "import _native" not in text, path
            assert "engine()." not in text, path
