"""Commands, code and links of the documentation work as printed."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from invoking import Cli
from pagewalk.result import Result
from pagewalk.view import report
from pagewalk.view.reference import pages

DOCS = Path(__file__).parent.parent / "docs"
ROOT = DOCS.parent


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_design_file_of_the_worked_example_runs(cli: Cli, tmp_path: Path) -> None:
    (design,) = blocks("add-a-design.md", "toml")
    (command,) = blocks("add-a-design.md", "sh")
    (tmp_path / "thp-one-walker.toml").write_text(design)
    program, *arguments = shlex.split(command)
    assert program == "pagewalk"
    arguments += ["--instructions", "200K", "--warmup", "100K"]
    answer = cli(*arguments, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "mmu.walkers=1" in answer.stdout
    assert "mmu.l2.main.entries=1024" in answer.stdout


# `make out-of-tree` runs it: it compiles the engine's crates.
@pytest.mark.long
def test_the_page_table_of_the_worked_example_can_be_shipped(tmp_path: Path) -> None:
    """The steps of the page, in a copy: what they give compiles with the contract suite."""
    for part in [
        "Cargo.toml",
        "Cargo.lock",
        "crates",
        "docs/add-a-design.md",
        "designs",
        "examples",
        "machines",
        "elastic",
        "lookaside",
        "rtl",
    ]:
        to = tmp_path / part
        to.parent.mkdir(exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, to, ignore=shutil.ignore_patterns("target", "corpus"))
        else:
            shutil.copy(ROOT / part, to)
    page = (DOCS / "add-a-design.md").read_text()
    (example,) = re.findall(r"^```rust\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    table, _ = example.split("// The rest is what a test does")
    given = re.findall(r"^    ```rust,ignore\n(.*?)^    ```", page, re.DOTALL | re.MULTILINE)
    spec, line, case = map(textwrap.dedent, given)
    (design,) = re.findall(r"^    ```text\n(.*?)^    ```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "designs/hashed.toml").write_text(textwrap.dedent(design))
    tables = tmp_path / "crates/tables"
    table = table.replace("use pagewalk_tables::{", "use crate::{")
    (tables / "src/hashed.rs").write_text(table + spec)

    def add(file: str, before: str, text: str) -> None:
        old = (tables / file).read_text()
        assert old.count(before) == 1, f"{before} in {file}"
        (tables / file).write_text(old.replace(before, text + before))

    add("src/lib.rs", "mod level_hashing;", "mod hashed;\n")
    add("src/registry.rs", "    /// Level hashing:", line)
    add("tests/common/tables.rs", "LevelHashingSpec, MemoryEfficientSpec,", "HashedSpec, ")
    add("tests/common/tables.rs", '        case(\n            "radix",', case)
    target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
    compile = "cargo clippy -q --locked -p pagewalk-tables --tests -- -Dwarnings"
    linter = subprocess.run(["cargo", "clippy", "--version"], check=False, capture_output=True)
    if linter.returncode != 0:
        compile = "cargo check -q --locked -p pagewalk-tables --tests"
    answer = subprocess.run(
        compile.split(),
        cwd=tmp_path, env={**os.environ, "CARGO_TARGET_DIR": target},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr


def test_the_tests_build_the_code_of_the_page_on_tlb_policies() -> None:
    page = "how-to/tlb-policy.md"
    shown = [(DOCS / "how-to" / name).read_text() for name in ("clock.rs", "stride.rs")]
    assert blocks(page, "rust") == shown
    # Registered for the tests of the crate as the page says it is to be registered.
    lines = "\n".join(blocks(page, "text"))
    for part in ("replacement", "prefetcher"):
        registry = (ROOT / f"crates/mmu/src/{part}/registry.rs").read_text()
        (line,) = re.findall(r"^ *\[test\] (.*)$", registry, re.MULTILINE)
        assert line in lines


def test_the_first_question_of_the_page_on_tlb_policies_is_answered(
    cli: Cli, tmp_path: Path
) -> None:
    page = "how-to/tlb-policy.md"
    (command,) = blocks(page, "sh")
    program, *arguments = shlex.split(command)
    assert program == "pagewalk"
    answer = cli(*arguments, "--json", tmp_path / "result.json")
    assert answer.returncode == 0, answer.stderr
    assert "mmu.l2.main.replacement=srrip" in answer.stdout
    # It has the values that are its defaults, and is not as the first design for that.
    assert "mmu.prefetcher.next_page" in answer.stdout
    text = (DOCS / page).read_text()
    first, second = (
        {
            name: (float(mpki), float(speedup))
            for name, mpki, speedup in re.findall(
                r"^\| `([\w=-]+)`.*? \| ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE
            )
        }
        for table in text.split("| --- | --: | --: |\n")[1:]
    )
    result = Result(json.loads((tmp_path / "result.json").read_text()))
    assert [design.name for design in result.designs] == list(first)
    for design in result.designs:
        found = (design["l2_tlb_mpki"], design.speedup)
        assert found == pytest.approx(first[design.name], abs=0.0005), design.name
    # The second table repeats the built-in policies beside the one that is not built in.
    assert list(second) == ["radix", "tlb-random", "tlb-clock", "one_in=1", "perfect-tlb"]
    assert all(second[name] == first[name] for name in ("radix", "tlb-random", "perfect-tlb"))
    # The others by how often the page's policy misses where LRU always does.
    tlb = result["radix"].config["mmu"]["l2"]["main"]
    walks = int(result["radix"]["walks"])
    missed = {
        one_in: clock_misses(one_in, walks, tlb["entries"] // tlb["ways"], tlb["ways"]) / walks
        for one_in in (1, 32)
    }
    assert missed[1] == 1
    assert second["one_in=1"] == first["radix"]
    mpki, speedup = second["tlb-clock"]
    assert mpki == pytest.approx(result["radix"]["l2_tlb_mpki"] * missed[32], abs=0.0005)
    # It misses less than chance does, and no walk that it saves is longer than those of all.
    most = 1 + (first["perfect-tlb"][1] - 1) * (1 - missed[32])
    assert first["tlb-random"][1] < speedup <= most + 0.0005
    left = result["tlb-next-page"]["walks"]
    assert f"misses of {walks} are left with it, {left:.0f} with `tlb-next-page`" in text


def clock_misses(one_in: int, last: int, sets: int, ways: int) -> int:
    """Misses among the `last` pages in a TLB with clock.rs: 2560 pages, four times in order."""
    held: list[list[int]] = [[] for _ in range(sets)]
    used = [[False] * ways for _ in range(sets)]
    hands, went, misses = [0] * sets, 0, []
    for page in [*range(2560)] * 4:
        index = page % sets
        misses.append(page not in held[index])
        if page in held[index]:
            used[index][held[index].index(page)] = True
            continue
        if len(held[index]) < ways:
            held[index].append(page)
            continue
        way = hands[index]
        while used[index][way]:
            used[index][way] = False
            way = (way + 1) % ways
        went = (went + 1) % one_in
        hands[index] = way if went else (way + 1) % ways
        held[index][way], used[index][way] = page, False
    return sum(misses[-last:])


# The code of a figure runs in test_reproduce.py, that of step-by-step pages in test_how_to.py and
# test_studies_page.py.
SCRIPTS = sorted(
    path.name
    for path in DOCS.glob("*.md")
    if "```python\n" in path.read_text() and path.name not in ("reproduce.md", "studies.md")
)


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks(page, "python")))
    answer = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=False
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", ["statistics.md", "configuration.md"])
def test_reference_pages_agree_with_the_code(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run 'make docs'"


@pytest.mark.parametrize("name", ["hardware", "clock", "champsim", "precision"])
def test_tables_of_validation_are_made_from_the_kept_results(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    script = importlib.import_module(name)
    kept = json.loads(script.KEPT.read_text())
    page = getattr(script, "PAGE", script.marked.PAGE)
    assert script.tables(kept) in page.read_text()


def test_the_table_of_tlb_policies_is_made_from_the_kept_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    script = importlib.import_module("tlb_policies")
    assert script.table(json.loads(script.KEPT.read_text())) in script.PAGE.read_text()


def test_results_of_a_real_processor_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    hardware = importlib.import_module("hardware")
    kept = json.loads(hardware.KEPT.read_text())
    # Each program on each system, and the candidates of those that have them.
    for case in hardware.CASES:
        candidates = hardware.CANDIDATES if case.name in hardware.CANDIDATES_OF else {}
        assert kept[case.name].keys() == {*hardware.SYSTEMS, *candidates}


def test_results_by_the_clock_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    clock = importlib.import_module("clock")
    names = {case.name for case in clock.CASES}
    usual = {case.name for case in clock.CASES if not case.long}
    for host in json.loads(clock.KEPT.read_text()).values():
        assert usual <= host["loops"].keys() <= names
        assert host["machines"]
        for found in host["machines"].values():
            assert usual <= found.keys() <= host["loops"].keys()


PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: no such file"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


def anchors(page: Path) -> set[str]:
    """Targets of links into a page: headings, as code hosts name them, and marks."""
    text = page.read_text()
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
    return slugs | set(re.findall(r'id="([^"]+)"', text))


def test_the_page_on_machines_shows_the_output_of_its_command(cli: Cli, tmp_path: Path) -> None:
    page = "how-to/compare-machines.md"
    first, second = blocks(page, "sh")
    path = tmp_path / "r.json"
    for command, less in ((second, ["10M", "100K"]), (first, [])):
        program, *arguments = shlex.split(command.replace("\\\n", ""))
        assert program == "pagewalk"
        if less:
            arguments = [less[1] if word == less[0] else word for word in arguments]
        answer = cli(*arguments, "--json", path, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
    result = Result(json.loads(path.read_text()))
    waits = {
        design["machine"]: histogram["p50"]
        for design in json.loads(path.read_text())["designs"]
        for histogram in design["histograms"]
        if design["design"] == "radix" and histogram["name"] == "walker_wait"
    }
    assert waits["epyc-milan"] == 0
    page_text = " ".join((DOCS / page).read_text().split())
    assert f"half of its walks wait {waits['mehpt-table3']} cycles and more" in page_text
    shown = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    report.compare(result, shown)
    assert isinstance(shown.file, io.StringIO)
    printed = [line.rstrip() for line in shown.file.getvalue().splitlines()]
    (table,) = blocks(page, "text")
    for line in table.splitlines():
        assert line.rstrip() in printed
