"""Counts the tests that ran, and lists the slowest of both languages.

    python scripts/slowest.py TARGET

reads TARGET/test-rust.log and TARGET/test-python.xml, which `make test` writes.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

SHOWN = 25

_TEST = re.compile(
    r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)\b.*?(?: <([\d.]+)s>)?$"
)


class Test(NamedTuple):
    """A test that ran or was skipped, with its seconds."""

    seconds: float
    name: str
    skipped: bool


def rust(log: str) -> list[Test]:
    """The tests in the output of `cargo test -- --report-time`."""
    found = (_TEST.match(line) for line in log.splitlines())
    return [Test(float(f[3] or 0), f[1], f[2] == "ignored") for f in found if f]


def python(report: str) -> list[Test]:
    """The tests in a JUnit report of pytest."""
    cases = ElementTree.fromstring(report).iter("testcase")
    return [
        Test(
            float(case.get("time", 0)),
            f"{case.get('classname', '')}::{case.get('name', '')}",
            case.find("skipped") is not None,
        )
        for case in cases
    ]


def main(target: Path) -> None:
    """Prints the counts and the slowest tests."""
    languages = {
        "Rust": rust((target / "test-rust.log").read_text(errors="replace")),
        "Python": python((target / "test-python.xml").read_text()),
    }
    for language, tests in languages.items():
        skipped = sum(test.skipped for test in tests)
        print(f"{language}: {len(tests) - skipped} tests ran, {skipped} skipped")
    print("Slowest (seconds, with others beside them):")
    for test in sorted((t for tests in languages.values() for t in tests), reverse=True)[:SHOWN]:
        print(f"{test.seconds:7.1f}  {test.name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
