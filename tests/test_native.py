"""The border to the engine: what the stub promises is there."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pagewalk
from pagewalk import native

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


def test_every_function_of_the_engine_is_asked_in_one_place() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.name != "native.py":
            text = path.read_text()
            assert "import _native" not in text, path
            assert "engine()." not in text, path
