r"""Draws docs/images/compare.svg from a result: the picture of real output in the README.

pagewalk compare --workload kv-dense --instructions 60M \
    --designs radix,thp,l2tlb-128k,perfect-tlb --json result.json
python scripts/picture.py result.json
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from pagewalk.result import Result
from pagewalk.view import report

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "compare.svg"


def main() -> int:
    result = Result(json.loads(Path(sys.argv[1]).read_text()))
    console = Console(
        record=True,
        width=96,
        highlight=False,
        force_terminal=True,
        color_system="truecolor",
        file=io.StringIO(),
    )
    report.compare(result, console)
    picture = console.export_svg(title="pagewalk compare", theme=MONOKAI, unique_id="pagewalk")
    # No font from elsewhere: the reader's own monospaced one.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    picture = picture.replace("Fira Code", "DejaVu Sans Mono")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
