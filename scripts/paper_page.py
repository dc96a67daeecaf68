"""Keeps the numbers of a whole reproduction of a paper, and generates its page from them.

    pagewalk reproduce mehpt --scale smoke --out DIR
    python scripts/paper_page.py mehpt --keep DIR     writes papers/mehpt/results.json
    python scripts/paper_page.py mehpt --write        docs/papers/mehpt.md from papers/mehpt/page.md

A figure on request has a file of its own, results-FIGURE.json; figures at another scale are in
results-FIGURE@SCALE.json. Without --write the exit status is 1 if the page does not agree with the
kept results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pagewalk.errors import PagewalkError, UserError
from pagewalk.reproduce import claims
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.stored_results import NAME, TEMPLATE, StoredResults

ROOT = Path(__file__).resolve().parent.parent


def page(paper: str) -> str:
    folder = ROOT / "papers" / paper
    if not (folder / TEMPLATE).is_file():
        raise UserError(f"there is no template '{folder / TEMPLATE}'; write one, or name a paper")
    return claims.page(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paper")
    parser.add_argument("--keep", metavar="DIR", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    place = ROOT / "docs" / "papers" / f"{arguments.paper}.md"
    try:
        if arguments.keep:
            run = StoredResults.read(arguments.keep / NAME)
            run.store(ROOT / "papers" / arguments.paper, papers.load(arguments.paper).on_request)
        text = page(arguments.paper)
    except PagewalkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.write:
        place.write_text(text, encoding="utf-8")
        return 0
    if place.read_text(encoding="utf-8") == text:
        return 0
    print(f"{place} is not what {NAME} says; run it with --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
