"""Finds long sentences and long lines in hand-written Markdown, and comments without a subject.

    python scripts/prose.py [FILE...]

Without files it reads README.md, CONTRIBUTING.md, SECURITY.md, DEVIATIONS.md, all pages of docs and
all Rust and Python files. A sentence may have 30 words, a line 120 characters. Code blocks, tables,
HTML comments, front matter and generated text are left out. Generated text is a page whose first
line says so, or a region between `<!-- name -->` and `<!-- end -->`. A comment or docstring may not
begin with "What", "Whether", "Of", "How" or "The same where". Each finding is a line, and the exit
status is 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
WORDS, CHARACTERS = 30, 120
SHOWN = 8
"""Words of a finding that are printed."""

_GENERATED = re.compile(r"<!-- made (by|of) ", re.IGNORECASE)
_REGION, _END = re.compile(r"^\s*<!-- (?!end )[\w-]+ -->\s*$"), "<!-- end -->"
_FENCE = re.compile(r"^\s*(?:(?:[-*+]|\d+[.)])\s+)?(`{3,}|~{3,})")
_ITEM = re.compile(r"^(\s*)((?:[-*+]|\d+[.)])\s+)(?=\S)")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+")
_LINK_TARGET = re.compile(r"^\s{0,3}\[[^\]]+\]:\s")
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_TAG = re.compile(r"</?[a-zA-Z][^>:]*>")
_STOP = re.compile(r"""[.!?]["'”’)\]*_]*$""")
_ABBREVIATIONS = {"e.g.", "i.e.", "al.", "cf.", "vs."}
_RUST_COMMENT = re.compile(r"(.*?)(?<!\S)(//[/!]?)\s*(.*)")
_NO_SUBJECT = re.compile(r"(what|whether|of|how|the same where)\b", re.IGNORECASE)
_CODE_SUFFIXES = {".rs", ".py", ".pyi"}
_CODE_FOLDERS = ("crates", "elastic", "python", "tests", "scripts", "validation", "papers")


class Finding(NamedTuple):
    """A sentence or a line that is too long, or a comment without a subject."""

    line: int
    message: str


class Text(NamedTuple):
    """Lines that are read as one: a paragraph, a list item or a heading."""

    line: int
    lines: list[str]


def _bare(lines: list[str]) -> list[str]:
    """The lines, emptied where they are no prose, except for indented code and tables."""
    bare: list[str] = []
    fence, until = "", ""
    for number, line in enumerate(lines):
        found = _FENCE.match(line)
        keep = ""
        if until:
            if until in line:
                until = ""
        elif fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif number == 0 and line.strip() == "---":
            until = "---"
        elif found:
            fence = found[1]
        elif _REGION.match(line) and _END in map(str.strip, lines[number + 1 :]):
            until = _END
        elif "<!--" in line:
            start, _, rest = line.partition("<!--")
            _, closed, after = rest.partition("-->")
            until = "" if closed else "-->"
            keep = start + after
        else:
            keep = line
        bare.append(keep)
    return bare


def texts(markdown: str) -> Iterator[Text]:
    """The texts of a page in order."""
    lines = markdown.splitlines()
    if lines and _GENERATED.match(lines[0]):
        return
    text = Text(0, [])
    indent = 0
    """Column at which the text of the list item around begins; 0 outside lists."""
    blank = True
    for number, line in enumerate(_bare(lines), 1):
        item, heading = _ITEM.match(line), _HEADING.match(line)
        column = len(line) - len(line.lstrip())
        if blank and line.strip() and column == 0 and not item:
            indent = 0
        code = blank and column >= indent + 4
        ends = not line.strip() or line.lstrip().startswith("|") or bool(_LINK_TARGET.match(line))
        if (ends or item or heading or code) and text.lines:
            yield text
            text = Text(0, [])
        if ends or code:
            # After code comes code, until a line is indented less.
            blank = blank if line.strip() else True
            continue
        blank = False
        if item:
            indent = len(item[1]) + len(item[2])
        if not text.lines:
            text = Text(number, [])
        text.lines.append(line)
        if heading:
            yield text
            text = Text(0, [])
    if text.lines:
        yield text


def _visible(text: Text) -> str:
    """The visible text. Punctuation in code ends no sentence."""
    first = _HEADING.sub("", _ITEM.sub("", text.lines[0]))
    shown = "\n".join(line.lstrip("> ") for line in [first, *text.lines[1:]])
    shown = _CODE.sub(lambda code: re.sub(r"[.!?\[\]<>]", "·", code[2]), shown)
    return _TAG.sub("", _LINK.sub(r"\1", _IMAGE.sub("", shown)))


def sentences(text: Text) -> Iterator[tuple[int, list[str]]]:
    """The line where each sentence begins, and its words."""
    shown = _visible(text)
    words: list[str] = []
    line = text.line
    for found in re.finditer(r"\S+", shown):
        word = found[0]
        if re.search(r"\w", word):
            if not words:
                line = text.line + shown.count("\n", 0, found.start())
            words.append(word)
        if _STOP.search(word) and word.lower().lstrip("(") not in _ABBREVIATIONS and words:
            yield line, words
            words = []
    if words:
        yield line, words


def findings(markdown: str) -> list[Finding]:
    """The sentences and lines of a page that are too long, by line."""
    found = []
    for text in texts(markdown):
        for line, words in sentences(text):
            if len(words) > WORDS:
                start = " ".join(words[:SHOWN])
                found.append(Finding(line, f"{len(words)} words: {start}..."))
        for line, shown in enumerate(text.lines, text.line):
            if len(shown) > CHARACTERS:
                start = " ".join(shown.split()[:SHOWN])
                found.append(Finding(line, f"{len(shown)} characters: {start}..."))
    return sorted(found)


def _rust_comments(source: str) -> Iterator[tuple[int, str]]:
    above = ""
    """Marker of the comment that fills the line above; empty if that line is code."""
    for number, line in enumerate(source.splitlines(), 1):
        found = _RUST_COMMENT.match(line)
        marker = found[2] if found and not found[1].strip() else ""
        if found and (not marker or marker != above):
            yield number, found[3]
        above = marker


def _python_comments(source: str) -> Iterator[tuple[int, str]]:
    above = -1
    """Line of the last comment that fills its line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            number, fills = token.start[0], token.line.lstrip().startswith("#")
            if not fills or number != above + 1:
                yield number, token.string.lstrip("# ")
            above = number if fills else -1
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str() as text)):
                yield node.lineno, text.lstrip()


def comments(source: str, suffix: str) -> list[Finding]:
    """The comments and docstrings of a Rust or Python file that begin without a subject, by line.

    Comments on consecutive lines are one comment.
    """
    found = (_rust_comments if suffix == ".rs" else _python_comments)(source)
    begins = ((line, _NO_SUBJECT.match(text)) for line, text in found)
    return sorted(
        Finding(line, f"a comment begins with '{word[1]}'") for line, word in begins if word
    )


def sources() -> list[Path]:
    """The Rust and Python files that are checked when none is named."""
    found = (path for folder in _CODE_FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(p for p in found if p.suffix in _CODE_SUFFIXES and "target" not in p.parts)


def pages() -> list[Path]:
    """The pages that are checked when none is named."""
    at_root = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "DEVIATIONS.md")
    return [*(ROOT / name for name in at_root), *sorted((ROOT / "docs").rglob("*.md"))]


def main(names: list[str]) -> int:
    found = False
    for path in map(Path, names) if names else [*pages(), *sources()]:
        shown = path if names else path.relative_to(ROOT)
        text, code = path.read_text(), path.suffix in _CODE_SUFFIXES
        for line, message in comments(text, path.suffix) if code else findings(text):
            print(f"{shown}:{line}: {message}")
            found = True
    return int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
