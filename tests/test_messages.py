"""Options, files and keys that messages and documentation name exist."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer.main

import pagewalk
from invoking import Invoke, output_of
from pagewalk.cli import app
from pagewalk.config.flags import RENAMED

ROOT = Path(__file__).parent.parent
# Not the properties of a style sheet.
FLAG = re.compile(r"(?<![\w-])(?<!var\()--[a-z][a-z-]*[a-z]\b(?!-|:)")
OTHERS = {
    **dict.fromkeys(("--tool", "--trace-mem"), "Valgrind's lackey"),
    "--lib": "cargo",
    **dict.fromkeys(("--port", "--unixsocket", "--save", "--hz", "--loadmodule"), "redis-server"),
    **dict.fromkeys(("--sort", "--example"), "perf and cargo"),
    **{"--wrap": "the linker", "--cache-sim": "Valgrind", "--control": "perf"},
    **dict.fromkeys(("--mini-batch-size", "--num-batches"), "DLRM"),
    **dict.fromkeys(("--num-indices-per-lookup", "--num-indices-per-lookup-fixed"), "DLRM"),
    **dict.fromkeys(
        ("--release", "--profile", "--locked", "--test", "--bench", "--nocapture"), "cargo"
    ),
    **dict.fromkeys(("--noheader", "--format", "--me"), "squeue"),
    **{"--cloudsuite": "ChampSim", "--calls": "validation/servers.py"},
    "--addr-compat-layout": "setarch",
    **dict.fromkeys(("--memory-scope", "--memory-oper", "--memory-access-mode"), "sysbench"),
    **dict.fromkeys(("--nthreads", "--resources"), "Dask"),
    **{"--rm": "docker", "--build-arg": "docker and apptainer", "--force-reinstall": "pip"},
    **dict.fromkeys(("--target-list", "--without-default-features"), "QEMU's configure"),
    **dict.fromkeys(("--enable-plugins", "--enable-attr"), "QEMU's configure"),
    **dict.fromkeys(
        ("--disable-tools", "--disable-docs", "--disable-install-blobs"), "QEMU's configure"
    ),
    **dict.fromkeys(("--long", "--placement", "--waveform"), "rtl-cosim"),
    "--block": "hardware_tools.py",
    **dict.fromkeys(("--help", "--version"), "everything"),
}
"""Options of other programs that are named, and whose they are."""


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from _options(inner)


def _named() -> Iterator[tuple[Path, str]]:
    """Every option that a text for users names."""
    for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        yield from ((path, flag) for flag in FLAG.findall(path.read_text()))
    for path in (ROOT / "python").rglob("*.py"):
        yield from ((path, flag) for flag in FLAG.findall(path.read_text()))
    for path in ROOT.glob("crates/*/src/**/*.rs"):
        # Texts, not comments.
        for line in path.read_text().splitlines():
            if not line.lstrip().startswith("//"):
                yield from ((path, flag) for flag in FLAG.findall(line))


def test_every_option_that_is_named_is_there() -> None:
    ours = set(_options(typer.main.get_command(app)))
    scripts = {
        flag
        for folder in ("linux", "scripts", "validation")
        for path in (ROOT / folder).rglob("*.py")
        for flag in re.findall(r"add_argument\(\s*\"(--[a-z-]+)\"", path.read_text())
    }
    assert {"--designs", "--keep-good", "--no-translation-cost", "--cache"} <= ours
    named = list(_named())
    assert len(named) > 200
    unknown = {
        f"{path.relative_to(ROOT)}: {flag}"
        for path, flag in named
        if flag not in ours | scripts | OTHERS.keys() | RENAMED.keys()
    }
    assert unknown == set()


def test_the_error_of_a_damaged_trace_names_the_command_that_recovers_it(
    tmp_path: Path, invoke: Invoke
) -> None:
    trace = tmp_path / "t.pwt"
    arguments = ("--workload", "gups", "--size", "1MiB", "--instructions", "100K")
    assert invoke("record", *arguments, "-o", str(trace))[0] == 0
    trace.write_bytes(trace.read_bytes()[:-40])
    status, _, err = invoke("run", "--trace", str(trace))
    assert status != 0
    assert "'pagewalk trace convert --keep-good'" in err
    whole = tmp_path / "w.pwt"
    assert invoke("trace", "convert", "--keep-good", str(trace), "-o", str(whole))[0] == 0
    assert invoke("trace", "check", str(whole))[0] == 0


DESIGN = "[placement.buddy]\n[page_table.radix]\nlevels = 5\n"
RUN = ("run", "--workload", "gups", "--size", "1MiB", "--instructions", "10K", "--warmup", "0")


def test_a_design_s_file_has_an_end(tmp_path: Path, cli: Any) -> None:
    large, fifo = tmp_path / "large.toml", tmp_path / "fifo.toml"
    large.write_text(DESIGN + "#" * (1 << 20))
    os.mkfifo(fifo)
    exact = tmp_path / "exact.toml"
    exact.write_text(DESIGN + "#" * ((1 << 20) - len(DESIGN)))
    for path, said in (
        (Path("/dev/zero"), "is no regular file; expected a .toml file"),
        (fifo, "is no regular file; expected a .toml file"),
        (tmp_path, "is a folder; expected a .toml file"),
        (large, "is larger than 1 MiB; expected a .toml file"),
    ):
        answer = cli(
            *RUN, "--machine" if path is large else "--design", path, timeout=60,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31)),
        )  # fmt: skip
        assert (answer.returncode, answer.stderr) == (2, f"error: {path}: {said}\n")
    assert cli(*RUN, "--design", exact).returncode == 0
    # A shell's <(…) is a pipe, which has its own limit.
    for text, status in ((DESIGN, 0), (large.read_text(), 2)):
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "pagewalk", *RUN, "--design", f"/dev/fd/{reading}"],
            pass_fds=[reading],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.close(reading)
        with suppress(BrokenPipeError), os.fdopen(writing, "w") as pipe:
            pipe.write(text)
        _, err = process.communicate(timeout=60)
        assert process.returncode == status, err
        assert status == 0 or b"is larger than 1 MiB" in err


@pytest.mark.parametrize("kilobytes", [150_000, 200_000, 300_000, 400_000])
def test_a_limit_of_memory_ends_in_a_sentence(cli: Any, kilobytes: int) -> None:
    most = kilobytes << 10
    answer = cli(
        *("compare", "--workload", "gups", "--size", "4GiB", "--instructions", "10K"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    # The memory that is needed depends on the host's libraries: the run ends well or has an error.
    assert answer.returncode in ((1, 2) if kilobytes == 150_000 else (0, 1, 2)), answer.stderr
    if answer.returncode:
        last = answer.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        assert "memory" in last or "thread" in last or "librar" in last
        assert "Traceback" not in answer.stderr
        assert "backtrace" not in answer.stderr


def test_a_program_larger_than_the_host_is_refused_before_the_run(cli: Any) -> None:
    most = 1500 << 20
    command = ("run", "--workload", "gups", "--size", "1TiB", "--set", "os.memory_gb=2048")
    answer = cli(
        *command, "--instructions", "10K", "--no-translation-cost",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )  # fmt: skip
    assert answer.returncode == 2
    assert "2GiB of host memory are needed at least for one design with 1TiB" in answer.stderr
    assert "can be had; take a smaller program" in answer.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "run --workload gups --set mmu.l2.entries=4096",
            "expected a table of entries, latency, page_sizes, replacement, ways; "
            "did you mean `mmu.l2.main.entries`?",
        ),
        ("compare --designs radix thp --workload gups", "--designs radix,thp"),
        ("compare --designs radix, thp, ecpt --workload gups", "--designs radix,thp,ecpt"),
        (
            "compare --machine epyc-milan mehpt-table3 --workload gups",
            "--machine epyc-milan,mehpt-table3",
        ),
        ("run --workload gups --instructions 10 Million", "as in 10M"),
        ("run --workload gups --size 1 GiB", "as in 10GiB"),
        ("run --workload gups --design thpp", "of that name; did you mean `thp`? Expected"),
        (
            "run --workload gups --size 1TiB --instructions 1K",
            "radix has 256 GB of memory; expected a smaller program, or a larger memory "
            "(--set os.memory_gb=1024)",
        ),
        (f"run --machine {'x' * 5000} --workload gups", "there is no machine of that name"),
        (f"run --trace {'x' * 5000}", "check the name"),
        (f"run --workload gups --instructions 1K --json {'x' * 5000}", "file name too long"),
    ],
)
def test_a_mistake_is_answered_with_its_remedy(line: str, said: str, invoke: Invoke) -> None:
    status, _, err = invoke(*line.split())
    assert status in (1, 2)
    assert said in err.splitlines()[0]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mmu.l2.main.entries", "many", "'many' is not possible; expected a whole number"),
        ("mmu.l2.main.entries", -4, "is -4; expected 1 to 16777216"),
        ("mmu.perfect", 1, "expected true or false"),
        ("frequency_ghz", "3", "expected a number"),
        ("mmu.l2", 3, "expected a table"),
        ("mmu.l2.main.replacement", "rndm", "expected one of "),
    ],
)
def test_a_wrong_value_is_refused_at_its_assignment(key: str, value: object, said: str) -> None:
    design = pagewalk.design("radix")
    *path, name = key.split(".")
    section: Any = design
    for part in path:
        section = section[part]
    before = section[name]
    with pytest.raises(pagewalk.UserError, match=re.escape(said)) as error:
        section[name] = value
    assert error.value.option == key
    assert section[name] == before


def test_an_error_of_a_changed_design_names_the_design() -> None:
    design = pagewalk.design("radix")
    design.mmu.l2.main.ways = 0
    with pytest.raises(pagewalk.UserError) as error:
        pagewalk.run(workload="gups", instructions="1K", design=design)
    assert "the design 'radix (changed)'" in str(error.value)
    assert "/" not in str(error.value.place)


@pytest.mark.parametrize(
    "word",
    [
        "fast-forward",
        "functional warming",
        "detailed warm-up",
        "huge page",
        "page walk cache",
        "MSHR",
        "PTW",
        "filtered warming",
    ],
)
def test_explain_knows_the_words_of_the_field(word: str, invoke: Invoke) -> None:
    assert output_of(invoke, "explain", *word.split())
