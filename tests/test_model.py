"""Results that change take another model version with them."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pagewalk import native

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

import model

Json = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> Json:
    found: Json = json.loads(model.PATH.read_text(encoding="utf-8"))
    return found


def test_the_recorded_results_are_of_this_version(recorded: Json) -> None:
    assert recorded["version"] == native.model_version(), (
        "MODEL_VERSION has changed: run scripts/model.py --write"
    )
    assert recorded["runs"].keys() == model.RUNS.keys()


@pytest.mark.parametrize("name", model.RUNS)
def test_results_are_those_of_the_version(name: str, recorded: Json) -> None:
    found, kept = model.found(name), recorded["runs"][name]
    assert found.keys() == kept.keys(), (
        f"designs of {name} are new or gone: {sorted(found.keys() ^ kept.keys())}; "
        "run scripts/model.py --write"
    )
    differ = [design for design in kept if found[design] != kept[design]]
    assert not differ, (
        f"results of {name} have changed with {', '.join(differ)}: kept runs of model version "
        f"{recorded['version']} are no longer those of this engine; raise MODEL_VERSION in "
        "crates/machine/src/lib.rs and run scripts/model.py --write"
    )


def test_a_number_counts_and_a_text_does_not() -> None:
    design: Json = {
        "status": "complete",
        "summary": [{"name": "ipc", "value": 0.5, "unit": "", "meaning": "a text"}],
    }
    other, reworded = copy.deepcopy(design), copy.deepcopy(design)
    other["summary"][0]["value"] = 0.25
    reworded["summary"][0]["meaning"] = "another text"
    assert model._numbers(reworded) == model._numbers(design)
    assert model._numbers(other) != model._numbers(design)
