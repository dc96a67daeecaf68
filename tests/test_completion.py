"""Completions of a shell at the tab key, by the protocol of typer's own scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pagewalk
from invoking import Invoke, output_of
from live import needs


def completion(**variables: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-m", "pagewalk"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


@pytest.fixture
def bash(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Bash's completions of the last word of a line, computed in this process."""

    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_PAGEWALK_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        return output_of(invoke).split()

    return offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_the_documented_completion_script(shell: str) -> None:
    page = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text()
    assert f"`_PAGEWALK_COMPLETE=source_{shell} pagewalk >" in page
    assert f"_PAGEWALK_COMPLETE=complete_{shell}" in completion(
        _PAGEWALK_COMPLETE=f"source_{shell}"
    )


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pagewalk comp", {"compare"}),
        ("pagewalk compare --instr", {"--instructions"}),
        ("pagewalk run --machine epyc", {"epyc-milan"}),
        ("pagewalk run --design perfect-t", {"perfect-tlb"}),
        ("pagewalk compare --designs thp,radix", {"thp,radix", "thp,radix5", "thp,radix-virtual"}),
        ("pagewalk compare --designs radix5,radix5", set()),
        ("pagewalk run --workload gu", {"gups"}),
        ("pagewalk run --mix gups,gu", {"gups,gups"}),
        ("pagewalk run --workload gups --param upd", {"updates="}),
        ("pagewalk run --workload bfs --param upd", set()),
        ("pagewalk run --set mmu.l2.main.ent", {"mmu.l2.main.entries="}),
        ("pagewalk run --set os.mem", {"os.memory_gb="}),
        ("pagewalk explain speedu", {"speedup", "speedup_in_time"}),
        ("pagewalk explain l2_tlb", {"l2_tlb_mpki"}),
        ("pagewalk explain core.N.l1d.dirty", set()),
        ("pagewalk explain core.N.mmu.walk_l", {"core.N.mmu.walk_latency"}),
        ("pagewalk reproduce meh", {"mehpt"}),
        ("pagewalk compare --machine epyc-milan,mehpt", {"epyc-milan,mehpt-table3"}),
        ("pagewalk compare --machine epyc-milan,mehpt-table3 --set os.mem", {"os.memory_gb="}),
        ("pagewalk run --set mehpt-table3:os.mem", {"mehpt-table3:os.memory_gb="}),
        ("pagewalk run --set thp:os.mem", {"thp:os.memory_gb="}),
        ("pagewalk run --design raidx --set os.mem", set()),
        ("pagewalk run --set raidx:os.mem", set()),
        ("pagewalk trace che", {"check"}),
    ],
)
def test_a_word_is_completed(
    line: str, offered: set[str], bash: Callable[[str], list[str]]
) -> None:
    assert set(bash(line)) == offered


def test_an_empty_word_offers_all(bash: Callable[[str], list[str]]) -> None:
    assert set(bash("pagewalk run --design ")) == {d["name"] for d in pagewalk.designs()}
    assert {"--workload", "--wide", "--json"} <= set(bash("pagewalk run --"))


def test_zsh_and_fish_show_the_meaning_of_completions() -> None:
    line = "pagewalk run --machine epyc"
    offered = completion(_PAGEWALK_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert '"epyc-milan":"A core complex of AMD' in offered
    offered = completion(
        _PAGEWALK_COMPLETE="complete_fish",
        _TYPER_COMPLETE_ARGS=line,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert offered.startswith("epyc-milan\tA core complex of AMD")


# The tests above check each shell's script; a host with another shell may lack bash.
@needs("bash")
def test_bash_itself_completes(tmp_path: Path) -> None:
    program = tmp_path / "pagewalk"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pagewalk "$@"\n')
    program.chmod(0o755)
    script = completion(_PAGEWALK_COMPLETE="source_bash")
    script_and_line = (
        f"{script}\nCOMP_WORDS=(pagewalk run --workload gu); COMP_CWORD=3\n"
        '_pagewalk_completion pagewalk\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "-c", script_and_line], capture_output=True, text=True, check=True, env=environment
    )
    assert answer.stdout == "gups\n"


def test_completing_loads_nothing_heavy() -> None:
    code = (
        "import os, sys, atexit\n"
        "heavy = ('polars', 'altair', 'vl_convert', 'numpy', 'rich.console', 'rich.table')\n"
        "atexit.register(lambda: print([h for h in heavy if h in sys.modules], file=sys.stderr))\n"
        "from pagewalk.__main__ import main\n"
        "main([])\n"
    )
    environment = {
        **os.environ,
        "_PAGEWALK_COMPLETE": "complete_bash",
        "COMP_WORDS": "pagewalk compare --designs radix,th",
        "COMP_CWORD": "3",
    }
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "radix,thp" in answer.stdout.split()
    assert answer.stderr == "[]\n"
