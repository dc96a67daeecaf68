"""Mistakes in a paper's folder: each is one sentence that says where, and what was expected."""

from __future__ import annotations

import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from invoking import Invoke
from pagewalk.errors import PagewalkError, UserError
from pagewalk.reproduce import Design
from pagewalk.reproduce import paper as papers
from pagewalk.runs.cache import Outcome
from pagewalk.runs.plan import keys, written
from paper import made, reproduce

PAPER = """\
title = "A paper"
source = "Nowhere 2026"
machine = "epyc-milan"
figures = ["sizes"]
full = "full"

[scales.full]
about = "as in the paper"
instructions = "40K"
warmup = "0"
seeds = 2

[scales.tiny]
about = "less"
requests = "2K"
warmup_requests = "1K"

[machines.Large]
machine = "epyc-milan"
set = { "os.memory_gb" = 128 }

[designs.A]
design = "radix"

[designs."B, too"]
design = "thp"
set = { "os.fragmentation" = "none" }

[applications.small]
workload = "gups"
size = "64KiB"
threads = 1
params = { chunk = 7 }
host_memory = "1GiB"
start_seconds = 1.5
skip = "1K"
roi = true

[applications.small.at.tiny]
size = "32KiB"

[applications.both]
mix = ["gups:size=1MiB", { workload = "gups", size = "2MiB" }]
"""

SIZES = """\
from pagewalk.reproduce import Bars, Figure, Panel, Row

class Sizes(Figure):
    title = "Sizes"
    place = "figure 1"
    panels = (Panel(Bars("KB")),)

    def runs(self, paper):
        return paper.cross(["small"], ["A", "B, too"])

    def rows(self, paper, results):
        return [
            Row(app, design, results(run).get("ipc"))
            for (app, design), run in self.runs(paper).items()
        ]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return made(tmp_path, {"paper.toml": PAPER, "sizes.py": SIZES})


def _line(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize(
    ("old", "new", "at", "message"),
    [
        ('title = "A paper"', "title = 3", "title", "title: expected a text in quotes, found 3"),
        ('title = "A paper"\n', "", "", "'title' is missing; expected a text in quotes"),
        ('title = "A paper"', "titel = 3", "titel", "titel is unknown; did you mean 'title'?"),
        ('title = "A', 'title = "A\n', "", "is not TOML"),
        ('figures = ["sizes"]', 'figures = "sizes"', "figures", "expected a list of texts"),
        ('["sizes"]', '["sizes", "sizes"]', "figures", "'sizes' is there twice"),
        ('["sizes"]', '["../sizes"]', "figures", "'../sizes' is no name of a figure; expected"),
        (
            'full = "full"',
            'full = "ful"',
            "full = ",
            "there is no scale 'ful'; did you mean 'full'",
        ),
        ("[scales.full]", '[scales."../x"]', "[scales.", "a scale cannot be called '../x'; exp"),
        ("[scales.full]", "[scale.full]", "[scale.", "scale is unknown; did you mean 'scales'?"),
        ('instructions = "40K"', 'instructions = "forty"', "instr", "'forty' is not understood"),
        ('instructions = "40K"', "instructions = true", "instr", "True is not understood"),
        ('instructions = "40K"', 'instructions = "0"', "instr", "expected a count of at least 1"),
        ('instructions = "40K"\n', "", "[scales.f", "'instructions' is missing; expected a count"),
        ('warmup = "0"', 'warmpu = "0"', "warmpu", "warmpu is unknown; did you mean 'warmup'?"),
        ("seeds = 2", 'seeds = "2"', "seeds", "'2' is not possible; expected 1 to 1000"),
        ("seeds = 2", "seeds = true", "seeds", "True is not possible; expected 1 to 1000"),
        ('requests = "2K"', 'instructions = "2K"', "[scales.tiny]", "or requests and warmup_requ"),
        ('design = "radix"', 'desing = "radix"', "desing", "is unknown; did you mean 'design'?"),
        ('design = "radix"', "design = ['radix']", "design = ", "expected a text in quotes"),
        ("[designs.A]", '[designs."A/B"]', "[designs.", "a design cannot be called 'A/B'"),
        ('"os.fragmentation" = "none"', '"a.b" = 07:32:00', 'set = { "a', "found '07:32:00'"),
        ('"os.fragmentation" = "none"', '"a.b" = nan', 'set = { "a', "designs.B, too.set.a.b: ex"),
        ('{ "os.memory_gb" = 128 }', "3", "set = 3", "machines.Large.set: 3 is no table"),
        ('workload = "gups"\n', "", "[applications.small]", "expected one of workload, trace, mix"),
        (
            'size = "64KiB"',
            'size = "64 kilo"',
            "size = ",
            "'64 kilo' is not understood; expected a",
        ),
        ('size = "64KiB"', "size = 1.5", "size = ", "'1.5' is not a whole number; expected a size"),
        ("threads = 1", "threads = 0", "threads", "expected a whole number from 1 to"),
        ("{ chunk = 7 }", "{ chunk = [7] }", "params", "expected a text or a number, found [7]"),
        ("{ chunk = 7 }", "7", "params", "applications.small.params: 7 is no table"),
        ('host_memory = "1GiB"', 'host_memory = "1 GB/s"', "host_m", "'1 GB/s' is not understood"),
        (
            "start_seconds = 1.5",
            "start_seconds = inf",
            "start_s",
            "expected a number of seconds, 0",
        ),
        (
            "start_seconds = 1.5",
            'start_seconds = "1"',
            "start_s",
            "expected a number of seconds, f",
        ),
        ("roi = true", "roi = 1", "roi", "expected true or false, found 1"),
        (".at.tiny]", ".at.tinny]", "[applications.small.at", "did you mean 'tiny'? there are fu"),
        ('size = "32KiB"', 'sise = "32KiB"', "sise", "sise is unknown; did you mean 'size'?"),
        ('mix = ["gups:size=1MiB"', "mix = [3", "mix", "3 is no program of a mix; expected a text"),
        ('mix = ["gups:size=1MiB"', 'mix = ["gups:size"', "mix", "'size' is not understood"),
    ],
)
def test_a_mistake_in_paper_toml_is_an_error_with_its_line(
    folder: Path, invoke: Invoke, old: str, new: str, at: str, message: str
) -> None:
    assert PAPER.count(old) >= 1
    text = PAPER.replace(old, new, 1)
    (folder / "paper.toml").write_text(text)
    # Also at another scale than that which has it.
    status, out, err = reproduce(invoke, folder)
    assert (status, out) == (2, ""), err
    place = f"{folder}/paper.toml:{_line(text, at)}: " if at else f"{folder}/paper.toml: "
    assert err.startswith(f"error: {place}"), err
    assert message in err
    assert err.count("\n") == 1
    assert not (folder.parent / "cache").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Sizes", "clas Sizes", r"sizes\.py:3: SyntaxError: invalid syntax"),
        ('title = "Sizes"', "title = 1 / 0", r"sizes\.py:4: ZeroDivisionError: division by zero"),
        ('    title = "Sizes"\n', "", r"sizes\.py: the class Sizes has no title; expected title"),
        ("import Bars,", "import Barrs,", r"sizes\.py:1: ImportError: cannot import name 'Barrs'"),
        ('(Panel(Bars("KB")),)', "3", r"sizes\.py: .* panels is 3; expected a list of Panel"),
        ('["small"]', '["smal"]', r"sizes\.py:9: there is no application 'smal'; did you mean 's"),
        ('["A", "B', '["a", "B', r"sizes\.py:9: there is no design 'a'; .*designs: A, B, too"),
        ("return paper.cross", "return [3] or ", r"sizes\.py: runs gives \[3\]; expected Runs"),
        ("return paper.cross", "return None and", r"sizes\.py: runs gives None; expected Runs"),
        ('results(run).get("ipc")', "unknown", r"sizes\.py:13: NameError: name 'unknown' is not"),
        ('results(run).get("ipc")', "'x'", r"the row small, A has value='x'; expected a number"),
        ("        return [\n", "        return None and [\n", "rows gives None; expected a list"),
    ],
)
def test_a_mistake_in_a_figure_is_an_error_with_its_line(
    folder: Path, invoke: Invoke, old: str, new: str, message: str
) -> None:
    assert PAPER.count("sizes") and SIZES.count(old) >= 1
    (folder / "sizes.py").write_text(SIZES.replace(old, new, 1))
    (folder / "paper.toml").write_text(PAPER.replace("seeds = 2", "seeds = 1"))
    status, out, err = reproduce(invoke, folder)
    assert (status, out) == (2, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("error: ")
    assert re.search(message, last), last
    assert "Traceback" not in err


def test_an_alias_of_a_type_beside_a_figure_is_no_mistake(folder: Path, invoke: Invoke) -> None:
    """`list[int]` is an instance of `type` in Python 3.10; the object is in every version."""
    alias = "\n\nclass Alias:\n    __class__ = type\n\n\nPairs = list[int]\nSame = Alias()\n"
    (folder / "sizes.py").write_text(SIZES + alias)
    (folder / "paper.toml").write_text(PAPER.replace("seeds = 2", "seeds = 1"))
    status, _, err = reproduce(invoke, folder)
    assert status == 0, err


def test_a_figure_without_a_file_is_an_error(folder: Path, invoke: Invoke) -> None:
    (folder / "paper.toml").write_text(PAPER.replace('["sizes"]', '["size"]'))
    status, _, err = reproduce(invoke, folder)
    assert status == 2
    assert f"there is no file '{folder}/size.py' for figure 'size'; did you mean 'sizes'?" in err


def test_an_exception_in_paper_py_is_an_error_with_its_line(folder: Path, invoke: Invoke) -> None:
    (folder / "paper.py").write_text(
        "from pagewalk.reproduce import Paper\n\n"
        "class Mine(Paper):\n"
        "    def __init__(self, *arguments):\n"
        "        super().__init__(*arguments)\n"
        "        self.scales['no such']\n"
    )
    status, _, err = reproduce(invoke, folder)
    assert (status, err) == (2, f"error: {folder}/paper.py:6: KeyError: 'no such'\n")


@pytest.mark.parametrize("scale", ["../x", "a/b", "", "-x", ".", "x" * 300, "a\nb"])
def test_a_scale_cannot_name_another_place(folder: Path, invoke: Invoke, scale: str) -> None:
    status, _, err = reproduce(invoke, folder, f"--scale={scale}")
    assert status == 2
    assert "--scale: a scale cannot be called" in err
    # The default place of what comes out is made of it.
    quoted = '"' + scale.replace("\n", "\\n") + '"'
    (folder / "paper.toml").write_text(
        PAPER.replace("[scales.full]", f"[scales.{quoted}]").replace('"full"', quoted)
    )
    status, _, err = reproduce(invoke, folder)
    assert status == 2
    assert f"{folder}/paper.toml:7: scales.{scale}"[:60].split("\n")[0] in err


@pytest.mark.parametrize("label", ["../x", "a/b", "", "a\nb", "x" * 300, "a\0b"])
def test_a_label_cannot_name_another_place(tmp_path: Path, label: str) -> None:
    with pytest.raises(UserError, match="a design cannot be called"):
        written(Design(label, "radix"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_design_of_one_s_own_lies_beside_paper_toml(
    folder: Path, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / "mine.toml").write_text('base = "radix"\n[mmu]\nwalkers = 1\n')
    (folder / "paper.toml").write_text(PAPER.replace('design = "radix"', 'design = "mine.toml"'))
    paper = papers.load(str(folder))
    found, wrong = keys(paper.runs_of(paper.figures()["sizes"]), tmp_path)
    assert (len(found), wrong) == (2, {})
    for content, message in ((b"[mmu", "is not TOML"), (b"\xff = 3", "mine.toml:1: is no text")):
        (folder / "mine.toml").write_bytes(content)
        _, wrong = keys(paper.runs_of(paper.figures()["sizes"]), tmp_path)
        assert len(wrong) == 1
        assert message in next(iter(wrong.values()))


# Whatever is in it.

VALUES = [
    *("3", "-1", "0", "1e400", "nan", "true", '""', '"x"', '"../x"', '"4GiB"', "[]", "{}", "[[3]]"),
    *("{ a = 1 }", "1979-05-27", "07:32:00", '["a", 3]', '"\\u0000"', '"5 apples"', "9" * 40),
    *('{ "" = 1 }', "'''\n'''", '{ a = { b = [ { c = "d" } ] } }', "-0.0", "[", "'", "]", "="),
]
LINES = PAPER.splitlines()
KEYS = sorted({line.split(" = ")[0] for line in LINES if " = " in line} | {"", '"a.b"', "a.b.c"})
CHANGES = st.one_of(
    st.tuples(st.just("value"), st.integers(0, len(LINES) - 1), st.sampled_from(VALUES)),
    st.tuples(st.just("key"), st.integers(0, len(LINES) - 1), st.sampled_from(KEYS)),
    st.tuples(st.just("header"), st.integers(0, len(LINES) - 1), st.sampled_from(VALUES)),
    st.tuples(st.just("drop"), st.integers(0, len(LINES) - 1), st.just("")),
    st.tuples(st.just("twice"), st.integers(0, len(LINES) - 1), st.just("")),
    st.tuples(st.just("insert"), st.integers(0, len(PAPER)), st.text(max_size=3)),
)


def _changed(text: str, change: tuple[str, int, str]) -> str:
    how, at, what = change
    if how == "insert":
        return text[:at] + what + text[at:]
    lines = text.splitlines()
    if at >= len(lines):
        return text
    key, equals, value = lines[at].partition(" = ")
    if how == "drop":
        del lines[at]
    elif how == "twice":
        lines.insert(at, lines[at])
    elif how == "header" and lines[at].startswith("["):
        lines[at] = f"{lines[at].rpartition('.')[0]}.{what}]"
    elif equals:
        lines[at] = f"{key} = {what}" if how == "value" else f"{what} = {value}"
    return "\n".join(lines) + "\n"


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(CHANGES, min_size=1, max_size=3), st.sampled_from([None, "full", "tiny"]))
@example([("value", LINES.index("threads = 1"), "9" * 40)], None)
@example([("header", LINES.index("[designs.A]"), '"../x"')], None)
def test_any_paper_toml_is_taken_or_refused_in_a_sentence(
    changes: list[tuple[str, int, str]], scale: str | None
) -> None:
    text = PAPER
    for change in changes:
        text = _changed(text, change)
    with tempfile.TemporaryDirectory() as name:
        # A folder of its own around the runs: others write beside a temporary one.
        inside = Path(name, "runs")
        inside.mkdir()
        folder = inside / "paper"
        folder.mkdir()
        (folder / "paper.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
        (folder / "sizes.py").write_text(SIZES)
        try:
            paper = papers.load(str(folder), scale)
            for figure in paper.figures().values():
                for timing in (False, True):
                    runs = paper.cross(paper.applications, paper.designs, timing=timing)
                    keys(itertools.islice(runs, 3), inside)
                paper.rows_of(figure, lambda _run: Outcome("", None, "not run"))
                paper.note(figure)
        except PagewalkError as error:
            assert str(error)
            assert len(str(error)) < 1000
        assert {path.name for path in Path(name).iterdir()} == {"runs"}


def test_a_shipped_paper_names_its_lines() -> None:
    text = (papers.papers()["stlt"] / "paper.toml").read_text()
    from pagewalk.config.toml_position import lines

    found: dict[str, Any] = dict(lines(text))
    for key, start in (("about", 'about = """'), ("scales.smoke.keys", 'keys = "312500"')):
        assert text.splitlines()[found[key] - 1].startswith(start)
    assert "Perfect TLB, STLT" in text.splitlines()[found["designs.Perfect TLB, STLT"] - 1]
