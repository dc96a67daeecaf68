"""The Linux patch series in `linux/`: it applies, its vectors agree, and its results are complete.

Kernels are built and booted by `make linux-test` and `make linux-figures`, not here.
"""

import base64
import gzip
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

LINUX = Path(__file__).resolve().parent.parent / "linux"
sys.path.insert(0, str(LINUX))

import analysis  # noqa: E402
import guests  # noqa: E402
import kernels  # noqa: E402
import recording  # noqa: E402


def result(name: str) -> Any:
    return json.loads((LINUX / "results" / f"{name}.json").read_text())


def added(patch: Path) -> list[str]:
    """The lines that a patch adds."""
    lines = patch.read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]


def test_the_patches_apply_to_the_pinned_source() -> None:
    archive = Path(kernels.pinned()["archive"])
    if not archive.exists():
        pytest.skip(f"{kernels.pinned()['package']} is not installed")
    command = [sys.executable, str(LINUX / "driver.py"), "apply"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_each_patch_is_short_and_signed() -> None:
    series = kernels.patches()
    numbers = [int(patch.name[:4]) for patch in series]
    assert numbers == list(range(1, len(series) + 1))
    for patch in series:
        text = patch.read_text()
        changed = [line for line in text.splitlines() if re.match(r"[+-](?![+-][+-] )", line)]
        assert len(changed) <= 250, patch.name
        assert "\nSigned-off-by: " in text, patch.name
        for name in re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)", text, re.MULTILINE):
            part = text.split(f"+++ b/{name}\n", 1)[1].splitlines()[1]
            assert "SPDX-License-Identifier: GPL-2.0" in part, name


def test_the_series_contains_the_generated_vectors() -> None:
    """cargo test compares `linux/vectors.h` with the simulator's hash."""
    vectors = (LINUX / "vectors.h").read_text().splitlines()
    (patch,) = [p for p in kernels.patches() if "b/mm/hash_placement_vectors.h" in p.read_text()]
    lines = added(patch)
    start = lines.index(vectors[1]) - 1
    assert lines[start : start + len(vectors)] == vectors


def test_a_missing_source_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        kernels, "pinned", lambda: {"package": "none", "version": "1", "archive": "/none"}
    )
    with pytest.raises(kernels.Failure, match=r"^none is not installed: apt-get install \S"):
        kernels.archive()


def test_a_failed_build_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEWALK_LINUX", str(tmp_path))

    def build(partial: Path) -> None:
        (partial / "image").write_text("half")
        raise kernels.Failure("the disk is full")

    with pytest.raises(kernels.Failure):
        kernels.complete("kernel-1", build)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_patch_that_does_not_apply_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "is_pinned", lambda _: False)
    monkeypatch.setattr(kernels, "archive", lambda: tmp_path)
    patch = tmp_path / "0001-x.patch"
    patch.write_text("--- a/file\n+++ b/file\n@@ -1 +1 @@\n-old\n+new\n")
    (tmp_path / "file").write_text("other\n")
    with pytest.raises(kernels.Failure, match=r"0001-x\.patch does not apply .* not the supported"):
        kernels.patch_tree(tmp_path, patch, tmp_path / "log")


@pytest.mark.parametrize(
    ("last", "message"),
    [
        ("echo nothing", "did not boot"),
        ("echo 'PAGEWALK-GUEST up'", "stopped early"),
        ("echo 'PAGEWALK-GUEST up'; exec sleep 60", "did not end within"),
    ],
)
def test_a_guest_that_fails_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, message: str
) -> None:
    monkeypatch.setenv("PAGEWALK_LINUX", str(tmp_path))
    with pytest.raises(kernels.Failure, match=message):
        guests.guest(["sh", "-c", last], tmp_path, 2, "guest")


def test_a_recording_is_read_from_the_console() -> None:
    def packed(number: int, text: str) -> str:
        lines = base64.encodebytes(gzip.compress(text.encode())).decode().splitlines()
        return "".join(f"PACKED {number} {line}\n" for line in lines)

    header = "pagewalk-frames version=1 first_frame=1 frames=1000 page_size=4096 tiers=6 seed=1"
    records = [f"1 {page} {page % 7} 0" for page in range(500)]
    whole = "\n".join([header, *records, "# status 3", ""])
    console = f"up\nFREE 0 nr_free_pages 150 100\n{packed(0, whole)}FREE 1 nr_free_pages 1 0\nend\n"
    found = recording.unpacked(console, 0)
    assert found == recording.Recording([header, *records], 3, 0.75)
    # The second program printed nothing.
    assert recording.unpacked(console, 1) is None


def test_the_model_is_the_papers() -> None:
    assert analysis.model(0.4, 3) == pytest.approx([0.6, 0.24, 0.096, 0.064])


def test_figure_10_follows_the_model() -> None:
    rows = result("figure10")["rows"]
    shown = {(r["run"], r["pressure"], r["hashes"]) for r in rows}
    assert len({run for run, _, _ in shown}) == 2
    pressures = (0.2, 0.4, 0.6, 0.8)
    assert all((1, p, n) in shown for p in pressures for n in range(1, 7))
    for row in rows:
        assert row["tiers"]["count"] >= 1500
        if row["run"] == 1:
            assert row["tiers"]["largest_difference_points"] < 1.5, row


def figure_11_table(rows: list[dict[str, Any]]) -> str:
    """The rows of README's table."""
    lines = []
    for r in rows:
        speedups = [f"{r['speedup'][name]:.3f}" for name in ("model", "linux", "locked")]
        spread = f"{r['model_deviation_percent']:.1f} %"
        over = [f"{r['over_model_percent'][name]:+.1f} %" for name in ("linux", "locked")]
        hashed = [f"{r['hashed_percent'][name]:.1f} %" for name in ("model", "linux", "locked")]
        cells = [r["program"], r["pressure"], speedups[0], spread, *speedups[1:], *over, *hashed]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_figure_11_has_each_program_at_each_pressure() -> None:
    rows = result("figure11")["rows"]
    cases = [(r["program"], r["pressure"]) for r in rows]
    assert len(set(cases)) == len(cases) >= 10
    assert {(p, pressure) for p, _ in cases for pressure in ("low", "high")} == set(cases)
    for row in rows:
        for occupied in row["occupied_in_linux"]:
            assert occupied == pytest.approx(row["occupied"], abs=0.002), row
        for name in ("linux", "locked"):
            over = 100 * (row["speedup"][name] / row["speedup"]["model"] - 1)
            assert row["over_model_percent"][name] == pytest.approx(over, abs=0.02), row
        # A placement that the simulator could not read back would not be Linux's.
        assert min(row["as_recorded_percent"]) > 99, row


def test_the_readme_has_figure_11() -> None:
    assert figure_11_table(result("figure11")["rows"]) in (LINUX / "README.md").read_text()


PROGRAMS = {
    "gzip": "compress and decompress 1 MB",
    "sort": "sort 1 MB",
    "sha256sum": "hash 1 MB",
    "i=0;": "shell that starts 20 programs",
}


def test_the_readme_has_the_costs_of_programs() -> None:
    on = [row for row in result("costs")["programs"] if row["state"] == "on"]
    text = (LINUX / "README.md").read_text()
    for command, name in PROGRAMS.items():
        rows = sorted(
            (row for row in on if row["command"].startswith(command)), key=lambda r: r["pressure"]
        )
        cells = [f"{row['more_percent']:.2f} ± {row['more_interval_95']:.2f} %" for row in rows]
        assert f"| {' | '.join([name, *cells])} |" in text


def test_the_kernels_own_tests_do_not_see_placement() -> None:
    tests = result("compatibility")["tests"]
    assert len(tests) >= 15
    assert all(row["off"] == row["on"] for row in tests.values())


def test_figure_11_is_the_models_on_the_frames_of_linux() -> None:
    for row in result("figure11")["rows"]:
        hashed = row["hashed_percent"]
        for name in ("linux", "locked"):
            assert hashed[name] == pytest.approx(hashed["model"], abs=0.3), row
            assert abs(row["over_model_percent"][name]) < 2, row


def test_fallback_pages_take_the_frames_that_the_same_address_space_number_wants() -> None:
    rows = result("reuse")["rows"]
    again = [now for before, now in pairwise(rows) if before["asid"] == now["asid"]]
    others = [row for row in rows[1:] if row not in again]
    assert len(again) >= 2
    assert len(others) >= 2
    # The program before has freed the frames of the fallback pages in both cases.
    assert min(row["fallbacks_in_freed_frames_percent"] for row in again + others) > 80
    least = min(row["hashed_percent"] for row in others)
    assert max(row["hashed_percent"] for row in again) < least - 5


def test_two_processors_pass_what_one_passes() -> None:
    smp = result("tests-smp")
    assert smp["processors"] == 2
    assert set(result("tests-x86")["tests"]) <= set(smp["tests"])
    assert smp["stress"]["free_pages_after"] > smp["stress"]["free_pages_before"] - 2048


def test_results_are_complete() -> None:
    for tests in (result("tests"), result("tests-kasan")):
        assert len(tests["tests"]) >= 17
        assert tests["stress"]["seconds"] > 0
    assert {r["hashed"] for r in result("overlap")["rows"]} == {True, False}
    churn = result("churn")
    steps = {r["after"] for r in churn["rows"]}
    assert {"allocation", "compaction on request"} <= steps
    assert set(churn["hashed_percent"]) == steps
    assert churn["rounds"] >= 50
    assert {r["way"] for r in result("lists")["reuse"]} == {"none", "drain", "search", "marks"}
    assert {r["pressure"] for r in result("causes")["rows"]} == {0.0, 0.5, 0.8}
    costs = result("costs")
    assert {r["state"] for r in costs["faults"]} == {"unpatched", "off", "on"}
    assert {r["state"] for r in costs["programs"]} == {"off", "on"}
    assert all(r["interval_95"] >= 0 for r in costs["faults"] + costs["programs"])
    medians = {r["state"]: r["median"] for r in costs["faults"] if r["pressure"] == 0.0}
    assert medians["off"] - medians["unpatched"] <= 10, "a static key disables placement"
