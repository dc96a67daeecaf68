"""The command line around the engine: flags in, reports, files and status out."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import time
from pathlib import Path
from typing import Any

import polars
import pytest

import fake
from invoking import Cli, Invoke, refused


def test_flags_become_the_engines_specification(engine: fake.Engine, invoke: Invoke) -> None:
    flags = """
        compare --machine m --designs a,b --workload gups --size 4GiB --threads 2
        --param skew=0.5 --set mmu.l2_tlb.entries=1536 --skip 1M --warmup 2M
        --instructions 3M --roi --sample 1M/20M --seed 7 --jobs 2 --interval 10K
    """
    status, _, _ = invoke(*flags.split())
    assert status == 0
    assert engine.specs == [
        {
            "machine": "m",
            "designs": ["a", "b"],
            "set": ["mmu.l2_tlb.entries=1536"],
            "source": {
                "workload": {
                    "name": "gups",
                    "size": "4GiB",
                    "threads": 2,
                    "params": {"skew": "0.5"},
                }
            },
            "limits": {
                "skip": 1_000_000,
                "warmup": 2_000_000,
                "instructions": 3_000_000,
                "roi": True,
                "sample": {"length": 1_000_000, "period": 20_000_000},
            },
            "seed": 7,
            "host_threads": 2,
            "translation_cost": True,
            "interval": 10_000,
            "perfetto": None,
        }
    ]


def test_run_and_compare_differ_in_how_designs_are_named(
    engine: fake.Engine, invoke: Invoke
) -> None:
    flags = ["--workload", "gups", "--machine", "m", "--skip", "1M", "--jobs", "2"]
    assert invoke("run", *flags, "--design", "b")[0] == 0
    assert invoke("compare", *flags, "--designs", "b")[0] == 0
    assert engine.specs[0] == engine.specs[1]
    assert invoke("run", *flags, "--designs", "b")[0] == 2


def test_words_after_two_dashes_are_a_program(engine: fake.Engine, invoke: Invoke) -> None:
    status, out, err = invoke("run", "--", "ls", "--json", "--", "x")
    assert status == 0
    assert engine.specs[0]["source"] == {"program": {"argv": ["ls", "--json", "--", "x"]}}
    assert out == ""  # the program's own
    assert "IPC" in err or "ipc" in err


def test_only_a_built_in_program_gets_default_limits(engine: fake.Engine, invoke: Invoke) -> None:
    invoke("run", "--workload", "gups")
    invoke("run", "--", "true")
    assert engine.specs[0]["limits"]["instructions"] == 100_000_000
    assert engine.specs[1]["limits"]["instructions"] is None


def test_a_report_goes_to_standard_output(engine: fake.Engine, invoke: Invoke) -> None:
    status, out, err = invoke("compare", "--workload", "gups", "--designs", "radix,thp")
    assert status == 0
    assert err == ""
    for word in ("radix", "thp", "speedup", "2.000", "Cycle stack", "page walks"):
        assert word in out


def test_the_programs_exit_status_is_ours(engine: fake.Engine, invoke: Invoke) -> None:
    def exits(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        answer = fake.result(spec)
        answer["source"]["exit_status"] = 42
        return answer

    engine.script = exits
    assert invoke("run", "--", "false")[0] == 42


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected exactly one of --workload NAME, --trace FILE, --mix A,B,… and -- PROGRAM"),
        (["--workload", "gups", "--", "ls"], "found --workload NAME and -- PROGRAM"),
        (["ls"], "a program to run follows --, as in: pagewalk run -- ls"),
        (["--"], "no program after --"),
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "./no/such"], "there is no program './no/such'"),
        (["--", "/tmp/"], "'/tmp/' is a folder"),
        (["--", "/etc/passwd"], "not executable; run chmod +x"),
        (["--trace", "no-such-trace"], "there is no file 'no-such-trace'"),
        (["--workload", "gups", "--size", "big"], "--size: 'big' is not understood; expected"),
        (["--workload", "gups", "--instructions", "0"], "--instructions: 0 would measure nothing"),
        (["--workload", "gups", "--requests", "0"], "--requests: 0 would measure nothing"),
        (["--workload", "gups", "--sample", "5M"], "expected LENGTH/PERIOD"),
        (["--workload", "gups", "--sample", "5M/1M"], "below the period"),
        (["--workload", "gups", "--threads", "0"], "expected 1 or more"),
        (["--workload", "gups", "--threads", str(10**11)], "expected 1 or more"),
        (["--workload", "gups", "--seed", str(2**64)], "expected 0 to 2^64 - 1"),
        (["--workload", "gups", "--perfetto-walks", str(10**20)], "expected 1 to 2^32 - 1"),
        (["--workload", "gups", "--jobs", "0"], "--jobs: 0 is not possible; expected 1 or more"),
        (["--workload", "gups", "--set", "x"], "expected NAME=VALUE"),
        (["--workload", "gups", "--seed", "-1"], "expected 0 or more"),
        (["--workload", "gups", "--json", "/no/such/folder/x"], "there is no folder"),
        (["--workload", "gups", "--json", "/tmp"], "is a folder"),
        (["--workload", "gups", "--json", "-", "--html", "-"], "--json and --html both write '-'"),
        (["--workload", "gups", "--parquet", "-", "--interval", "1M"], "intervals go to a second"),
        (["--workload", "gups", "--perfetto", "-"], "--perfetto -: it is not written to standard"),
        (["--size", "4GiB", "--", "ls"], "--size belongs to a built-in program"),
        (["--wrkload", "gups"], "--workload"),
    ],
)
def test_a_users_mistake_is_one_sentence_and_status_2(
    engine: fake.Engine, invoke: Invoke, arguments: list[str], message: str
) -> None:
    assert message in refused(invoke, "run", *arguments)


def test_a_trace_does_not_go_to_standard_output(engine: fake.Engine, invoke: Invoke) -> None:
    status, out, err = invoke("record", "--workload", "gups", "-o", "-")
    assert (status, out) == (2, "")
    assert err.startswith("error: --out -: ")
    assert engine.specs == []


@pytest.mark.parametrize(("kind", "status"), [(fake.UserError, 2), (fake.Failure, 1)])
def test_the_engines_errors_keep_their_words(
    engine: fake.Engine, invoke: Invoke, kind: type[Exception], status: int
) -> None:
    def fails(_spec: object, _progress: object) -> dict[str, Any]:
        raise kind("designs/x.toml:3: unknown key 'entires'; did you mean 'entries'?")

    engine.script = fails
    got, out, err = invoke("run", "--workload", "gups")
    assert (got, out) == (status, "")
    assert err == "error: designs/x.toml:3: unknown key 'entires'; did you mean 'entries'?\n"


def test_interrupting_gives_the_result_so_far(engine: fake.Engine, invoke: Invoke) -> None:
    def interrupted(spec: dict[str, Any], progress: Any) -> dict[str, Any]:
        report = {"design_instructions": {}, "done": 1, "total": None, "phase": "measure"}
        assert progress(json.dumps({**report, "seconds": 0.1}))
        # From inside, where its handler is installed: it would end the tests otherwise.
        os.kill(os.getpid(), signal.SIGINT)
        while progress(json.dumps({**report, "seconds": 0.2})):
            time.sleep(0.01)
        answer = fake.result(spec)
        answer["designs"][0]["status"] = "partial"
        return {**answer, "partial": True}

    engine.script = interrupted
    # Not always Python's own: a shell starts what runs in its background with SIGINT ignored.
    before = signal.getsignal(signal.SIGINT)
    status, out, _ = invoke("run", "--workload", "gups")
    assert status == 128 + signal.SIGINT
    assert "partial: the run was stopped before its end" in out
    assert signal.getsignal(signal.SIGINT) is before


def test_warnings_and_unfinished_designs_are_reported(engine: fake.Engine, invoke: Invoke) -> None:
    def runs_out(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        answer = fake.result(spec)
        answer["warnings"] = ["thp: 4 GiB of memory hold no further page"]
        answer["designs"][1]["status"] = "out_of_memory"
        answer["partial"] = True
        answer["designs"][1]["speedup"] = None
        return answer

    engine.script = runs_out
    _, out, _ = invoke("compare", "--workload", "gups", "--designs", "radix,thp")
    assert "warning: thp: 4 GiB of memory hold no further page" in out
    assert "thp (out of memory)" in out


def test_results_as_files(engine: fake.Engine, invoke: Invoke, tmp_path: Path) -> None:
    j, p, h = (tmp_path / name for name in ("r.json", "r.parquet", "r.html"))
    status, _, err = invoke(
        *["compare", "--workload", "gups", "--designs", "radix,thp", "--json"],
        *(str(j), "--parquet", str(p), "--html", str(h)),
    )
    assert (status, err) == (0, "")
    written = json.loads(j.read_text())
    assert [d["name"] for d in written["designs"]] == ["radix", "thp"]
    assert written["seed"] == 1
    frame = polars.read_parquet(p)
    row = frame.filter(design="thp", path="core.0.mmu.l2_tlb", name="misses")
    assert row["value"].to_list() == [1_225_000]
    assert row["unit"].to_list() == ["lookups"]
    about = json.loads(polars.read_parquet_metadata(p)["pagewalk"])
    assert about["configs"]["radix"]["page_table"] == {"radix": {"levels": 4}}
    intervals = polars.read_parquet(tmp_path / "r.intervals.parquet")
    assert intervals["first_instruction"].to_list() == [0, 10_000_000, 20_000_000] * 2
    assert intervals["instructions"].to_list() == [10_000_000, 10_000_000, 3] * 2
    assert intervals["complete"].to_list() == [True, True, False] * 2
    assert intervals["core.0.mmu.l2_tlb.misses"].to_list() == [600_000, 625_000, 0] * 2
    assert h.read_text().startswith("<!doctype html>")
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "r.html",
        "r.intervals.parquet",
        "r.json",
        "r.parquet",
    ]
    assert stat.S_IMODE(j.stat().st_mode) & 0o444


def test_json_on_standard_output_stands_alone(engine: fake.Engine, invoke: Invoke) -> None:
    status, out, err = invoke("run", "--workload", "gups", "--json", "-")
    assert status == 0
    assert json.loads(out)["designs"][0]["name"] == "radix"
    assert "Cycle stack" in err


@pytest.mark.parametrize("flag", ["--json", "--parquet", "--html"])
def test_a_full_disk_loses_no_result(engine: fake.Engine, invoke: Invoke, flag: str) -> None:
    status, out, err = invoke("run", "--workload", "gups", flag, "/dev/full")
    assert status == 1
    assert "Cycle stack" in out
    assert err == "error: could not write '/dev/full': no space is left on the device; " + (
        "no file was left behind\n"
    )
    assert Path("/dev/full").is_char_device()


def test_explain_an_unknown_name_offers_the_nearest(engine: fake.Engine, invoke: Invoke) -> None:
    engine.explained = {"nearest": ["l2_tlb_mpki"]}
    status, _, err = invoke("explain", "l2_tbl_mpki")
    assert status == 2
    assert "did you mean l2_tlb_mpki?" in err


def program(name: str, group: str) -> dict[str, Any]:
    return {
        "name": name,
        "group": group,
        "description": f"What {name} does.",
        "stresses": f"what {name} stresses",
        "source": f"the paper of {name}",
        "default_size": 4 << 30,
        "size_range": "1KiB to 1TiB",
        "max_threads": 8,
        "params": [
            {
                "name": "skew",
                "unit": "",
                "default": "0.99",
                "range": "0 to 1",
                "meaning": "How unequal keys are.",
            }
        ],
    }


def test_programs_are_listed_by_group(engine: fake.Engine, invoke: Invoke) -> None:
    groups = ("graph", "micro", "key-value")
    engine.listed = [program(f"p{i}", groups[i % 3]) for i in range(25)]
    status, out, _ = invoke("workloads")
    assert status == 0
    lines = out.splitlines()
    for number, group in enumerate(groups):
        assert lines.count(group) == 1
        start = lines.index(group)
        end = lines.index("", start)
        names = [line.split()[0] for line in lines[start:end] if "4.00 GiB" in line]
        assert names == [f"p{i}" for i in range(number, 25, 3)]
    for word in ("What p7 does.", "what p7 stresses", "the paper of p7"):
        assert out.count(word) == 1
    status, out, _ = invoke("workloads", "--json", "-")
    assert json.loads(out) == engine.listed


def test_a_program_is_explained_with_its_parameters(engine: fake.Engine, invoke: Invoke) -> None:
    entry = program("kv", "key-value")
    engine.explained = {
        "found": [
            {
                "kind": "workload",
                "name": "kv",
                "text": entry["description"],
                "unit": "",
                "source": entry["source"],
                "workload": entry,
            }
        ]
    }
    status, out, _ = invoke("explain", "kv")
    assert status == 0
    for word in ("1KiB to 1TiB (default 4GiB)", "1 to 8", "--param skew=", "0 to 1 (default 0.99)"):
        assert word in out
    status, out, _ = invoke("explain", "kv", "--json", "-")
    assert json.loads(out) == engine.explained["found"]


def test_a_warning_about_missing_queries_says_how_to_ask(cli: Cli) -> None:
    command = ("run", "--workload", "kv-redis", "--size", "16MiB", "--instructions", "100K")
    plain = cli(*command, "--design", "stlt", "--param", "shortcut=none").stdout
    assert "made no shortcut query, so nothing of shortcut had an effect" in plain
    assert "--param shortcut=stlt" in plain
    asked = cli(*command, "--design", "stlt", "--param", "shortcut=stlt").stdout
    assert "no shortcut query" not in asked


def test_requests_that_do_not_come_are_missed(cli: Cli) -> None:
    command = ("run", "--workload", "dlrm", "--size", "1MiB", "--param", "batch=4", "--warmup", "0")
    few = cli(*command, "--param", "batches=1", "--requests", "50").stdout
    assert "the program ended after 32 of 50 requests (--requests)" in few
    assert "requests (--requests)" not in cli(*command, "--requests", "50").stdout


def test_a_part_of_a_sample_is_named_if_it_is_missing(invoke: Invoke) -> None:
    for given, said in [
        ("length=20000", "'length=20000' gives no period; expected it too, as period=5M"),
        (
            "period=5M,warm=1K",
            "'period=5M,warm=1K' gives no length; expected it too, as length=20K",
        ),
        (
            "length=20K,period=5M,",
            "'length=20K,period=5M,' has a comma too many; expected name=value,…",
        ),
    ]:
        error = refused(invoke, "run", "--workload", "gups", "--sample", given)
        assert error == f"error: --sample: {said}\n"


def test_output_into_a_pipe_is_as_wide_as_columns_say(cli: Cli) -> None:
    command = ("run", "--workload", "gups", "--size", "1MiB", "--instructions", "10K")
    for width in (60, 90):
        lines = cli(*command, env={**os.environ, "COLUMNS": str(width)}).stdout.splitlines()
        assert width - 20 < max(map(len, lines)) <= width
    # A number that is no width leaves lines as they are.
    lines = [cli(*command, env={**os.environ, "COLUMNS": n}).stdout for n in ("", "0", "x")]
    assert {max(map(len, text.splitlines())) > 90 for text in lines} == {True}


def test_a_misspelt_option_or_command_suggests_the_nearest(invoke: Invoke) -> None:
    for arguments, nearest in (
        (["run", "--desgin", "thp"], "did you mean --design?"),
        (["run", "--region", "r.toml"], "did you mean --regions?"),
        (["comapre"], "did you mean 'compare'?"),
        (["trace", "chek"], "did you mean 'check'?"),
    ):
        status, _, err = invoke(*arguments)
        assert (status, err.count("\n")) == (2, 1)
        assert nearest in err
        assert ". Did" not in err
        assert "(Possible" not in err


COMMANDS = [
    *("run", "compare", "record", "validate", "reproduce", "explain", "workloads", "designs"),
    *("machines", "doctor", "trace info", "trace check", "trace convert", "trace regions"),
    *("sweep run", "sweep show", "sweep plot"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns_and_ends_with_an_example(
    command: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    status, out, _ = invoke(*command.split(), "--help")
    assert status == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    # Nothing is cut: an option and a default stand whole.
    assert not re.search(
        r"\w…[^\w\]]", out.replace("ARGS…", "").replace("FIGURE…", "").replace("FILE…", "")
    )
    of = {"designs": "explain", "machines": "explain", "sweep run": "sweep"}
    assert f"Example: pagewalk {of.get(command, command)}" in out
