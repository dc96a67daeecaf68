"""Recorded placements: exported, read back, listed for a guest, and drawn beside the model."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pagewalk
from invoking import Invoke
from pagewalk.reproduce import Outcome, Run
from pagewalk.reproduce import paper as papers
from pagewalk.runs.plan import keys

ROOT = Path(__file__).parent.parent
HEADER = "pagewalk-frames version=1 first_frame=0 frames=131072 page_size=4096 tiers=6 seed=7\n"
ARGUMENTS: dict[str, Any] = {
    "workload": "gups", "size": "8MiB", "instructions": "50K", "warmup": 0, "progress": False,
    "machine": "revelator-table1",
}  # fmt: skip


def script(name: str) -> ModuleType:
    # Its own imports are beside it.
    if str(ROOT / "linux") not in sys.path:
        sys.path.append(str(ROOT / "linux"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "linux" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stats(design: pagewalk.DesignResult) -> dict[str, int]:
    """All counters, but those that only one of the two policies has."""
    own = ("os.recorded",)
    return {
        f"{s.path}.{s.name}": s.value
        for s in (*design.statistics, *design.since_boot)
        if s.path not in own and not s.name.endswith("_expected")
    }


@pytest.mark.parametrize("settings", [{}, {"os.occupied": 0.5}, {"os.occupied": 0.8}], ids=str)
@pytest.mark.parametrize(
    "program",
    [
        {"workload": "gups", "size": "8MiB"},
        {"workload": "bfs", "params": {"vertices": "16384"}, "size": None},
        {"workload": "xsbench", "size": "64MiB"},
    ],
    ids=lambda program: program["workload"],
)
def test_a_placement_that_is_read_back_gives_the_same_result(
    program: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    arguments = {**ARGUMENTS, **program, "settings": settings}
    model = pagewalk.run("revelator", page_mappings=True, **arguments)
    file = tmp_path / "model.frames"
    pagewalk.export_frames(model.designs[0], file)
    again = pagewalk.run("revelator", page_mappings=True, frames=file, **arguments)
    first, second = model.designs[0], again.designs[0]
    assert second.config["placement"] == {"recorded": {"file": str(file)}}
    assert first.get("cycles") == second.get("cycles")
    assert stats(first) == stats(second)
    assert first.histograms == second.histograms
    assert first.mappings == second.mappings
    copy = tmp_path / "again.frames"
    pagewalk.export_frames(second, copy)
    assert copy.read_bytes() == file.read_bytes()
    assert not [text for text in again.data["warnings"] if "recorded" in text]


def test_a_denied_frame_is_placed_as_recorded_too(tmp_path: Path) -> None:
    settings = {"revelator:placement.tiered_hash.denied": 0.85}
    model = pagewalk.run("revelator", page_mappings=True, settings=settings, **ARGUMENTS)
    pagewalk.export_frames(model.designs[0], tmp_path / "f")
    again = pagewalk.run("revelator", settings=settings, frames=tmp_path / "f", **ARGUMENTS)
    assert again.designs[0].get("cycles") == model.designs[0].get("cycles")


def test_only_designs_with_hashed_placement_use_the_file(tmp_path: Path) -> None:
    file = tmp_path / "none.frames"
    file.write_text(HEADER)
    result = pagewalk.compare(["radix", "revelator"], frames=file, **ARGUMENTS)
    radix, revelator = (d.config["placement"] for d in result.designs)
    assert (radix, revelator) == ({"buddy": {}}, {"recorded": {"file": str(file)}})
    found = {s.name: s.value for s in result.designs[1].since_boot if s.path == "os.recorded"}
    assert found["pages_as_recorded"] == 0
    missing = found["pages_missing"]
    assert missing > 2048
    [said] = [text for text in result.data["warnings"] if "recorded" in text]
    assert said == (
        f"revelator: {missing} of {missing} pages of 4 KB are in other frames than recorded: the "
        f"file names no frame for {missing}, and the recorded frames of 0 were in use"
    )
    with pytest.raises(pagewalk.UserError, match="frames: no design places pages by hash"):
        pagewalk.run("radix", frames=file, **ARGUMENTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "which cannot be read"),
        ("", "whose line 1 is ''; expected 'pagewalk-frames version=1"),
        (HEADER.replace("=1 ", "=3 ", 1), "its version is 3; expected version 1"),
        (HEADER + "1 2 3\n", "whose line 2 is '1 2 3'; expected 'ASID VPN FRAME TIER'"),
        (HEADER + "1 2 3 1\n", "its tier is 1, but by the hash of the first line frame 3"),
        (HEADER + "1 2 200000000 0\n", "lies beyond the 128 GB of os.memory_gb"),
    ],
)
def test_a_wrong_file_is_one_sentence(
    text: str | None, words: str, tmp_path: Path, invoke: Invoke
) -> None:
    file = tmp_path / "wrong.frames"
    if text is not None:
        file.write_text(text)
    status, out, error = invoke(
        "run", "--design", "revelator", "--workload", "gups", "--size", "1MiB",
        "--instructions", "1K", "--machine", "revelator-table1", "--frames", str(file),
    )  # fmt: skip
    assert (status, out) == (2, "")
    said = " ".join(error.split())
    assert "placement.recorded.file is" in said
    assert words in said


def test_a_result_without_frames_cannot_be_exported(tmp_path: Path) -> None:
    plain = pagewalk.run("revelator", **ARGUMENTS).designs[0]
    with pytest.raises(pagewalk.UserError, match="expected a run with page_mappings=True"):
        pagewalk.export_frames(plain, tmp_path / "f")
    radix = pagewalk.run("radix", page_mappings=True, **ARGUMENTS).designs[0]
    assert radix.mappings
    with pytest.raises(pagewalk.UserError, match="design radix does not place pages by hash"):
        pagewalk.export_frames(radix, tmp_path / "f")
    settings = {"placement.tiered_hash.tiers": 2, "placement.tiered_hash.order": [2, 1]}
    turned = pagewalk.run("revelator", page_mappings=True, settings=settings, **ARGUMENTS)
    with pytest.raises(pagewalk.UserError, match=r"expected no placement\.tiered_hash\.order"):
        pagewalk.export_frames(turned.designs[0], tmp_path / "f")


def test_kept_results_are_those_of_the_files_content(tmp_path: Path) -> None:
    paper = papers.load("revelator", "smoke")
    identities: list[str] = []
    for name, text in (("a", HEADER), ("b", HEADER), ("b", HEADER + "1 7 200000 0\n")):
        file = tmp_path / name
        file.write_text(text)
        changes = {"placement": {"recorded": {"file": str(file)}}}
        design = paper.designs["Revelator low"].changed("recorded", changes)
        run = paper.run("BFS", design)
        found, wrong = keys([run], tmp_path)
        assert not wrong
        identities += found.values()
    assert identities[0] == identities[1] != identities[2]
    (tmp_path / "b").unlink()
    found, wrong = keys([run], tmp_path)
    [why] = wrong.values()
    assert "the file of placements" in why
    assert not found


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The list of a run's pages, and these pages."""
    folder = tmp_path_factory.mktemp("touches")
    result = pagewalk.run("thp", page_mappings=True, **ARGUMENTS)
    result.write_json(str(folder / "run.json"))
    done = subprocess.run(
        [sys.executable, ROOT / "linux/touches.py", folder / "run.json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    (folder / "list").write_text(done.stdout)
    pages = json.loads((folder / "run.json").read_text())["designs"][0]["mappings"]
    return folder / "list", pages


def test_the_list_of_touches_has_every_page_once(
    listed: tuple[Path, list[dict[str, Any]]],
) -> None:
    file, pages = listed
    found = []
    for line in file.read_text().splitlines():
        vpn, count, *huge = line.split()
        assert huge in ([], ["huge"])
        step = 512 if huge else 1
        found += [(page, step) for page in range(int(vpn), int(vpn) + int(count), step)]
    assert found == sorted((p["address"] >> 12, p["bytes"] >> 12) for p in pages)
    assert {step for _, step in found} == {1, 512}


def test_a_hashed_designs_pages_are_listed_in_the_order_of_their_first_touch() -> None:
    touches = script("touches")
    placed = [
        {"content": "page", "asid": 3, "vpn": 9, "frame": 1, "tier": 0},
        {"content": "table", "asid": 3, "vpn": 512, "frame": 2, "tier": 0},
        {"content": "page", "asid": 4, "vpn": 10, "frame": 3, "tier": 0},
        {"content": "huge", "asid": 3, "vpn": 1024, "frame": 512, "tier": 0},
        {"content": "page", "asid": 3, "vpn": 7, "frame": 4, "tier": 0},
        {"content": "page", "asid": 3, "vpn": 8, "frame": 5, "tier": 0},
    ]
    design = {
        "name": "a", "mappings": [{"process": 0, "address": 4096, "bytes": 4096}],
        "hashed_frames": {"asids": [3, 4], "placed": placed},
    }  # fmt: skip
    pages = touches.pages_of({"designs": [design]}, None, 0)
    assert list(touches.ranges(pages)) == [(9, 1, False), (1024, 512, True), (7, 2, False)]


@pytest.mark.parametrize(
    ("result", "more", "words"),
    [
        ("{}", [], "it has no designs; expected a file of pagewalk run --json"),
        ("x", [], "expected a file of pagewalk run --json"),
        ('{"designs": [{"name": "a"}]}', [], "expected one with --page-mappings"),
        ('{"designs": [{"name": "a"}]}', ["--design", "b"], "no design 'b'; expected one of a"),
        (
            '{"designs": [{"name": "a", "mappings": []}]}', ["--process", "3"],
            "no page of process 3 is mapped",
        ),
    ],
)  # fmt: skip
def test_mistakes_with_touches_are_one_sentence(
    result: str, more: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text(result)
    command = [sys.executable, str(ROOT / "linux/touches.py"), str(tmp_path / "run.json"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    [said] = done.stderr.splitlines()
    assert words in said


@pytest.fixture(scope="module")
def touch_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest's program, built for this host."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = tmp_path_factory.mktemp("guest") / "touch_pages"
    source = ROOT / "linux/guest/touch_pages.c"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-static-pie"]
    done = subprocess.run(["gcc", *flags, "-o", program, source], capture_output=True, check=False)
    if done.returncode and b"cannot find" in done.stderr:
        pytest.skip("there is no static C library")
    assert done.returncode == 0, done.stderr.decode()
    return program


def test_the_guests_program_touches_the_listed_pages(
    touch_pages: Path, listed: tuple[Path, list[dict[str, Any]]]
) -> None:
    file, pages = listed
    process = subprocess.Popen([touch_pages, "-w", file], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        count = sum(page["bytes"] >> 12 for page in pages)
        ranges = len(file.read_text().splitlines())
        assert said == f"touch_pages: {count} pages in {ranges} ranges\n"
        with Path(f"/proc/{process.pid}/pagemap").open("rb") as pagemap:
            for page in pages:
                pagemap.seek(page["address"] >> 12 << 3)
                entry = int.from_bytes(pagemap.read(8), "little")
                # Bit 63: the page is in memory.
                assert entry >> 63, page
    finally:
        process.kill()
        process.wait()


def test_the_guests_program_touches_no_other_page(touch_pages: Path) -> None:
    process = subprocess.Popen(
        [touch_pages, "-w", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("# two areas\n2048 5\n1026 1\n1024 2\n")
        process.stdin.close()
        assert process.stdout.readline() == "touch_pages: 8 pages in 3 ranges\n"
        time.sleep(0.1)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        low = [line.split()[:2] for line in maps.splitlines() if len(line.split("-")[0]) == 8]
        assert low == [["00400000-00403000", "rw-p"], ["00800000-00805000", "rw-p"]]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1024\n", "line 1: it is no range; expected VPN COUNT, or VPN COUNT huge"),
        ("1024 1 big\n", "line 1: it is no range"),
        ("# a\n-1 1\n", "line 2: it is no range"),
        ("1024 0\n", "line 1: the pages lie outside of 47-bit addresses"),
        ("34359738367 2\n", "line 1: the pages lie outside of 47-bit addresses"),
        ("1025 512 huge\n", "line 1: the pages are no 2 MB pages; expected multiples of 512"),
        ("1024 3\n1026 1\n", "line 2: an earlier line has some of the pages; list each page once"),
    ],
)
def test_the_guests_program_refuses_wrong_lines(touch_pages: Path, text: str, words: str) -> None:
    done = subprocess.run(
        [touch_pages, "-"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"touch_pages: -, {words}" in done.stderr


ROWS = [
    {
        "pressure": occupied / 100, "run": run, "hashes": hashes,
        "tiers": {"measured": [*(0.5 ** (n + 1) for n in range(hashes)), 0.5**hashes]},
    }
    for occupied in (20, 40, 60, 80)
    for hashes in range(1, 7)
    for run in (1, 16)
]  # fmt: skip


def absent(_run: Run) -> Outcome:
    """The outcome of a run that was not simulated."""
    return Outcome("", None, "not run")


def test_figure_10_has_the_kernels_bars_on_request(tmp_path: Path) -> None:
    paper = papers.load("revelator", "smoke")
    [figure] = paper.figures(["fig10"]).values()
    without = figure.rows(paper, absent)
    (tmp_path / "figure10.json").write_text(json.dumps({"rows": ROWS}))
    paper.kernel_results = tmp_path
    rows = figure.rows(paper, absent)
    assert [row for row in rows if "Linux" not in row.series] == without
    bars = [r for r in rows if (r.panel, r.group, r.series) == ("60%", "N=2", "Linux")]
    assert [(bar.part, bar.value) for bar in bars] == [
        ("H1", 50), ("H2", 25), ("buddy allocator", 25),
    ]  # fmt: skip
    assert {row.series for row in rows if row.panel == "20%"} == {
        "measured", "model", "Linux", "Linux, fragmented by 16",
    }  # fmt: skip
    [far] = [
        r for r in rows
        if (r.group, r.series) == ("80 % occupied, N=1", "farthest from the model, Linux")
    ]  # fmt: skip
    assert far.value == pytest.approx(30)


def test_figure_11_has_the_kernels_bars_on_request(tmp_path: Path) -> None:
    paper = papers.load("revelator", "smoke")
    [figure] = paper.figures(["fig11"]).values()
    without = figure.rows(paper, absent)
    speedup = {"figure": 1.3, "model": 1.2, "linux": 1.1, "locked": 1.0}
    row = {"program": "BFS", "pressure": "high", "speedup": speedup}
    (tmp_path / "figure11.json").write_text(json.dumps({"rows": [row]}))
    paper.kernel_results = tmp_path
    rows = figure.rows(paper, absent)
    more = [row for row in rows if row not in without]
    panel = "high, on the frames of kernels"
    assert panel in {of.name for of in figure.panels}
    assert [(r.panel, r.group, r.series, r.value) for r in more] == [
        (panel, "BFS", "denied frames, simulated kernel", 1.3),
        (panel, "BFS", "occupied frames, simulated kernel", 1.2),
        (panel, "BFS", "occupied frames, Linux", 1.1),
        (panel, "BFS", "occupied frames, Linux, pages locked", 1.0),
    ]
    (tmp_path / "figure11.json").write_text(json.dumps({"rows": [{"program": "BFS"}]}))
    with pytest.raises(pagewalk.UserError, match="has no rows of figure 11"):
        figure.rows(paper, absent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "is no JSON"),
        ('{"a": 1}', "has no rows of figure 10"),
        (json.dumps({"rows": [{**ROWS[0], "hashes": 3}]}), "has no rows of figure 10"),
        (json.dumps({"rows": [{**ROWS[0], "tiers": {"measured": [0.1, 0.1]}}]}), "add up to"),
    ],
)
def test_wrong_kernel_results_are_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    paper = papers.load("revelator", "smoke")
    [figure] = paper.figures(["fig10"]).values()
    (tmp_path / "figure10.json").write_text(text)
    paper.kernel_results = tmp_path
    with pytest.raises(pagewalk.UserError, match=words) as raised:
        figure.rows(paper, absent)
    assert "expected the results of 'make linux-figures " in str(raised.value)


def test_figures_without_kernel_results_are_refused(invoke: Invoke, tmp_path: Path) -> None:
    status, _, error = invoke("reproduce", "revelator", "fig12", "--scale", "smoke", "--kernel")
    assert status == 2
    assert "no chosen figure has measurements in a kernel" in " ".join(error.split())
    folder = tmp_path / "papers" / "revelator"
    shutil.copytree(ROOT / "papers" / "revelator", folder)
    paper = papers.load(str(folder), "smoke")
    with pytest.raises(pagewalk.UserError, match="make it with 'make linux-figures "):
        paper.with_kernel(["fig10"])
    assert paper.kernel_results is None
    results = tmp_path / "linux" / "results"
    results.mkdir(parents=True)
    (results / "figure10.json").write_text(json.dumps({"rows": ROWS}))
    paper.with_kernel(["fig10"])
    assert paper.kernel_results == results
