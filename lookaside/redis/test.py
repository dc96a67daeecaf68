#!/usr/bin/env python3
"""Runs Redis' own tests on a server with lookaside, and writes a row for each unit to a file.

    lookaside/redis/test.py FOLDER RESULTS [--unit UNIT]... [--workers N]

The table is small, so that rows replace one another, always on, and every hit is compared with the
dictionary. A unit with a failed test is repeated with the table, and then without it. `both`
counts tests that fail each time, and `table` those that fail twice with the table and not without
it. `once` counts those that fail in one of the two runs with the table. Rows of units that are not
run stay in the file.
"""

import argparse
import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
WITH = {"LOOKASIDE_ROWS": "4096", "LOOKASIDE_AUTOMATIC": "0", "LOOKASIDE_CHECK": "1"}
WITHOUT = {"LOOKASIDE_ROWS": "0"}
PORTS = 2500
"""Ports of a worker's servers."""
LIMIT = 1800
"""Seconds after which a unit is ended."""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COUNTS = re.compile(r"lookaside: (\d+) lookups, (\d+) misses")
SERVER_STATE = re.compile(r"\d+|0x[0-9a-f]+")
"""Numbers in a message that differ from run to run."""
CLUSTER = "cluster/"
"""Prefix of the units of `runtest-cluster`."""


@dataclass
class Run:
    """Outcome of a unit: passed tests, failed ones by name, and lookups and hits of its servers."""

    passed: int = 0
    failed: set[str] = field(default_factory=set)
    lookups: int = 0
    hits: int = 0


def units(redis: Path) -> list[str]:
    """Names of all units: of the main tests, of the modules' tests, and of the cluster's tests."""
    main = subprocess.run(
        ["./runtest", "--list-tests"], cwd=redis, capture_output=True, text=True, check=True
    ).stdout.split()
    modules = re.findall(r"--single (\S+)", (redis / "runtest-moduleapi").read_text())
    cluster = sorted(p.stem for p in (redis / "tests/cluster/tests").glob("*.tcl"))
    return [*main, *modules, *(CLUSTER + name for name in cluster)]


def parse(text: str, cluster: bool) -> Run:
    """Passed and failed tests in the output of a run."""
    text = COLOUR.sub("", text)
    if cluster:
        # The verdict of a test stands at the end of its output, on its first line or below.
        tests = re.split(r"^\d\d:\d\d:\d\d> ", text, flags=re.MULTILINE)[1:]
        good = [test for test in tests if "OK" in test and "FAILED" not in test]
        failed = {test.splitlines()[0] for test in tests if test not in good}
        return Run(len(good), {SERVER_STATE.sub("N", name) for name in failed})
    lines = text.splitlines()
    run = Run(sum(line.startswith("[ok]") for line in lines))
    bad = [line for line in lines if line.startswith(("[err]", "[exception]", "[TIMEOUT]"))]
    run.failed = {SERVER_STATE.sub("N", line) for line in bad}
    return run


class Worker(threading.Thread):
    """Runs units in a copy of the tests, with ports of its own."""

    def __init__(
        self, number: int, folder: Path, todo: "queue.Queue[str]", report: "Report"
    ) -> None:
        super().__init__()
        self.number, self.todo, self.report = number, todo, report
        self.tree = folder / f"worker{number}"
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)
        shutil.rmtree(self.tree, ignore_errors=True)
        self.tree.mkdir()
        for path in (folder / "redis").iterdir():
            if path.name == "tests":
                # Files of earlier runs would include sockets.
                skip = shutil.ignore_patterns("tmp")
                shutil.copytree(path, self.tree / "tests", ignore=skip, symlinks=True)
            else:
                (self.tree / path.name).symlink_to(path)

    def once(self, unit: str, environment: dict[str, str], name: str) -> Run:
        """One run of a unit."""
        cluster = unit.startswith(CLUSTER)
        logs = self.tree / ("tests/cluster/tmp" if cluster else "tests/tmp")
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        if cluster:
            # The option is a pattern of file names.
            arguments = ["./runtest-cluster", "--single", unit.removeprefix(CLUSTER) + ".tcl"]
        else:
            base = 21111 + PORTS * self.number
            arguments = ["./runtest", "--single", unit, "--clients", "1"]
            arguments += ["--baseport", str(base), "--portcount", str(PORTS)]
        process = subprocess.Popen(
            [*arguments, "--dont-clean"],
            cwd=self.tree,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        # Also servers that an exception left behind.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if late:
            output, _ = process.communicate()
        text = output.decode(errors="replace")
        (self.logs / f"{unit.replace('/', '_')}.{name}.log").write_text(text)
        run = parse(text, cluster)
        if late:
            run.failed.add(f"unit not ended after {LIMIT} s")
        elif process.returncode != 0 and not run.failed:
            run.failed.add(f"exit status {process.returncode}")
        for path in logs.rglob("*"):
            if path.name in ("stdout", "log.txt") and path.is_file():
                for lookups, misses in COUNTS.findall(path.read_text(errors="replace")):
                    run.lookups += int(lookups)
                    run.hits += int(lookups) - int(misses)
        return run

    def run(self) -> None:
        """Runs units until there are none left."""
        while True:
            try:
                unit = self.todo.get_nowait()
            except queue.Empty:
                return
            first = self.once(unit, WITH, "table")
            again = without = Run()
            if first.failed:
                again = self.once(unit, WITH, "table-again")
            if always := first.failed & again.failed:
                without = self.once(unit, WITHOUT, "without")
            best = min((first, again), key=lambda run: len(run.failed)) if first.failed else first
            self.report.add(
                unit,
                best,
                sorted(always & without.failed),
                sorted(always - without.failed),
                sorted(first.failed ^ again.failed),
            )


class Report:
    """The file of results: a row for each unit, then the names of failed tests."""

    HEAD = "unit passed both table once lookups hits"

    def __init__(self, path: Path, version: str, order: list[str]) -> None:
        self.path, self.version, self.order = path, version, order
        self.lock = threading.Lock()
        self.rows: dict[str, str] = {}
        self.failures: dict[str, list[str]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                words = line.split()
                if len(words) == len(self.HEAD.split()) and words[0] in order:
                    self.rows[words[0]] = line
                elif line.startswith(("both ", "table ", "once ")):
                    self.failures.setdefault(words[1].rstrip(":"), []).append(line)

    def add(self, unit: str, run: Run, both: list[str], table: list[str], once: list[str]) -> None:
        """Replaces the row of a unit."""
        numbers = (run.passed, len(both), len(table), len(once), run.lookups, run.hits)
        with self.lock:
            self.rows[unit] = f"{unit:<44}" + " ".join(f"{n:>9}" for n in numbers)
            self.failures[unit] = [
                f"{kind} {unit}: {name}"
                for kind, names in (("both", both), ("table", table), ("once", once))
                for name in names
            ]
            self.path.write_text(self.text())
            print(self.rows[unit], flush=True)

    def columns(self) -> list[int]:
        """Sums of the columns."""
        rows = [list(map(int, row.split()[1:])) for row in self.rows.values()]
        return [sum(column) for column in zip(*rows, strict=True)]

    def text(self) -> str:
        """The contents of the file."""
        unit, *names = self.HEAD.split()
        done = [u for u in self.order if u in self.rows]
        missing = [u for u in self.order if u not in self.rows]
        return "\n".join(
            [
                f"redis {self.version} with lookaside: {len(done)} of {len(self.order)} units",
                " ".join(f"{key}={value}" for key, value in WITH.items()),
                f"{unit:<44}" + " ".join(f"{name:>9}" for name in names),
                *(self.rows[u] for u in done),
                f"{'sum':<44}" + " ".join(f"{n:>9}" for n in self.columns()),
                *(line for u in done for line in self.failures.get(u, [])),
                *(f"not run {u}" for u in missing),
                "",
            ]
        )


def main() -> None:
    """Builds the server, and runs units."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--unit", action="append", help="Units to run instead of all")
    parser.add_argument("--workers", type=int, default=3, help="Units at once")
    options = parser.parse_args()
    folder = options.folder.resolve()
    subprocess.run([HERE / "build.sh", folder], check=True)
    redis = folder / "redis"
    subprocess.run(["make", "-s", "-C", redis / "tests/modules"], check=True)
    order = units(redis)
    if unknown := set(options.unit or ()) - set(order):
        raise SystemExit(f"no such unit: {', '.join(sorted(unknown))}")
    version = re.search(r'REDIS_VERSION "(.*)"', (redis / "src/version.h").read_text())
    assert version
    report = Report(options.results.resolve(), version[1], order)
    # Ports of the cluster's tests are fixed, so one worker runs all of them.
    main_units: queue.Queue[str] = queue.Queue()
    cluster_units: queue.Queue[str] = queue.Queue()
    for unit in options.unit or order:
        (cluster_units if unit.startswith(CLUSTER) else main_units).put(unit)
    queues = [*[main_units] * options.workers, cluster_units]
    workers = [Worker(number, folder, todo, report) for number, todo in enumerate(queues)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    table = report.columns()[2]
    print(f"{options.results}: {table} tests fail only with the table")
    sys.exit(table != 0)


if __name__ == "__main__":
    main()
