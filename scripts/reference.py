"""Writes the reference pages that are made from the code.

python scripts/reference.py            writes docs/statistics.md and docs/configuration.md
python scripts/reference.py --check    fails when they are not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from pagewalk.view.reference import pages

DOCS = Path(__file__).parent.parent / "docs"


def main() -> int:
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if "--check" in sys.argv[1:]:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path))
        else:
            path.write_text(text)
    if stale:
        print(f"{', '.join(stale)}: not up to date; run 'make docs'", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
