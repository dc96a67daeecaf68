"""Generated parts of docs/validation.md, between `<!-- NAME -->` and `<!-- end -->`."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "validation.md"


def write(name: str, text: str) -> None:
    """Puts `text` between the marks of `name`; the page has to have them."""
    page = PAGE.read_text()
    marked = re.compile(rf"(<!-- {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
    if not marked.search(page):
        raise SystemExit(f"{PAGE} has no marks for {name}")
    PAGE.write_text(marked.sub(lambda m: m[1] + text + m[2], page))
