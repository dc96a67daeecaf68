"""The trial of samples against everything simulated (validation/precision.py)."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.long
def test_simulated_results_are_kept_and_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    trial = importlib.import_module("precision")
    kept, page = tmp_path / "kept.json", tmp_path / "page.md"
    page.write_text("<!-- precision -->\n\n<!-- end -->\n")
    monkeypatch.setattr(trial, "KEPT", kept)
    monkeypatch.setattr(trial, "PAGE", page)
    few = ["--length", "60M", "--seeds", "1", "--only", "gups", "--write"]
    monkeypatch.setattr(sys, "argv", ["precision.py", *few])
    assert trial.main() == 0
    runs = json.loads(kept.read_text())["runs"]["60M"]["gups"]
    found = list(trial.estimates(runs))
    assert {one[:3] for one in found} >= {("ipc", "radix", 1), ("speedup", "thp", 1)}
    right = sum(not trial.outside(*one[3:]) for one in found)
    written = page.read_text()
    assert "60M instructions:" in written
    assert f"**{right} of {len(found)}, " in written

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(trial, "simulated", never)
    assert trial.main() == 0
    assert page.read_text() == written


def test_a_true_value_lies_in_its_interval_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    outside = importlib.import_module("precision").outside
    assert not outside([1.0, 0.9, 1.1], 1.1)
    assert outside([1.0, 0.9, 1.1], 1.11)
    assert not outside([1.0, 0.9, None], 100.0), "an end that is infinite"
