"""Lists the pages of a simulated program for linux/guest/touch_pages.

    pagewalk run --design revelator --workload gups --size 64MiB --page-mappings --json run.json
    python3 linux/touches.py run.json > gups.touches

Pages are listed in ascending order of address. 2 MB pages are marked `huge`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
HUGE = 2 << 20


class Failure(Exception):
    """One sentence for the user."""


def ranges(pages: Iterable[Json]) -> Iterator[tuple[int, int, bool]]:
    """First page number, number of 4 KB pages, and True for 2 MB pages, of adjacent pages."""
    first, count, huge = 0, 0, False
    for page in pages:
        vpn, number, is_huge = page["address"] >> 12, page["bytes"] >> 12, page["bytes"] >= HUGE
        if count and (vpn, is_huge) == (first + count, huge):
            count += number
            continue
        if count:
            yield first, count, huge
        first, count, huge = vpn, number, is_huge
    if count:
        yield first, count, huge


def pages_of(result: Json, design: str | None, process: int) -> list[Json]:
    """The pages of a process on a design, in ascending order of address."""
    names = [one["name"] for one in result["designs"]]
    if design is not None and design not in names:
        raise Failure(f"the run has no design '{design}'; expected one of {', '.join(names)}")
    chosen = result["designs"][names.index(design) if design is not None else 0]
    if chosen.get("mappings") is None:
        raise Failure("the run has no mappings; expected one with --page-mappings")
    pages = [page for page in chosen["mappings"] if page["process"] == process]
    if not pages:
        known = sorted({page["process"] for page in chosen["mappings"]})
        raise Failure(f"no page of process {process} is mapped; expected one of {known}")
    return sorted(pages, key=lambda page: page["address"])


def read(path: str) -> Json:
    """The result of a run. Raises `Failure` for another file."""
    try:
        result = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise Failure(f"'{path}': {error}; expected a file of pagewalk run --json") from None
    if not isinstance(result, dict) or "designs" not in result:
        raise Failure(f"'{path}': it has no designs; expected a file of pagewalk run --json")
    return result


def main() -> int:
    """Prints the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("result", help="JSON file of a run with --page-mappings")
    parser.add_argument("--design", help="design of the run (default: the first)")
    parser.add_argument("--process", type=int, default=0, help="process, from 0 on (default: 0)")
    given = parser.parse_args()
    try:
        found = pages_of(read(given.result), given.design, given.process)
    except Failure as why:
        print(f"touches.py: {why}", file=sys.stderr)
        return 1
    for first, count, huge in ranges(found):
        print(first, count, *(["huge"] if huge else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
