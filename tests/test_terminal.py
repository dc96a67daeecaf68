"""Reports in real pseudo-terminals: numbers are whole, lines fit, outside text does nothing."""

from __future__ import annotations

import html
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

import fake
import pagewalk
from pagewalk import native
from pagewalk.reproduce import command as reproduction
from pagewalk.reproduce import report as papers
from pagewalk.reproduce.figure import Row
from pagewalk.result import Result
from pagewalk.view import columns, progress
from pagewalk.view.escape import visible
from pagewalk.view.markup import SCRIPT
from pagewalk.view.quantities import COUNTS, SIZES, exact_bytes, significant, size, with_unit
from pagewalk.view.report import compare as show_comparison
from pagewalk.view.report import costs
from pagewalk.view.short_names import shortened
from pagewalk.view.terminal import console
from terminals import WIDTHS, holds, shown

DESIGNS = "radix,radix5,thp,thp-reservation,l2tlb-128k,perfect-tlb,ecpt,mehpt-thp"
# Keys of a hashed page table, with values that they do not have by themselves.
UNUSUAL = {
    "initial_slots": 256,
    "upsize_at": 0.625,
    "downsize_at": 0.1875,
    "max_kicks": 48,
    "migrated_per_insertion": 3.25,
    "chunks": [16384, 2097152, 134217728],
}
PROGRAM = "--workload gups --size 64MiB --instructions 300K --warmup 50K --sample 50K/100K"
HOSTILE = "a[/:]b[red]\x1b[2J\x07\n\r\t\x9b31m\u202e:smile:"

widths = pytest.mark.parametrize("width", WIDTHS)


def lines(text: str, name: str) -> list[str]:
    """The lines that begin with a name."""
    found = [line for line in text.splitlines() if line.split()[:1] == [name]]
    assert found, f"{name} is not in\n{text}"
    return found


def numbers(config: Any) -> Iterator[str]:
    """Every number of a configuration, as it is written."""
    if isinstance(config, dict):
        for value in config.values():
            yield from numbers(value)
    elif isinstance(config, list):
        for value in config:
            yield from numbers(value)
    elif isinstance(config, (int, float)) and not isinstance(config, bool):
        yield json.dumps(config)


@widths
def test_a_run_shows_every_number(width: int, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    flags = [*PROGRAM.split(), "--verbose", "--json", str(path)]
    status, text = shown(width, "-m", "pagewalk", "run", *flags)
    assert status == 0
    design = Result(json.loads(path.read_text())).designs[0]
    for quantity in design.quantities:
        number = with_unit(quantity.value, quantity.unit)
        row = re.search(rf"(?:^|  ){quantity.name} +{re.escape(number)}(?:$|\s)", text, re.M)
        # Neither a program without requests nor a design without the part has a number.
        assert (row is None) == (quantity.value is None), quantity
    assert design.sampling is not None
    for value in (design.sampling.ipc, design.sampling.ipc_low):
        assert holds(text, significant(value))
    for share in design.cycle_stack:
        if share.share >= 0.002:
            assert f" {share.share * 100:.1f} %\n" in text
    # Radix tables are walked without the cuckoo walk caches, and natively without a nested TLB.
    lacking = ("cuckoo", "nested_tlb")
    mmu = {key: value for key, value in design.config["mmu"].items() if key not in lacking}
    for table in (design.config["placement"], design.config["page_table"], mmu):
        for number in numbers(table):
            assert holds(text, number), number


@widths
def test_a_comparison_of_eight_designs_shows_whole_numbers(width: int, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    flags = [*PROGRAM.split(), "--designs", DESIGNS, "--json", str(path)]
    for hashed, kind in (("ecpt", "elastic_cuckoo"), ("mehpt-thp", "memory_efficient")):
        for key, value in UNUSUAL.items():
            flags += ["--set", f"{hashed}:page_table.{kind}.{key}={json.dumps(value)}"]
    status, text = shown(width, "-m", "pagewalk", "compare", *flags)
    assert status == 0
    result = Result(json.loads(path.read_text()))
    table, notes = text.split("design  ")[1].split("Speedup over")[0], text.split("not shown:")
    titles = " ".join(table.split())
    for design in result.designs:
        cells = " ".join(lines(text, design.name))
        assert design.speedup is not None
        assert cells.count(f"{design.speedup:.3f}") >= 2  # in the table, and at its bar
        for column in columns.comparison(result):
            (title,) = columns.together([column])
            value = column.value(design)
            if value is None:
                continue
            filled = column.filled(result.designs)
            number = filled.cells[result.designs.index(design)]
            left_out = title in " ".join(notes[1].split()) if len(notes) > 1 else False
            assert left_out or holds(cells, number), (design.name, title)
            assert not (left_out and column.importance == columns.ALWAYS)
    assert "over radix" in titles
    assert (width >= 140) == ("--wide" not in table)
    flat = " ".join(text.split())
    for _, what in costs(result):
        assert what in flat  # costs of sampled runs are in words
    # The heading has the numbers of both designs.
    for number in numbers(UNUSUAL):
        assert text.split("speedup")[0].count(number) >= 2, number


def report(result: Result, width: int | None, **flags: bool) -> str:
    """The report of a comparison in a terminal of so many columns, or in none."""
    out = io.StringIO()
    if width is None:
        show_comparison(result, console(out), **flags)
    else:
        show_comparison(
            result, Console(file=out, width=width, force_terminal=True, color_system=None), **flags
        )
    return out.getvalue()


def six(names: list[str]) -> Result:
    spec = {"designs": names, "seed": 1, "machine": "epyc-milan", "limits": {}}
    return Result(fake.result(spec))


def test_columns_go_by_importance_and_are_named() -> None:
    result = six(["radix", "thp", "ecpt"])
    importance = {columns.together([c])[0]: c.importance for c in columns.comparison(result)}
    assert len(importance) == len(columns.comparison(result))
    shown_at = {}
    for width in (40, 60, 80, 100, 140):
        table = report(result, width).split("Speedup over")[0]
        assert all(cell_len(line) <= width for line in table.splitlines())
        named = " ".join(table.split()).partition("not shown: ")[2].partition(" (--wide")[0]
        gone = {title for title in importance if title in named.split(", ")}
        assert ", ".join(title for title in importance if title in gone) == named
        known = {t for t in importance if t not in ("requests", "cycles a request")}
        known.discard("translation (% of cycles)")  # the stand-in has no cost
        kept = known - gone
        assert "speedup" in kept
        assert not gone or max(importance[t] for t in kept) <= min(importance[t] for t in gone)
        shown_at[width] = len(kept)
    assert shown_at[40] < shown_at[60] < shown_at[80] < shown_at[140] == len(known)


@pytest.mark.parametrize(("width", "flags"), [(None, {}), (60, {"wide": True})])
def test_a_pipe_or_wide_shows_every_column(width: int | None, flags: dict[str, bool]) -> None:
    result = six(["radix", "thp", "ecpt"])
    text = report(result, width, **flags)
    assert "not shown" not in text
    for column in columns.comparison(result):
        for design, number in zip(result.designs, column.filled(result.designs).cells, strict=True):
            cells = " ".join(lines(text, design.name))
            assert column.value(design) is None or holds(cells, number), column.name


def test_a_columns_numbers_have_one_unit_where_none_is_lost() -> None:
    unit, write = COUNTS.common([24_700, 609, 0])
    assert (unit, [write(v) for v in (24_700, 609, 0)]) == ("K", ["24.7", "0.609", "0"])
    assert COUNTS.common([5, 0, 262])[1](5) == "5"
    unit, write = SIZES.common([3 << 30, 4096])  # 0.00000381 GiB would be no number to read
    assert (unit, [write(v) for v in (3 << 30, 4096)]) == ("", ["3.00 GiB", "4.00 KiB"])


def test_the_first_screen_of_a_run_has_the_cost_of_translation(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    flags = "run --workload gups --size 64MiB --instructions 100K --warmup 3M"
    status, text = shown(80, "-m", "pagewalk", *flags.split(), "--json", path)
    assert status == 0
    assert len(text.splitlines()) <= 30
    result = Result(json.loads(path.read_text()))
    (design,) = result.designs
    first = ("instructions", "cycles", "ipc", "l1d_tlb_mpki", "l2_tlb_mpki", "walks")
    for quantity in design.quantities:
        if quantity.name in first:
            number = with_unit(quantity.value, quantity.unit)
            assert re.search(rf"\b{columns.words(quantity.name)} +{re.escape(number)}", text)
        assert quantity.meaning not in " ".join(text.split())
    walk = next(h for h in design.histograms if h.name == "walk_latency")
    assert walk.mean is not None
    assert f"{significant(walk.mean)} cycles" in text
    cost = design.translation_cost
    assert cost
    assert f"{1 / (1 - cost):.3f} times as fast" in text
    assert f"Translation costs {100 * cost:.1f} %" in text
    assert text.index("Translation costs") < text.index("instructions  ")
    assert "instructions/s" in text
    for name in ("mmu.l2.main", "energy_per_instruction", "Latencies", "Energy ("):
        assert name not in text
    assert "--verbose" in text


def test_long_names_stay_different() -> None:
    variants = [f"radix[mmu.l2.main.entries={n}]" for n in (1024, 2048, 4096, 16384)]
    paths = [f"a-{'very-' * 12}long-name-{n}-{'of-a-file' * 3}" for n in range(12)]
    hostile = ["\u4e2d" * 40, "\u4e2d" * 41, "x" * 300, "x" * 301]
    names = ["radix", "thp", *variants, *paths, *hostile]
    for width in (10, 22, 30, 60):
        short = shortened(names, width)
        assert list(short) == names
        assert len(set(short.values())) == len(names)
        assert all(cell_len(text) <= width for text in short.values())
        assert all(short[name] == name for name in names if cell_len(name) <= width)
    assert shortened(variants, 22)[variants[0]] == "radix[…entries=1024]"
    result = six(["radix", *variants])
    text = report(result, 80)
    for name, size_of_it in zip(variants, (1024, 2048, 4096, 16384), strict=True):
        short_name = f"radix[…entries={size_of_it}]"
        assert len(lines(text, short_name)) >= 4  # heading, table, speedup, cycles
        assert name in " ".join(text.split("speedup")[0].split())
    assert all(name in report(result, None) for name in variants)


MIX = "--mix gups:size=64MiB,gups:size=128MiB --instructions 100K --warmup 20K --set cores=2"


@widths
@pytest.mark.parametrize("designs", ["radix", "radix,thp-reservation,l2tlb-128k,perfect-tlb"])
def test_a_mix_shows_every_number(width: int, designs: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    flags = [*MIX.split(), "--designs", designs, "--json", str(path)]
    status, text = shown(width, "-m", "pagewalk", "compare", *flags)
    assert status == 0
    result = Result(json.loads(path.read_text()))
    table = text.split("Programs of the mix")[1].split("Statistics of each program")[0]
    # Numbers of each block: those of the two programs, and those of the mix as a whole.
    shown_cells: list[list[str]] = [[], [], [], [], []]
    for block in table.split("\n\n"):
        rows = [re.findall(r"(?<=\s)\d+\.\d+(?=\s)", f"{line} ") for line in block.splitlines()]
        for into, row in zip(shown_cells, filter(None, rows), strict=False):
            into.extend(row)
    several = len(result.designs) > 1
    expected: list[list[str]] = [[], [], [], [], []]
    for i, program in enumerate(result.designs[0].programs):
        assert program.ipc_alone is not None
        expected[i].append(significant(program.ipc_alone))
        for design in result.designs:
            own = design.programs[i]
            assert own.ipc is not None
            assert own.speedup is not None
            speed = own.speedup if several else own.ipc / program.ipc_alone
            expected[i] += [significant(own.ipc), f"{speed:.3f}"]
    for row_of, name in enumerate(("weighted_speedup", "harmonic_speedup", "antt"), start=2):
        expected[row_of] = [f"{getattr(d, name):.3f}" for d in result.designs]
    assert shown_cells == expected, text
    met = text.split("Statistics of each program")[1].split("\n\n")[0]
    for program in (p for d in result.designs for p in d.programs):
        assert program.l2_tlb_mpki is not None
        assert significant(program.l2_tlb_mpki) in met


@widths
def test_lists_show_every_number(width: int) -> None:
    status, text = shown(width, "-m", "pagewalk", "workloads")
    assert status == 0
    for program in pagewalk.workloads():
        (line,) = lines(text, program["name"])
        assert holds(line, size(program["default_size"]))
    for command, entries in (("designs", pagewalk.designs()), ("machines", pagewalk.machines())):
        status, text = shown(width, "-m", "pagewalk", command)
        assert status == 0
        for entry in entries:
            assert f"{entry['name']} {entry['description']} " in " ".join([*text.split(), ""])


@widths
def test_explanations_show_every_number(width: int) -> None:
    status, text = shown(width, "-m", "pagewalk", "explain", "gups")
    assert status == 0
    (entry,) = (w for w in pagewalk.workloads() if w["name"] == "gups")
    assert holds(text, exact_bytes(entry["default_size"]))
    for parameter in entry["params"]:
        lines(text, "--param")
        for number in re.findall(r"\d+", f"{parameter['range']} {parameter['default']}"):
            assert number in text


@widths
def test_a_traces_facts_show_every_number(width: int, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    flags = ["record", "--workload", "gups", "--size", "64MiB", "--instructions", "300K"]
    assert shown(width, "-m", "pagewalk", *flags, "-o", trace)[0] == 0
    status, text = shown(width, "-m", "pagewalk", "trace", "info", trace)
    assert status == 0
    facts = native.trace_info(str(trace))
    whole = [v for v in facts.values() if isinstance(v, int) and not isinstance(v, bool)]
    assert len(whole) > 5
    for number in whole:
        assert holds(text, f"{number:,}"), number


@widths
def test_doctor_and_papers_fit(width: int) -> None:
    status, text = shown(width, "-m", "pagewalk", "doctor")
    assert status == 0
    assert holds(text, pagewalk.__version__)
    status, text = shown(width, "-m", "pagewalk", "reproduce")
    assert status == 0
    for figure in ("table1", "fig8", "fig16"):
        assert holds(text, figure)


def test_a_dumb_terminal_has_a_width_too() -> None:
    status, text = shown(60, "-m", "pagewalk", "workloads", terminal="dumb")
    assert status == 0
    assert "gups" in text


CHILD = """
import json, sys
sys.path.insert(0, {tests!r})
import pagewalk, fake
from pagewalk import native
from pagewalk.__main__ import main
hostile = json.loads({hostile!r})

def spoiled(value):
    if isinstance(value, str):
        return value + hostile
    if isinstance(value, dict):
        # A design's configuration has tables that files name.
        return {{key: spoiled(part) for key, part in value.items()}}
    return [spoiled(part) for part in value] if isinstance(value, list) else value

def run(spec, progress):
    answer = fake.result(spec)
    for design in answer["designs"]:
        design["config"]["table" + hostile] = {{"key" + hostile: 1}}
    answer = spoiled(answer)
    for design in answer["designs"]:
        design["status"] = "complete"
    return answer

engine = fake.Engine(run)
engine.listed = [{{"name": "n" + hostile, "group": "g" + hostile, "description": hostile,
    "stresses": hostile, "source": hostile, "default_size": 4096, "path": hostile}}]
engine.explained = {{"found": [{{"kind": "workload" + hostile, "name": hostile, "text": hostile,
    "unit": hostile, "source": hostile, "workload": {{"stresses": hostile, "size_range": hostile,
    "default_size": 4096, "max_threads": 1, "params": [{{"name": hostile, "unit": hostile,
    "meaning": hostile, "range": hostile, "default": hostile}}]}}}}]}}
engine.designs = engine.machines = engine.workloads
engine.facts = {{"path": hostile, "names" + hostile: [hostile]}}
engine.trace_info = lambda path: json.dumps(engine.facts)
engine.trace_check = lambda path: json.dumps({{"whole": False, "fault": hostile,
    "good_instructions": 1}})
engine.record = lambda spec, path, progress: json.dumps({{"path": path, "name": hostile,
    "bytes": 100, "instructions": 10, "exit_status": 0, "died": []}})

def doctor():
    return json.dumps({{"cores": 2, "qemu": {{"Err": hostile}}, "plugin": {{"present": False,
        "path": hostile}}}})

engine.doctor = doctor
sys.modules["pagewalk._native"] = pagewalk._native = engine
main(json.loads({arguments!r}))
"""


def child(*arguments: str) -> str:
    """A program that runs the command line on an engine whose texts are all hostile."""
    tests = str(Path(__file__).parent)
    return CHILD.format(
        tests=tests, hostile=json.dumps(HOSTILE), arguments=json.dumps(list(arguments))
    )


@pytest.mark.parametrize("width", [60, 140])
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--workload", "gups"],
        ["compare", "--workload", "gups", "--designs", "radix,thp"],
        ["compare", "--mix", "gups,bfs", "--designs", "radix,thp"],
        ["workloads"],
        ["designs"],
        ["machines"],
        ["explain", "x"],
        ["doctor"],
        ["record", "-o", "TRACE", "--", "true", HOSTILE.replace("\x00", "")],
        ["trace", "info", "TRACE"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_outside_text_is_shown_and_does_nothing(
    width: int, arguments: list[str], tmp_path: Path
) -> None:
    trace = tmp_path / "t[bold]\x1b[1m"
    trace.write_bytes(b"")
    here = [str(trace) if a == "TRACE" else a for a in arguments]
    _, text = shown(width, "-c", child(*here))
    assert "Traceback" not in text
    if width >= 140:  # Two columns fold side by side below.
        assert re.sub(r"\s", "", visible(HOSTILE)) in re.sub(r"\s", "", text)


def test_errors_with_quoted_control_characters_are_one_line(tmp_path: Path) -> None:
    for arguments in (
        ["run", "--workload", "gups", "--size", HOSTILE],
        ["run", "--trace", HOSTILE],
    ):
        status, text = shown(200, "-m", "pagewalk", *arguments)
        assert status == 2
        assert visible(HOSTILE) in text
        assert text.count("\n") == 1
    trace = tmp_path / "t.pwt"
    trace.write_bytes(b"")
    status, text = shown(200, "-c", child("trace", "check", str(trace)))
    assert status == 1
    assert f": {visible(HOSTILE)}; good are 1" in text


class Screen(io.StringIO):
    """A terminal, as far as Python asks."""

    def isatty(self) -> bool:
        return True


def test_a_progress_bar_takes_a_phase_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    with progress.Bar() as bar:
        bar.update({"phase": HOSTILE, "done": 1, "total": 3, "seconds": 0.1})
    drawn = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert visible(HOSTILE) in drawn
    assert re.findall(r"[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f]", drawn) == []


@widths
def test_a_reproduced_figure_shows_every_number(
    width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    rows = [
        Row(f"application-{i}", "memory-efficient hashing" + HOSTILE, 1234.5 * i, 1111.25, "KiB")
        for i in range(1, 5)
    ]
    rows.append(Row("gups", "ecpt", None, 3.5, "×", failed="no memory"))
    finished = SimpleNamespace(
        name="fig[8]", figure=SimpleNamespace(title=HOSTILE), rows=rows, samples=HOSTILE
    )
    paper = SimpleNamespace(
        title=HOSTILE, source=HOSTILE, scale=SimpleNamespace(name="smoke", about="1/32 of [it]")
    )
    whole: Any = SimpleNamespace(
        paper=paper, figures=[finished], ended_early=[HOSTILE], broken=[HOSTILE]
    )
    screen = Screen()
    reproduction.show(whole, screen)
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) == []
    assert all(cell_len(line) <= width for line in text.split("\n"))
    assert "fig[8]" in text
    for row in rows:
        ours = "cannot finish" if row.failed else papers.number(row.value, row.unit)
        assert holds(text, ours)
        assert holds(text, papers.number(row.paper, row.unit))
        assert papers.difference(row) in text


def test_a_page_shows_outside_text_and_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = HOSTILE.replace("\n", "") + "<script>"
    spec = {"designs": ["radix" + hostile, "thp"], "seed": 1, "machine": hostile, "limits": {}}
    answer = fake.result(spec)
    answer["source"]["name"] = answer["designs"][0]["description"] = hostile
    answer["warnings"] = [hostile]
    answer["designs"][0]["config"][hostile] = hostile
    result = Result(answer)
    for text in (result.to_html(), result._repr_html_()):
        assert "<script" not in text.replace(f"<script>{SCRIPT}</script>", "")
        assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) == []
        assert html.escape(visible(hostile)) in text
    assert re.findall(r"[\x00-\x1f\x7f-\x9f]", repr(result)) == []


def test_every_character_that_acts_is_written_out() -> None:
    assert visible("a\x1b[31m\x07\n\t\x85\u2028\u202e\udcff") == (
        r"a\x1b[31m\x07\n\t\x85\u2028\u202e\xff"
    )
    assert visible("grep -c '[a-z]' ünï ✓ \\n") == "grep -c '[a-z]' ünï ✓ \\n"
