"""Key-value programs that query an STLT: the libraries' containers against ours.

    python validation/kv_asked.py [--only NAME[,NAME...]] [--containers KIND[,KIND...]]
        [--distributions NAME[,NAME...]] [--keys N] [--operations N] [--write]

Builds `kv_asked_*` of validation/programs, runs each live with a design without STLT and
with it, and its built-in counterpart with `shortcut=stlt` on the same two. Compares cycles,
instructions and shortcut queries a request, and the hits of the queries. Also with two containers
of the same keys, which the integers or the records distinguish. The real programs' answers to all
GETs are compared with those of containers without a shortcut.

Needs g++, libsparsehash-dev, libabsl-dev, libxxhash-dev and the packages of `pagewalk doctor`.
`--write` puts the rows into the table of docs/validation.md, where those of other programs stay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import marked
import script_arguments
from marked import row

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "validation" / "programs"
REAL = {
    "hash": "std::unordered_map",
    "dense": "google::dense_hash_map",
    "map": "std::map",
    "btree": "absl::btree_map",
}


@dataclass
class Kind:
    """A kind of containers: prefixes of its programs, and parameters of the built-in program."""

    # Text after the distribution in the table.
    suffix: str
    # Prefix of the program that queries an STLT.
    with_table: str
    # Prefix of the program without a table, and its name if it differs.
    plain: str
    plain_name: str | None
    requests: list[str]
    parameters: dict[str, str]


TWO = ["0", "same", "2"]
KINDS = {
    "one": Kind("", "kv_asked_", "kv_", None, [], {}),
    "identifiers": Kind(
        ", two, identifiers",
        *("kv_asked_two_", "kv_two_", "hash", TWO),
        {"indexes": "2", "shortcut_id": "0"},
    ),
    "owner": Kind(
        ", two, the record says whose",
        *("kv_asked_owner_", "kv_two_", "hash", TWO),
        {"indexes": "2"},
    ),
}
SETS = {"zipfian": 0, "latest": 5}
VALUE = 64


@dataclass
class Design:
    """Counts of one design, a request."""

    cycles: float
    instructions: float
    loads: float
    hits: float
    inserts: float


def designs(report: Path, operations: int) -> tuple[Design, Design]:
    """The counts without STLT and with it."""
    data = json.loads(report.read_text())
    found = []
    for design in data["designs"]:
        if data["partial"] or design["status"] != "complete":
            raise SystemExit(f"{design['name']}: ended early: {design['message']}")
        summary = {q["name"]: q["value"] for q in design["summary"]}
        table = {s["name"]: s["value"] for s in design["stats"] if s["path"] == "stlt"}
        numbers = [summary["cycles"], summary["instructions"]]
        numbers += [table.get(name, 0) for name in ("loads", "hits", "inserts")]
        found.append(Design(*(n / operations for n in numbers)))
    return found[0], found[1]


def plain_of(name: str, kind: Kind) -> str:
    """The program that answers without a table."""
    return kind.plain + (kind.plain_name or name)


class Comparison:
    """Runs of one machine and one pair of designs, in a folder of their own."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        """A comparison with the arguments of the command line."""
        self.folder, self.arguments = folder, arguments
        self.report = folder / "result.json"

    def run(self, *source: str) -> tuple[Design, Design]:
        """Compares the two designs on the whole region of interest."""
        table = f"stlt[shortcut.stlt.rows={self.arguments.rows}]"
        command = [sys.executable, "-m", "pagewalk", "compare", "--roi", "--warmup", "0"]
        command += ["--instructions", "1T", "--machine", self.arguments.machine]
        command += ["--designs", f"radix,{table}", "--json", str(self.report), *source]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
        return designs(self.report, self.arguments.operations)

    def real(self, name: str, distribution: str, kind: Kind) -> tuple[Design, Design]:
        """The library's container. The instance of each design reads the requests by itself."""
        requests, keys = self.folder / "requests", str(self.arguments.keys)
        words = [keys, str(self.arguments.operations), distribution, str(SETS[distribution])]
        with requests.open("wb") as file:
            command = [str(SOURCES / "kv_requests"), *words, str(VALUE), *kind.requests]
            subprocess.run(command, check=True, stdout=file)
        with requests.open("rb") as file:
            command = [str(SOURCES / plain_of(name, kind)), keys]
            plain = subprocess.run(command, check=True, stdin=file, capture_output=True)
        # Each instance has another $$.
        program = f"{SOURCES}/{kind.with_table}{name}"
        shell = f'exec {program} {keys} < {requests} > "{self.folder}/answers.$$"'
        both = self.run("--", "sh", "-c", shell)
        answers = list(self.folder.glob("answers.*"))
        if len(answers) != 2 or any(a.read_bytes() != plain.stdout for a in answers):
            raise SystemExit(
                f"{kind.with_table}{name}: other answers than {plain_of(name, kind)}'s"
            )
        for file_of_answers in answers:
            file_of_answers.unlink()
        return both

    def builtin(self, name: str, distribution: str, kind: Kind) -> tuple[Design, Design]:
        """The built-in program of the same work."""
        parameters = {
            "keys": self.arguments.keys,
            "operations": self.arguments.operations,
            "distribution": distribution,
            "sets": SETS[distribution],
            "value": VALUE,
            "shortcut": "stlt",
            **kind.parameters,
        }
        words = [word for n, v in parameters.items() for word in ("--param", f"{n}={v}")]
        return self.run("--workload", f"kv-{name}", *words)


COLUMNS = [
    *("cycles a request, `radix`", "with STLT", "speedup"),
    *("instructions a request, `radix`", "with STLT"),
    *("`loadVA` a request", "hits", "`insertSTLT`"),
]


def cells(without: Design, table: Design) -> Iterator[str]:
    """The cells of a row."""
    yield from (f"{without.cycles:.0f}", f"{table.cycles:.0f}")
    yield f"{without.cycles / table.cycles:.2f}"
    yield from (f"{without.instructions:.0f}", f"{table.instructions:.0f}")
    yield from (f"{table.loads:.3f}", f"{table.hits:.3f}", f"{table.inserts:.3f}")


def command_line() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = script_arguments.parser(__doc__)
    parser.add_argument("--only", default=",".join(REAL), help="programs, with commas")
    parser.add_argument("--containers", default=",".join(KINDS), help="with commas")
    parser.add_argument("--distributions", default=",".join(SETS), help="with commas")
    parser.add_argument("--keys", type=int, default=30_000)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=1 << 18)
    parser.add_argument("--machine", default="stlt-table3")
    arguments = parser.parse_args()
    for flag, given, known in (
        ("--only", arguments.only, REAL),
        ("--containers", arguments.containers, KINDS),
        ("--distributions", arguments.distributions, SETS),
    ):
        script_arguments.names(parser, flag, given, known)
    return arguments


def main() -> int:
    """Runs, compares and prints."""
    arguments = command_line()
    names = arguments.only.split(",")
    kinds = [KINDS[kind] for kind in arguments.containers.split(",")]
    targets = [t for n in names for k in kinds for t in (k.with_table + n, plain_of(n, k))]
    subprocess.run(["make", "-s", "-C", str(SOURCES), "kv_requests", *targets], check=True)
    lines = [row("program", "", *COLUMNS), row("---", "---", *["--:"] * len(COLUMNS))]
    print("\n".join(lines), flush=True)
    cases = [(k, d, n) for k in kinds for d in arguments.distributions.split(",") for n in names]
    for kind, distribution, name in cases:
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(Path(folder), arguments)
            real = cells(*comparison.real(name, distribution, kind))
            built = cells(*comparison.builtin(name, distribution, kind))
        rows = [
            row(f"`{REAL[name]}`", distribution + kind.suffix, *real),
            row(f"`kv-{name}`", "", *built),
        ]
        print("\n".join(rows), flush=True)
        lines += rows
    if arguments.write:
        sizes = f"{arguments.keys} keys, {arguments.operations} requests, {arguments.rows} rows"
        text = f"On `{arguments.machine}`; `python validation/kv_asked.py`: {sizes}.\n\n"
        marked.write("kv-asked", text + "\n".join(marked.kept("kv-asked", lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
