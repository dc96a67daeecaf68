"""Lists the pages of a simulated program for linux/guest/touch_pages.

    pagewalk run --design revelator --workload gups --size 64MiB --page-mappings --json run.json
    python3 linux/touches.py run.json > gups.touches

If the design places pages by hash, they are listed in the order of their first placement, else in
ascending order of address. 2 MB pages are marked `huge`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kernels import Failure

Json = dict[str, Any]
HUGE = 2 << 20

Page = tuple[int, int, bool]
"""First page number, number of 4 KB pages, and true for a 2 MB page."""


def ranges(pages: Iterable[Page]) -> Iterator[Page]:
    """The pages, with those that follow each other in one range."""
    first, count, huge = 0, 0, False
    for vpn, number, is_huge in pages:
        if count and (vpn, is_huge) == (first + count, huge):
            count += number
            continue
        if count:
            yield first, count, huge
        first, count, huge = vpn, number, is_huge
    if count:
        yield first, count, huge


def pages_of(result: Json, design: str | None, process: int) -> list[Page]:
    """The pages of a process on a design, in the order of the list."""
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
    hashed = chosen.get("hashed_frames")
    if hashed is not None:
        asid = hashed["asids"][process]
        size = {"page": 1, "huge": HUGE >> 12}
        return [
            (one["vpn"], size[one["content"]], one["content"] == "huge")
            for one in hashed["placed"]
            if one["asid"] == asid and one["content"] in size
        ]
    return sorted((p["address"] >> 12, p["bytes"] >> 12, p["bytes"] >= HUGE) for p in pages)


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
