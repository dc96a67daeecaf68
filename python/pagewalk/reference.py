"""The reference pages of the documentation, made from the definitions in the code."""

from __future__ import annotations

import json
import re
from typing import Any

from pagewalk import native
from pagewalk import source as sources

Json = dict[str, Any]

_MADE = "<!-- Made by `make docs` from the definitions in the code; change them there. -->\n"


def pages() -> dict[str, str]:
    """The text of each page by file name."""
    return {"statistics.md": statistics(_tiny_run())}


def _tiny_run() -> Json:
    """A run of every shipped design, short: what it counts is not looked at."""
    return native.run(
        sources.specification(
            machine=sources.DEFAULT_MACHINE,
            designs=[design["name"] for design in native.call("designs")],
            source=sources.source(workload="gups", size="16MiB"),
            limits=sources.limits(
                skip=0, warmup=0, instructions=20_000, roi=False, sample_text=None, endless=True
            ),
            settings=[],
            seed=1,
            jobs=None,
            interval=None,
            perfetto=None,
            perfetto_walks=1,
        )
    )


def statistics(result: Json) -> str:
    """`docs/statistics.md`."""
    summary = {q["name"]: q for d in result["designs"] for q in d["summary"]}
    text = [
        _MADE,
        "# Statistics\n",
        "Every result holds the numbers of the summary and, for each component of the simulated "
        "machine, its counters. `pagewalk explain NAME` prints the same definitions. All count the "
        "measured part only: after skipping and warm-up.\n",
        "## Summary\n",
        "| name | unit | meaning |",
        "|---|---|---|",
        *(
            f"| `{q['name']}` | {_cell(q['unit'])} | {_cell(q['meaning'])} |"
            for q in summary.values()
        ),
        "",
        "## Counters\n",
        "`N` stands for a number. A gauge is a state at the end of the measured part; all others "
        "count what happened in it.\n",
    ]
    components: dict[str, dict[str, Json]] = {}
    for design in result["designs"]:
        for row in design["stats"]:
            path = re.sub(r"\.\d+(?=\.|$)", ".N", row["path"])
            components.setdefault(path, {}).setdefault(row["name"], row)
    for path in sorted(components):
        text += [f"### `{path}`\n", "| name | unit | meaning |", "|---|---|---|"]
        for name, row in components[path].items():
            gauge = " (gauge)" if row["gauge"] else ""
            text.append(f"| `{name}` | {_cell(row['unit'])}{gauge} | {_cell(row['meaning'])} |")
        text.append("")
    return "\n".join(text)


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|").replace("\n", " ")
