"""An engine that another crate extends: examples/out_of_tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from live import needs
from pagewalk import native

ROOT = Path(__file__).parent.parent
CRATE = ROOT / "examples" / "out_of_tree"
DESIGN = CRATE / "segment.toml"
GUESSING = CRATE / "last-offset.toml"
TABLE = CRATE / "flattened.toml"
RUN = ["--workload", "gups", "--size", "16MiB", "--instructions", "300K"]


def pagewalk(*arguments: str, engine: Path | None) -> subprocess.CompletedProcess[str]:
    """The command, with an engine of its own if `engine` is given."""
    environment = dict(os.environ)
    environment.pop("PAGEWALK_ENGINE", None)
    if engine is not None:
        environment["PAGEWALK_ENGINE"] = str(engine)
    return subprocess.run(
        [sys.executable, "-m", "pagewalk", *arguments],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Path:
    """The engine that the example makes."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    subprocess.run(
        ["cargo", "build", "--quiet", "--profile", "ci", "--locked",
         "--manifest-path", CRATE / "Cargo.toml", "--target-dir", target],
        env={**os.environ, "PYO3_BUILD_EXTENSION_MODULE": "1"}, check=True,
    )  # fmt: skip
    return target / "ci" / "libout_of_tree.so"


@pytest.mark.long
@needs("cargo")
def test_the_command_runs_a_source_of_another_crate(engine: Path, tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    arguments = ["--designs", f"radix,{DESIGN}", *RUN, "--json", str(written)]
    answer = pagewalk("compare", *arguments, engine=engine)
    assert answer.returncode == 0, answer.stderr
    radix, segment = json.loads(written.read_text())["designs"]
    own = {s["name"]: s["value"] for s in segment["stats"] if s["path"].endswith("direct_segment")}
    assert own["lookups"] > own["hits"] > 1000
    misses = [
        next(s["value"] for s in d["stats"] if (s["path"], s["name"]) == MISSES)
        for d in (radix, segment)
    ]
    assert misses[0] - misses[1] > 1000
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(DESIGN.read_text().replace("= 64", "= 0"))
    refused = pagewalk("run", "--design", str(wrong), *RUN, engine=engine)
    assert refused.returncode == 2
    assert "translation.external.direct_segment.least_pages" in refused.stderr


MISSES = ("core.0.mmu", "l1d_misses")


@pytest.mark.long
@needs("cargo")
def test_the_command_runs_a_page_table_of_another_crate(engine: Path, tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    partly = tmp_path / "partly.toml"
    partly.write_text(TABLE.read_text().replace("= true", "= false"))
    uncached = ["--set", "mmu.walk_caches.entries=0"]
    arguments = ["--designs", f"radix,{TABLE},{partly}", *RUN, *uncached, "--json", str(written)]
    answer = pagewalk("compare", *arguments, engine=engine)
    assert answer.returncode == 0, answer.stderr
    designs = json.loads(written.read_text())["designs"]
    # Walks that end in a page fault may read less.
    reads = [metrics(d)["walk_reads_per_walk"] for d in designs]
    assert reads == pytest.approx([4, 2, 3], rel=1e-3)
    for name in ("mapped_4kb_bytes", "faults_4kb"):
        assert len({statistic(d, "os", name) for d in designs}) == 1, name
    radix, flattened, _ = designs
    assert metrics(radix).get("flattened_fill") is None
    entries = statistic(flattened, "page_table", "flattened_entries")
    used = statistic(flattened, "page_table", "flattened_used")
    assert metrics(flattened)["flattened_fill"] == pytest.approx(used / entries)
    assert 8 * entries == statistic(flattened, "os", "page_table_bytes")
    # As the table of a guest and of its host, too.
    guest = tmp_path / "guest.toml"
    virtual = "[virtual.placement.buddy]\n[virtual.page_table.external.flattened]\n"
    guest.write_text(TABLE.read_text() + virtual + "flatten_root = false\n")
    arguments = ["--design", str(guest), *RUN, "--json", str(written)]
    answer = pagewalk("run", *arguments, engine=engine)
    assert answer.returncode == 0, answer.stderr
    (nested,) = json.loads(written.read_text())["designs"]
    assert statistic(nested, "host.page_table", "flattened_used") > 0
    for text, said in {
        "flatten_root = 1": "`page_table.external.flattened`: has wrong parameters",
        "other = true": "`page_table.external.flattened`: has wrong parameters",
    }.items():
        wrong = tmp_path / "wrong.toml"
        wrong.write_text(TABLE.read_text().replace("flatten_root = true", text))
        refused = pagewalk("run", "--design", str(wrong), *RUN, engine=engine)
        assert refused.returncode == 2
        assert said in refused.stderr
    wrong.write_text(TABLE.read_text().replace("external.flattened", "external.flatened"))
    refused = pagewalk("run", "--design", str(wrong), *RUN, engine=engine)
    assert "expected one of flattened" in refused.stderr


def metrics(design: dict[str, Any]) -> dict[str, float]:
    return {metric["name"]: metric["value"] for metric in design["summary"]}


def statistic(design: dict[str, Any], path: str, name: str) -> int:
    found = [s["value"] for s in design["stats"] if (s["path"], s["name"]) == (path, name)]
    (value,) = found
    return int(value)


@pytest.mark.parametrize(
    ("design", "key"),
    [
        (DESIGN, "translation.external.direct_segment"),
        (GUESSING, "engine.external.last_offset"),
        (TABLE, "page_table.external.flattened"),
    ],
)
def test_a_design_for_another_engine_names_what_is_missing(design: Path, key: str) -> None:
    refused = pagewalk("run", "--design", str(design), *RUN, engine=None)
    assert refused.returncode == 2
    assert f"`{key}`: is registered by no extension" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_design_has_one_external_table(tmp_path: Path) -> None:
    two = tmp_path / "two.toml"
    two.write_text(TABLE.read_text() + "[page_table.external.other]\n")
    refused = pagewalk("run", "--design", str(two), *RUN, engine=None)
    assert refused.returncode == 2
    assert "page_table.external has 2 kinds; expected one" in refused.stderr


def test_kept_runs_are_those_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.extended() is None
    engine = tmp_path / "engine.so"
    found = set()
    for version in (b"1", b"2"):
        engine.write_bytes(version)
        monkeypatch.setenv("PAGEWALK_ENGINE", str(engine))
        found.add(native.extended())
    assert len(found) == 2
    assert None not in found


def test_a_file_that_is_no_engine_is_refused(tmp_path: Path) -> None:
    refused = pagewalk("run", *RUN, engine=tmp_path / "no.so")
    assert refused.returncode == 2
    assert "PAGEWALK_ENGINE" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.long
@needs("cargo")
def test_the_command_runs_a_speculation_engine_of_another_crate(
    engine: Path, tmp_path: Path
) -> None:
    written = tmp_path / "result.json"
    arguments = ["--designs", f"radix,{GUESSING}", *RUN, "--json", str(written)]
    answer = pagewalk("compare", *arguments, engine=engine)
    assert answer.returncode == 0, answer.stderr
    radix, guessing = json.loads(written.read_text())["designs"]

    def of(path: str) -> dict[str, Any]:
        return {s["name"]: s["value"] for s in guessing["stats"] if s["path"] == path}

    table, guesses = of("core.0.mmu.engine.last_offset"), of("core.0.mmu.engine.data")
    assert table["hits"] == guesses["guesses"] > 1000
    assert table["lookups"] > table["fills"] > 1000
    assert table["fills"] <= of("core.0.mmu")["walks"]
    assert guesses["right"] > 0.9 * guesses["guesses"]
    cycles = [
        next(m["value"] for m in design["summary"] if m["name"] == "cycles")
        for design in (radix, guessing)
    ]
    assert cycles[1] < cycles[0]
    for change, said in {
        "entries = 0": "engine.external.last_offset.entries is 0; expected 1 to",
        "entires = 64": "`engine.external.last_offset`: has wrong parameters",
    }.items():
        wrong = tmp_path / "wrong.toml"
        wrong.write_text(GUESSING.read_text().replace("entries = 64", change))
        refused = pagewalk("run", "--design", str(wrong), *RUN, engine=engine)
        assert refused.returncode == 2
        assert said in refused.stderr


def test_a_design_has_one_external_engine(tmp_path: Path) -> None:
    two = tmp_path / "two.toml"
    two.write_text(GUESSING.read_text() + "[engine.external.other]\n")
    refused = pagewalk("run", "--design", str(two), *RUN, engine=None)
    assert refused.returncode == 2
    assert "engine.external has 2 kinds; expected one" in refused.stderr
