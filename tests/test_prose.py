"""Sentences and lines of pages are counted as a reader counts them; comments have a subject."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "prose.py"


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose"] = module
    spec.loader.exec_module(module)
    return module


def words(count: int, end: str = ".") -> str:
    return " ".join(["w"] * count) + end


def counts(prose: ModuleType, markdown: str) -> list[tuple[int, int]]:
    """The line and the number of words of each sentence."""
    return [
        (line, len(found))
        for text in prose.texts(markdown)
        for line, found in prose.sentences(text)
    ]


def test_the_31st_word_is_too_many(prose: ModuleType) -> None:
    assert prose.findings(words(30)) == []
    ((line, message),) = prose.findings("A title.\n\n" + words(31, "?"))
    assert (line, message) == (3, f"31 words: {' '.join(['w'] * 8)}...")


def test_the_121st_character_is_too_many(prose: ModuleType) -> None:
    assert prose.findings("x" * 120) == []
    ((line, message),) = prose.findings("a\n" + "x" * 121)
    assert (line, message.split(":")[0]) == (2, "121 characters")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("One two. Three four\nfive! Six?\nSeven", [(1, 2), (1, 3), (2, 1), (3, 1)]),
        ("One\ntwo\nthree.", [(1, 3)]),
        ("As Hamerly et al. (e.g. in 2005) say.", [(1, 8)]),
        ("At 1.5 GHz - or more - it runs.", [(1, 7)]),
        ('He "ends." **It goes.** (Both.) On', [(1, 2), (1, 2), (1, 1), (1, 1)]),
        ("munmap ends. glibc goes on", [(1, 2), (1, 3)]),
        # Code and links are their visible words; punctuation in code ends no sentence.
        ("Use `run --set a.b=c` or `x. y` now.", [(1, 8)]),
        ("See [the first\nhour](docs/first. hour.md#a) now.", [(1, 5)]),
        ("See [`a.b`](c.md). Next", [(1, 2), (1, 1)]),
        ("![A long alt text](a.png) One <a id='x'></a> two", [(1, 2)]),
        ("- one\n- two\n  three\n1. four", [(1, 1), (2, 2), (4, 1)]),
        ("# One two\nthree", [(1, 2), (2, 1)]),
        ("> one\n> two.", [(1, 2)]),
        ("- item\n\n  more of it\n\n      code. code.\n", [(1, 1), (3, 3)]),
    ],
)
def test_markdown_is_split_into_sentences(
    prose: ModuleType, markdown: str, expected: list[tuple[int, int]]
) -> None:
    assert counts(prose, markdown) == expected


LONG = words(31) + " " + "x" * 121


@pytest.mark.parametrize(
    "hidden",
    [
        f"```sh\n{LONG}\n\n{LONG}\n```",
        f"~~~\n{LONG}\n```\n{LONG}\n~~~",
        f"1. step\n\n   ```text\n   {LONG}\n   ```",
        f"text:\n\n    {LONG}\n    {LONG}\n\n    {LONG}",
        f"| {LONG} | b |\n| --- | --- |",
        f"<!-- {LONG} -->",
        f"<!--\n{LONG}\n-->",
        f"<!-- speed -->\n{LONG}\n<!-- end -->",
        f"<!-- Made by `make docs` from the code. -->\n\n{LONG}",
        f"---\ntitle: {LONG}\n---",
        f"[name]: https://example.org/{LONG}",
    ],
)
def test_code_tables_and_generated_text_are_no_prose(prose: ModuleType, hidden: str) -> None:
    assert prose.findings(hidden) == []
    # The next line is prose again.
    if "Made by" not in hidden:
        after = prose.findings(f"{hidden}\n\n{LONG}")
        assert [line for line, _ in after] == [hidden.count("\n") + 3] * 2


@pytest.mark.parametrize(
    ("suffix", "source", "lines"),
    [
        (".rs", "/// What it is.\n//! Whether it is.\nlet x = 1; // of it\n", [1, 2, 3]),
        (".rs", "/// Pages\n/// of a table.\n/// What follows is one comment.\nfn f() {}\n", []),
        (".rs", "/// Pages.\n// How it works.\n\n// How it works.\n", [2, 4]),
        (".rs", '/// Offset.\n/// The address. How\nuse it; // "https://what"\n', []),
        (".py", '"""What it has."""\nx = 1\n"""\nWhether\n"""\n', [1, 3]),
        (".py", "# The same where it is.\nx = 1  # How it is.\n# of it\n", [1, 2, 3]),
        (".py", "# Pages\n# of a table.\nx = '# What'\ny = ['Of']\n", []),
        (".pyi", 'class C:\n    """Offers."""\n    # Whatever is given.\n', []),
    ],
)
def test_a_comment_begins_with_its_subject(
    prose: ModuleType, suffix: str, source: str, lines: list[int]
) -> None:
    assert [line for line, _ in prose.comments(source, suffix)] == lines


def test_status_and_lines_are_those_of_the_findings(
    prose: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(words(3))
    bad.write_text("Short.\n" + words(40))
    assert prose.main([str(good)]) == 0
    assert prose.main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out.startswith(f"{bad}:2: 40 words: w ")
    code = tmp_path / "bad.py"
    code.write_text("x = 1\n# Of it.\n")
    assert prose.main([str(code)]) == 1
    assert capsys.readouterr().out == f"{code}:2: a comment begins with 'Of'\n"
    assert {"prose.py", "lib.rs", "_native.pyi"} <= {path.name for path in prose.sources()}
    named = {path.name for path in prose.pages()}
    assert {"README.md", "DEVIATIONS.md", "first-hour.md", "sweep.md"} <= named
    assert "CHANGELOG.md" not in named


def test_a_term_names_the_code_where_it_is() -> None:
    page = (SCRIPT.parent.parent / "docs" / "terms.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    named = [path for row in rows for path in re.findall(r"`([\w./-]+)`", row[-2])]
    root = SCRIPT.parent.parent
    lost = [p for p in named if not (root / "crates" / p).exists() and not (root / p).exists()]
    assert named
    assert lost == []
