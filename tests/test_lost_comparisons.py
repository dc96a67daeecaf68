"""Bools that optimised code reads unset are found, and nothing else is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "lost_comparisons.py"

# The MIR of rustc 1.95 for `let is_it = n != 0; sum += u64::from(!is_it); if is_it { … }`.
LOST = """fn counted(_1: &mut u64, _2: u32) -> bool {
    debug sum => _1;
    let mut _0: bool;
    let mut _3: bool;
    let mut _4: bool;
    let mut _5: u64;

    bb0: {
        StorageLive(_3);
        nop;
        _4 = Not(copy _3);
        _5 = copy _4 as u64 (IntToInt);
        (*_1) = Add(copy (*_1), move _5);
        switchInt(copy _2) -> [0: bb1, otherwise: bb2];
    }

    bb1: {
        _0 = const false;
        goto -> bb3;
    }

    bb2: {
        _0 = const true;
        goto -> bb3;
    }

    bb3: {
        StorageDead(_3);
        return;
    }
}
"""
SOUND = LOST.replace("        nop;\n", "        _3 = Ne(copy _2, const 0_u32);\n")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lost_comparisons", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(script: ModuleType, text: str) -> list[tuple[str, list[str]]]:
    return [(head, script.unset(body)) for head, body in script.functions(text)]


def test_a_bool_without_a_value_is_named_with_its_line(script: ModuleType) -> None:
    lost, sound = found(script, LOST + "\n" + SOUND)
    assert lost[0].startswith("fn counted(")
    assert lost[1] == ["_4 = Not(copy _3);"]
    assert sound[1] == []


@pytest.mark.parametrize(
    ("lost", "sound"),
    [
        # Set on one of two ways only.
        ("_0 = const false;\n        goto", "goto"),
        # Gone with its storage.
        ("nop;", "_3 = const true;\n        StorageDead(_3);"),
        # A longer name is another variable.
        ("copy _3)", "copy _33)"),
    ],
)
def test_each_way_to_a_use_counts(script: ModuleType, lost: str, sound: str) -> None:
    changed = LOST.replace(lost, sound).replace("return;", "_5 = copy _0 as u64 (IntToInt);")
    lines = found(script, changed)[0][1]
    assert ("_5 = copy _0 as u64 (IntToInt);" in lines) == (sound == "goto")
    assert ("_4 = Not(copy _3);" in lines) == ("_33" not in sound)


def test_a_borrowed_bool_counts_as_assigned(script: ModuleType) -> None:
    borrowed = LOST.replace("nop;", "_6 = set(&mut _3) -> [return: bb1, unwind continue];")
    assert found(script, borrowed)[0][1] == []
