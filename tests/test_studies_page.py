"""Every command, script and file of the page on studies, in its order."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from live import needs, needs_qemu
from pagewalk.config.config import parse
from pagewalk.runs.cluster import KUBERNETES, ClusterOption, pods, queue
from pagewalk.studies import axes
from pagewalk.studies.options import KNOWN
from test_cluster import Dask, dask
from test_documentation import ROOT
from test_how_to import DOCS, shell, steps

__all__ = ["dask", "shell"]

PAGE = DOCS / "studies.md"
FILE = "walkers.toml"
ADDRESS = "tcp://head:8786"
"""The scheduler that the page has."""


def lines(text: str) -> list[str]:
    """The commands of a block."""
    return text.replace("\\\n", "").splitlines()


COMMANDS = [line for _, text in steps(PAGE, "sh") for line in lines(text)]
OF_BATCH_SYSTEMS = [line for line in COMMANDS if re.search(r"--cluster \w+:\w+=", line)]
OF_DASK = [line for line in COMMANDS if ADDRESS in line or line.startswith("dask ")]
LIVE = [line for line in COMMANDS if " -- " in line]
(INSTALL,) = (line for line in COMMANDS if line.startswith("pip "))
ELSEWHERE = {*OF_BATCH_SYSTEMS, *OF_DASK, *LIVE, INSTALL}
"""Commands of the page that are not for this host alone."""


def ran(command: list[str], folder: Path, env: dict[str, str]) -> str:
    """The output of a command that succeeds."""
    answer = subprocess.run(
        command,
        cwd=folder, env={**env, "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, f"{command}\n{answer.stderr}"
    return answer.stdout


def complete(folder: Path) -> int:
    """The number of runs of a study, all of which are complete."""
    runs = pl.read_parquet(folder / "runs" / "*.parquet")
    assert runs["status"].unique().to_list() == ["complete"]
    return len(runs)


def labels(picture: Path) -> list[str]:
    """The texts of a chart; how wide they are differs by the host's fonts."""
    found = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text())
    return [re.sub(r"<[^>]*>", " ", text).strip() for text in found]


def the_file(folder: Path) -> None:
    """Writes the study that the page has as a file."""
    ((_, text),) = steps(PAGE, "toml")
    (folder / FILE).write_text(text)


@pytest.mark.long
def test_the_steps_of_the_page_work(
    shell: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_file(tmp_path)
    shown: dict[str, str] = {}
    for line in COMMANDS:
        if line not in ELSEWHERE:
            shown[line] = ran(shlex.split(line), tmp_path, shell)
            assert shown[line]
    names = {name: complete(tmp_path / name) for name in ("tlb", "traces", "walkers")}
    assert names == {"tlb": 10, "traces": 4, "walkers": 20}
    # The page's table is the output of `show`.
    ((_, table),) = steps(PAGE, "text")
    printed = shown["pagewalk sweep show tlb"].splitlines()
    assert [line.rstrip() for line in printed[: len(table.splitlines())]] == table.splitlines()
    assert labels(tmp_path / "tlb.svg") == labels(DOCS / "images" / "studies.svg")
    # The condition leaves six of eight points.
    (planned,) = (text for line, text in shown.items() if "--where" in line)
    assert planned.startswith("points  6\n")
    scripts = [text for _, text in steps(PAGE, "python")]
    output = ran([sys.executable, "-W", "error", "-c", "\n".join(scripts)], tmp_path, shell)
    assert len(re.findall(r"^(?:radix|thp) [14] 0\.\d+$", output, re.MULTILINE)) == 4
    assert len(re.findall(r"^\d+ done$", output, re.MULTILINE)) == 4
    assert complete(tmp_path / "python") == 4
    ((_, query),) = steps(PAGE, "sql")
    monkeypatch.chdir(tmp_path)
    found = pl.sql(query, eager=True)
    assert found.columns == ["design", "mmu.l2.main.entries", "mpki"]
    assert found.rows()[0][:2] == ("radix", 512)
    assert len(found) == 10


PROGRAM = """
int main(void) {
    static char bytes[1 << 22];
    for (int i = 0; i < 1 << 20; i++) bytes[i * 4099 & ((1 << 22) - 1)]++;
    return 0;
}
"""


@needs_qemu
@needs("cc")
def test_a_program_of_ones_own(shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "prog.c").write_text(PROGRAM)
    subprocess.run(["cc", "-O1", "-o", "prog", "prog.c"], cwd=tmp_path, check=True)
    (line,) = LIVE
    ran(shlex.split(line), tmp_path, shell)
    assert complete(tmp_path / "mine") == 4
    assert len(list((tmp_path / "mine" / "recordings").iterdir())) == 1


def test_on_a_cluster_of_ones_own(dask: Dask, shell: dict[str, str], tmp_path: Path) -> None:
    scheduler, worker, command = OF_DASK
    # That is running, but for its port.
    assert scheduler == "dask scheduler"
    first, *words = shlex.split(worker.replace(ADDRESS, dask.address))
    assert first == "dask"
    folder = ("--local-directory", str(tmp_path))
    dask._start(*words, "--no-nanny", "--no-dashboard", *folder, log=tmp_path / "worker.log")
    ran(shlex.split(command.replace(ADDRESS, dask.address)), tmp_path, shell)
    assert complete(tmp_path / "cluster") == 8
    # It has the requested threads and memory, and simulated the runs.
    said = (tmp_path / "worker.log").read_text()
    assert re.search(r"Threads: +8\b", said)


def test_the_extra_that_the_page_installs_exists() -> None:
    extras = parse((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.findall(r"pagewalk\[(\w+)\]", INSTALL) == ["cluster"]
    assert [re.split(r"[<>=]", name)[0] for name in extras["cluster"]] == [
        *("distributed", "dask-jobqueue", "dask-kubernetes")
    ]


@pytest.mark.parametrize("line", OF_BATCH_SYSTEMS, ids=["slurm", "kubernetes"])
def test_the_batch_system_gets_the_documented_resources(
    line: str, shell: dict[str, str], tmp_path: Path
) -> None:
    the_file(tmp_path)
    words = shlex.split(line)
    planned = ran([*words, "--dry-run"], tmp_path, shell)
    assert planned.startswith("points  1200\n")
    assert "1200 runs" in PAGE.read_text()
    option = ClusterOption.read(words[words.index("--cluster") + 1])
    assert option is not None
    jobs = int(words[words.index("--jobs") + 1])
    if option.where == KUBERNETES:
        workers = pods(option, jobs)["spec"]["worker"]
        assert workers["replicas"] == jobs == 50
        (container,) = workers["spec"]["containers"]
        assert container["image"] == "lab/pagewalk:0.1"
        assert container["resources"]["limits"] == {"memory": str(32 << 30), "cpu": "8"}
        return
    with queue(option) as made:
        script = made.job_script()
    for said in ("-p long", "-t 24:00:00", "--cpus-per-task=8"):
        assert f"#SBATCH {said}" in script.splitlines()
    assert "--nthreads 8" in script
    assert "--resources memory=32000000000" in script


def test_every_axis_of_the_page_is_one() -> None:
    rows = re.findall(r"^\| `--vary ([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    steps_of = [axes.written(shlex.split(text)[0]).steps for text in rows]
    assert [len(found) for found in steps_of] == [3, 6, 4, 3, 2, 3, 2]
    parameters = [row.split("=")[0] for row in rows if row.startswith(axes.PARAM)]
    assert {name.removeprefix(axes.PARAM) for name in parameters} <= {*axes.parameters("kv-dense")}
    assert steps_of[1] == ((512,), (1024,), (2048,), (4096,), (8192,), (16384,))
    assert steps_of[2] == ((2,), (4,), (6,), (8,))
    assert steps_of[4] == ((1024, 8), (2048, 16))


def test_the_page_lists_every_key_of_a_study_file() -> None:
    _, table = PAGE.read_text().split("All keys:\n")
    rows = re.findall(r"^\| (.*?) \|", table.split("\n## ")[0], re.MULTILINE)
    keys = {name for row in rows for name in re.findall(r"`\[*(\w+)\]*`", row)}
    assert keys == {*KNOWN}
