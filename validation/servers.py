"""Servers and language runtimes natively beside the same programs simulated.

    python validation/servers.py [--only NAME[,NAME...]] [--write]

Runs each program natively, without huge pages and with huge pages for all memory, and live through
QEMU on `radix` and `thp`. Both count the page faults of the whole program, and the memory in huge
pages at its end. The native runs need root, because they set
`/sys/kernel/mm/transparent_hugepage/enabled` and `vm.nr_hugepages`, which they restore. A program
that is not installed is skipped, with the command that installs it.

`--calls` counts the system calls of the programs instead, with strace, and keeps them in
validation/calls.tsv. A test of the QEMU plugin writes the table of docs/limits.md from that file.

Results are kept in validation/servers.json; `--only` replaces those of the named programs,
`--write` puts the table of all kept results into docs/validation.md. It takes some twenty minutes.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import marked
import script_arguments
from marked import row

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "servers.json"
CALLS = ROOT / "validation" / "calls.tsv"
MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
POOL = Path("/proc/sys/vm/nr_hugepages")
REPEATED = 5
"""Native runs for each mode: address randomisation changes which mappings hold a huge page."""
DESIGNS = {"radix": "never", "thp": "always"}
"""Designs, and the native mode that each is compared with."""

DICTIONARY = "d = {str(i): str(i * 7) for i in range(100000)}"
# In single-user mode, a statement is a line.
JOIN = """\
create temp table a as select g as k, g * 7 as v from generate_series(1, 20000) g;
create temp table b as select g as k, g * 3 as w from generate_series(1, 20000) g;
select count(*), sum(a.v + b.w) from a join b using (k);
"""
SQL = """\
create table a(k integer primary key, v text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000)
  insert into a select i, hex(i * 7) from n;
select count(*), sum(length(x.v || y.v)) from a x join a y on y.k = x.k + 1;
"""
JAVA = """\
public class Fill {
    public static void main(String[] arguments) {
        java.util.HashMap<String, Integer> map = new java.util.HashMap<>();
        for (int i = 0; i < 20000; i++) map.put("key " + i, i);
        System.out.println(map.size());
    }
}
"""
GO = """\
package main

import "strconv"

func main() {
	m := map[string]int{}
	for i := 0; i < 100000; i++ {
		m["key "+strconv.Itoa(i)] = i
	}
	println(len(m))
}
"""
NODE = "const m = new Map(); for (let i = 0; i < 20000; i++) m.set('key ' + i, i); m.size"
C = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct node { struct node *next; char text[64]; };
int main(void) {
    struct node *list = 0;
    for (int i = 0; i < 1000; i++) {
        struct node *n = malloc(sizeof *n);
        snprintf(n->text, sizeof n->text, "%d", i);
        n->next = list; list = n;
    }
    size_t sum = 0;
    for (struct node *n = list; n; n = n->next) sum += strlen(n->text);
    printf("%zu\\n", sum);
}
"""


@dataclass(frozen=True)
class Program:
    """A program, the package that has it, and its command in a fresh folder."""

    title: str
    needs: str
    """A path or a command's name."""
    package: str
    command: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    prepare: tuple[tuple[str, ...], ...] = ()
    """Commands that run once before, natively."""
    stdin: str = ""
    client: Callable[[Path], None] | None = None
    """Runs beside the program, and ends it."""
    user: str = ""
    """The user that runs it, if it may not be root."""
    pool: int = 0
    """Pages of 2 MB in the pool of huge pages, of the host and of the simulated machine."""


def fill_redis(folder: Path) -> None:
    """Stores 20,000 strings, 500 at a time, and shuts the server down."""
    path = folder / "socket"
    for _ in range(6000):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            break
        time.sleep(0.1)
    else:
        raise TimeoutError(f"{path}: no server within ten minutes")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        for begin in range(0, 20_000, 500):
            batch = b"".join(
                b"*3\r\n$3\r\nSET\r\n$10\r\nkey:%06d\r\n$64\r\n%064d\r\n" % (i, i)
                for i in range(begin, min(begin + 500, 20_000))
            )
            client.sendall(batch)
            answers = b""
            while answers.count(b"+OK") < batch.count(b"SET"):
                received = client.recv(4096)
                if not received:
                    raise ConnectionError("the server ended too early")
                answers += received
        client.sendall(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n")
        client.recv(1)


def redis(huge: str) -> tuple[str, ...]:
    """The command of a server at a socket in its folder."""
    options = ["--port", "0", "--unixsocket", "socket", "--save", "", "--disable-thp", huge]
    return ("redis-server", *options, "--loglevel", "warning")


def postgres(huge: str) -> tuple[str, ...]:
    """The command of a server in single-user mode."""
    options = ["-c", f"huge_pages={huge}", "-c", "shared_buffers=16MB", "-D", "data"]
    return ("postgres", "--single", *options, "postgres")


JEMALLOC, TCMALLOC = (
    f"/usr/lib/x86_64-linux-gnu/{name}" for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4")
)
PYTHON = ("/usr/bin/python3", "-c", DICTIONARY)
DATA = (("initdb", "-D", "data", "--no-sync"),)
PROGRAMS = {
    "cpython-jemalloc": Program(
        "CPython, jemalloc: a dictionary of 100,000 strings", JEMALLOC, "libjemalloc2",
        ("env", f"LD_PRELOAD={JEMALLOC}", "PYTHONMALLOC=malloc", *PYTHON),
    ),
    "cpython-tcmalloc": Program(
        "the same, tcmalloc", TCMALLOC, "libtcmalloc-minimal4",
        ("env", f"LD_PRELOAD={TCMALLOC}", "PYTHONMALLOC=malloc", *PYTHON),
    ),
    "cpython": Program(
        "the same, its own allocator", "/usr/bin/python3", "python3",
        PYTHON,
    ),
    "postgresql": Program(
        "PostgreSQL, single user: a join of 20,000 rows", "postgres", "postgresql",
        postgres("off"), prepare=DATA, stdin=JOIN,
        user="postgres",
    ),
    "postgresql-huge": Program(
        "the same, `huge_pages=on`, empty pool", "postgres", "postgresql",
        postgres("on"), prepare=DATA, stdin=JOIN,
        user="postgres",
    ),
    "postgresql-pool": Program(
        "the same, `huge_pages=on`, a pool of 64 pages", "postgres", "postgresql",
        postgres("on"), prepare=DATA, stdin=JOIN,
        user="postgres", pool=64,
    ),
    "redis": Program(
        "Redis, `disable-thp no`: 20,000 strings", "redis-server", "redis-server", redis("no"),
        client=fill_redis,
    ),
    "redis-disabled": Program(
        "the same, `disable-thp yes`", "redis-server", "redis-server", redis("yes"),
        client=fill_redis,
    ),
    "jvm": Program(
        "JVM, `-XX:+UseTransparentHugePages`: a map of 20,000 strings", "javac",
        "openjdk-17-jdk-headless",
        ("java", "-Xint", "-XX:+UseSerialGC", "-Xmx64m", "-XX:+UseTransparentHugePages", "Fill"),
        files=(("Fill.java", JAVA),), prepare=(("javac", "Fill.java"),),
    ),
    "go": Program(
        "Go, `GOMAXPROCS=1 GOGC=off`: a map of 100,000 strings", "go", "golang-go",
        ("env", "GOMAXPROCS=1", "GOGC=off", "./fill"),
        files=(("fill.go", GO),), prepare=(("go", "build", "-o", "fill", "fill.go"),),
    ),
    "node": Program(
        "Node.js: a map of 20,000 strings", "node", "nodejs", ("node", "-e", NODE),
    ),
    "sqlite": Program(
        "SQLite: a join of 50,000 rows", "sqlite3", "sqlite3", ("sqlite3",), stdin=SQL,
    ),
    "gcc": Program(
        "GCC: a page of C, `-O2`", "gcc", "gcc", ("gcc", "-O2", "-c", "list.c"),
        files=(("list.c", C),),
    ),
}  # fmt: skip


def is_installed(program: Program) -> bool:
    """True if the host has the program."""
    return shutil.which(program.needs) is not None or Path(program.needs).exists()


@contextlib.contextmanager
def huge_pages(mode: str) -> Iterator[None]:
    """Sets the host's mode of transparent huge pages within the block."""
    before = MODE.read_text().split("[")[1].split("]")[0]
    MODE.write_text(mode)
    try:
        yield
    finally:
        MODE.write_text(before)


@contextlib.contextmanager
def pool_of(pages: int) -> Iterator[None]:
    """Sets the host's pool of 2 MB pages within the block."""
    before = POOL.read_text()
    POOL.write_text(f"{pages}\n")
    try:
        if int(POOL.read_text()) != pages:
            raise MemoryError(f"the host has no {pages} free pages of 2 MB for {POOL}")
        yield
    finally:
        POOL.write_text(before)


@contextlib.contextmanager
def folder_of(program: Program) -> Iterator[Path]:
    """A fresh folder with the program's files, in which it can run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in program.files:
            (folder / file).write_text(text)
        (folder / "input").write_text(program.stdin)
        if program.user:
            shutil.chown(folder, program.user)
        for command in program.prepare:
            whole = as_user(program, command)
            subprocess.run(whole, check=True, cwd=folder, capture_output=True)
        yield folder


def as_user(program: Program, command: tuple[str, ...]) -> list[str]:
    """The command as its user would run it."""
    if not program.user or os.getuid() != 0:
        return list(command)
    return [
        "setpriv",
        f"--reuid={program.user}",
        f"--regid={program.user}",
        "--clear-groups",
        *command,
    ]


@contextlib.contextmanager
def beside(program: Program, folder: Path) -> Iterator[None]:
    """Runs the program's client during the block."""
    if program.client is None:
        yield
        return
    (folder / "socket").unlink(missing_ok=True)
    thread = threading.Thread(target=program.client, args=(folder,), daemon=True)
    thread.start()
    yield
    thread.join()


# Requests, options and events of Linux's ptrace(2).
PTRACE_CONT, PTRACE_SEIZE = 7, 0x4206
TRACE_EXEC, TRACE_EXIT = 1 << 4, 1 << 6
EVENT_EXEC, EVENT_EXIT = 4, 6
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def trace(request: int, pid: int, data: int) -> None:
    """Calls `ptrace`. Raises `OSError` if it fails."""
    if libc.ptrace(request, pid, None, data) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def native(program: Program, folder: Path) -> dict[str, float]:
    """Counts of one native run: page faults, and KB in huge pages when the program exits."""
    command = as_user(program, program.command)
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(ready, 1)
        os.chdir(folder)
        os.dup2(os.open("input", os.O_RDONLY), 0)
        os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        os.dup2(1, 2)
        os.execvp(command[0], command)
    trace(PTRACE_SEIZE, pid, TRACE_EXEC | TRACE_EXIT)
    os.write(go, b"x")
    os.close(go)
    os.close(ready)
    huge, began, before = 0, time.monotonic(), 0
    # `setpriv` executes the program, which is simulated without it.
    executions = 1 if command[0] == program.command[0] else 2
    while True:
        _, status, used = os.wait4(pid, 0)
        if not os.WIFSTOPPED(status):
            break
        if status >> 16 == EVENT_EXEC and executions > 0:
            executions -= 1
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            before = int(fields[7])
        if status >> 16 == EVENT_EXIT:
            rollup = Path(f"/proc/{pid}/smaps").read_text()
            lines = [line.split() for line in rollup.splitlines() if "Huge" in line]
            huge = sum(int(words[1]) for words in lines if words[0] in COUNTED)
        signalled = os.WSTOPSIG(status) if status >> 16 == 0 else 0
        trace(PTRACE_CONT, pid, signalled)
    return {
        "status": os.waitstatus_to_exitcode(status),
        "faults": used.ru_minflt - before,
        "huge_kb": huge,
        "user": used.ru_utime,
        "system": used.ru_stime,
        "seconds": time.monotonic() - began,
    }


COUNTED = ("AnonHugePages:", "ShmemPmdMapped:", "Private_Hugetlb:", "Shared_Hugetlb:")
"""Lines of `smaps` that count huge pages."""


def natively(program: Program, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Counts of several native runs for each mode."""
    found: dict[str, dict[str, list[float]]] = {}
    for mode in DESIGNS.values():
        with huge_pages(mode), pool_of(program.pool):
            for _ in range(REPEATED):
                with beside(program, folder):
                    for name, value in native(program, folder).items():
                        found.setdefault(mode, {}).setdefault(name, []).append(value)
    return found


def simulated(program: Program, folder: Path) -> dict[str, Any]:
    """Counts of one live run on both designs."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "pagewalk", "compare", "--designs", ",".join(DESIGNS)]
    command += ["--set", f"os.hugetlb.pages_2mb={program.pool}"]
    command += ["--no-translation-cost", "--json", str(report), "--"]
    with beside(program, folder), (folder / "input").open() as stdin:
        whole = as_user(program, (*command, *program.command))
        done = subprocess.run(
            whole, check=False, cwd=folder, stdin=stdin, capture_output=True, text=True
        )
    if not report.exists():
        return {"failed": done.stderr.strip().splitlines()[-1:]}
    result = json.loads(report.read_text())
    source = result["source"]
    found: dict[str, Any] = {"warnings": result["warnings"], "unseen": source["unseen"]}
    found["exit_status"] = source["exit_status"]
    found["approximated"] = {one["name"]: one["count"] for one in source["approximated"]}
    for design in result["designs"]:
        counts = {s["name"]: s["value"] for s in design["stats"] if s["path"] == "os"}
        counts |= {s["name"]: s["value"] for s in design["summary"]}
        names = (
            "page_faults",
            "faults_4kb",
            "faults_2mb",
            "splits",
            "mapped_2mb_bytes",
            "promotions",
            "forks",
        )
        found[design["name"]] = {n: counts[n] for n in (*names, "instructions", "cycles")}
        found[design["name"]]["status"] = design["status"]
    return found


# The argument that says what a call does.
SORTS = {"mmap": 3, "madvise": 2, "process_madvise": 3, "fallocate": 1, "prctl": 0}
LINE = re.compile(r"^\d+ +\[ *(\d+)\] (\w+)\((.*)$")
NAMED = re.compile(r"^(0x[0-9a-f]+|\d+) /\* (\S+) \*/")
"""An argument: its value and its name, as `strace -X verbose` prints it."""


def kind(line: str) -> tuple[str, str, str] | None:
    """A call in a line of strace: number, value of the argument that says what it does, label."""
    found = LINE.match(line)
    if found is None or ENDED.search(line):
        return None
    number, name, arguments = found.groups()
    if name not in SORTS:
        return number, "0", name
    sort = NAMED.match(arguments.split(", ")[SORTS[name]])
    if sort is None:
        return number, "0", name
    flags = [f for f in sort[2].split("|") if f not in ("MAP_DENYWRITE", "MAP_FIXED")]
    return number, sort[1], f"{name} {'|'.join(flags)}"


ENDED = re.compile(r" = -1 E[A-Z]+ |unavailable|resumed>")
"""A call that failed, or the end of one that another thread's call has interrupted."""


def count_calls(chosen: list[str]) -> None:
    """Counts the successful system calls of native runs, and writes the file of calls."""
    counts: dict[str, dict[str, int]] = {}
    known: dict[str, tuple[str, str]] = {}
    for name in chosen:
        program = PROGRAMS[name]
        with folder_of(program) as folder, beside(program, folder):
            out = folder / "calls"
            options = ("-f", "-qq", "-n", "-X", "verbose", "-o", str(out))
            whole = as_user(program, ("strace", *options, "--", *program.command))
            with (folder / "input").open() as stdin:
                subprocess.run(whole, cwd=folder, stdin=stdin, capture_output=True, check=True)
            lines = out.read_text(errors="replace").splitlines()
        for number, value, call in filter(None, map(kind, lines)):
            known.setdefault(call, (number, value))
            of = counts.setdefault(call, {})
            of[name] = of.get(name, 0) + 1
    order = sorted(counts, key=lambda call: (-len(counts[call]), -sum(counts[call].values()), call))
    table = [["number", "argument", "call", *chosen]]
    for call in order:
        table.append([*known[call], call, *(str(counts[call].get(name, 0)) for name in chosen)])
    CALLS.write_text("".join("\t".join(line) + "\n" for line in table))


def run(chosen: list[str], kept: dict[str, Any]) -> None:
    """Runs the programs and puts their counts into `kept`."""
    for name in chosen:
        program = PROGRAMS[name]
        if not is_installed(program):
            print(f"{name}: skipped; bring it by apt-get install {program.package}", flush=True)
            continue
        with folder_of(program) as folder:
            kept[name] = {"simulated": simulated(program, folder)}
            kept[name]["native"] = natively(program, folder)
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print("\n".join(rows(name, kept[name])), flush=True)


def rows(name: str, found: dict[str, Any]) -> Iterator[str]:
    """One program's rows: a line for each mode."""
    title = PROGRAMS[name].title
    for design, mode in DESIGNS.items():
        measured, counts = found["native"][mode], found["simulated"].get(design)
        status, own = max(measured["status"]), found["simulated"].get("exit_status", 0)
        if counts is None or status or own:
            yield row(title, mode, f"ends with status {status:.0f}", f"status {own}", *[""] * 3)
            continue
        faults = statistics.median(measured["faults"])
        spread = f"{min(measured['faults']):.0f}–{max(measured['faults']):.0f}"
        huge = f"{min(measured['huge_kb']) / 1024:.0f}–{max(measured['huge_kb']) / 1024:.0f}"
        yield row(
            title, mode, spread, f"{counts['page_faults']:.0f}",
            f"{counts['page_faults'] / faults - 1:+.1%}".replace("%", " %"),
            huge, f"{counts['mapped_2mb_bytes'] / (1 << 20):.0f}",
        )  # fmt: skip
        title = ""


def table(kept: dict[str, Any]) -> str:
    """The table of all kept results."""
    head = ("program", "huge pages", "faults, native", "simulated", "difference",
            "MB in huge pages at the end, native", "simulated")  # fmt: skip
    lines = [row(*head), row("---", "---", *["--:"] * 5)]
    for name in PROGRAMS:
        if name in kept:
            lines += rows(name, kept[name])
    return "\n".join(lines)


def main() -> int:
    """Runs, keeps and writes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.argv[1:] == ["--calls"]:
        count_calls([name for name, one in PROGRAMS.items() if is_installed(one)])
        return 0
    chosen, write = script_arguments.again(__doc__, PROGRAMS)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    run(chosen, kept)
    if write:
        marked.write("servers", table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
