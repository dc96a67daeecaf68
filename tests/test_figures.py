"""Charts for a paper: each format, one column wide, and what cannot be drawn is said at once."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import fake
import pagewalk
from invoking import Invoke
from pagewalk import native
from pagewalk.errors import Failure, UserError
from pagewalk.result import Result

GUPS = ("--workload", "gups")


@pytest.fixture
def result(engine: fake.Engine) -> Result:
    spec = {"designs": ["radix", "thp"], "seed": 1, "machine": "m", "limits": {}}
    return Result(fake.result(spec))


def test_the_suffix_selects_the_file_format(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    svg, pdf, png = (tmp_path / f"chart.{kind}" for kind in ("svg", "pdf", "png"))
    flags = [f"--figure={svg}", f"--figure=cycles={pdf}", f"--figure=l2_tlb_mpki={png}"]
    assert invoke("compare", *GUPS, "--designs", "radix,thp", *flags)[0] == 0
    drawing = svg.read_text()
    texts = {e.text for e in ET.fromstring(drawing).iter() if e.tag.endswith("text")}
    assert {"radix", "thp", "2.000", "speedup over radix"} <= texts
    # On white, and as wide as a column of a paper: 3.33 inches.
    assert 'fill="white"' in drawing
    width = re.search(r'width="(\d+)"', drawing)
    assert width is not None
    assert 300 <= int(width[1]) <= 325
    page = re.search(rb"/MediaBox \[0 0 (\d+) \d+\]", pdf.read_bytes())
    assert page is not None
    assert 225 <= int(page[1]) <= 244
    picture = png.read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 1850 <= int.from_bytes(picture[16:20], "big") <= 2030
    assert {p.name for p in tmp_path.iterdir()} == {"chart.svg", "chart.pdf", "chart.png"}


def test_one_design_is_drawn_by_its_cycles(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "chart.svg"
    assert invoke("run", *GUPS, "--figure", str(path))[0] == 0
    assert ">cycles an instruction<" in path.read_text()


def test_a_folder_may_have_an_equals_sign(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "a=b.svg"
    assert invoke("run", *GUPS, "--figure", str(path))[0] == 0
    assert path.exists()


def test_several_machines_are_drawn_by_speedup_in_time(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "chart.svg"
    words = ("--machine", "epyc-milan,mehpt-table3", "--designs", "radix", "--figure", str(path))
    assert invoke("compare", *GUPS, *words)[0] == 0
    drawing = path.read_text()
    assert "radix on mehpt-table3" in drawing
    assert "speedup in time over" in drawing


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_same_result_gives_the_same_file(kind: str, result: Result, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.{kind}" for n in (1, 2)]
    for path in paths:
        result.write_figure(str(path), "ipc-over-time")
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compare", "--figure", "a.gif"), "'a.gif' does not say what to write"),
        (("compare", "--figure", "-"), "expected a name that ends in .svg, .pdf or .png"),
        (("compare", "--figure", "nothing=a.svg"), "there is no chart 'nothing'; expected speedup"),
        (("compare", "--figure", "IPC=a.svg"), "there is no chart 'IPC'"),
        (("compare", "--figure", "antt=a.svg"), "there is no chart 'antt'"),
        (("compare", "--figure", "seconds=a.svg"), "there is no chart 'seconds'"),
        (("compare", "--figure", "programs.walks=a.svg"), "there is no chart 'programs.walks'"),
        (("run", "--figure", "speedup=a.svg"), "one design has no speedup; use compare"),
        (("compare", "--figure", "speedup-in-time=a.svg"), "name several, as in --machine A,B"),
        (("run", "--figure", "ipc-over-time=a.svg"), "needs intervals; add --interval N"),
        (
            ("run", "--interval", "1M", "--figure", "l2p_entries-over-time=a.svg"),
            "intervals have no l2p_entries; draw it of the whole run, as in l2p_entries=a.svg",
        ),
        (
            (
                *("compare", "--machine", "epyc-milan,mehpt-table3", "--interval", "1M"),
                *("--figure", "seconds-over-time=a.svg"),
            ),
            "such as l2_tlb_mpki-over-time",
        ),
        (("compare", "--figure", "no/folder/a.svg"), "there is no folder 'no/folder'"),
        (("compare", "--figure", "a.svg", "--figure", "energy=a.svg"), "both write 'a.svg'"),
        (("compare", "--figure", "a.svg", "--figure", "a.svg"), "both write 'a.svg'"),
        (
            ("compare", "--figure", "no/folder/a.svg", "--figure", "b.svg"),
            "there is no folder 'no/folder'",
        ),
    ],
)
def test_an_invalid_figure_is_refused_before_the_run(
    words: tuple[str, ...], said: str, engine: fake.Engine, invoke: Invoke
) -> None:
    status, _, err = invoke(words[0], *GUPS, *words[1:])
    assert status == 2
    assert said in err
    assert engine.specs == []


def test_a_mix_has_no_speedup_in_time(engine: fake.Engine, invoke: Invoke) -> None:
    words = ("--mix", "gups,bfs", "--machine", "epyc-milan,mehpt-table3")
    for designs, figure in (("radix,thp", "speedup-in-time=a.svg"), ("radix", "a.svg")):
        status, _, err = invoke("compare", *words, "--designs", designs, "--figure", figure)
        assert status == 2
        assert "not defined for a mix" in err
        assert "as in cycles=a.svg" in err
    assert engine.specs == []


def test_the_real_engine_s_intervals_lack_the_numbers_that_are_refused() -> None:
    shared = ("gups:size=1MiB", "gups:size=2MiB")
    arguments = {"instructions": "20K", "warmup": 0, "interval": "5K", "progress": False}
    result = pagewalk.run("mehpt", mix=shared, **arguments)  # type: ignore[arg-type]
    assert set(native.metrics(2)) - result.designs[0].intervals.values.keys() == set(
        native.NOT_OF_INTERVALS
    )


def test_a_figure_without_numbers_is_an_error_and_the_others_are_written(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    def script(spec: dict[str, object], _progress: object) -> dict[str, object]:
        answer = fake.result(spec)
        for design in answer["designs"]:
            del design["energy"]
        return answer

    engine.script = script
    lost, whole, kept = (tmp_path / name for name in ("lost.svg", "whole.svg", "r.json"))
    flags = ["--figure", f"energy={lost}", "--figure", f"cycles={whole}", "--json", str(kept)]
    status, out, err = invoke("compare", *GUPS, *flags)
    assert status == 1
    assert "the result has nothing for the chart 'energy'" in err
    assert "Cycle stack" in out
    assert (lost.exists(), whole.exists(), kept.exists()) == (False, True, True)


def test_python_draws_the_same(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "chart.svg"
    result.write_figure(str(path))
    assert ">speedup over radix<" in path.read_text()
    with pytest.raises(UserError, match=r"ends in \.svg, \.pdf or \.png"):
        result.write_figure(str(tmp_path / "chart.jpeg"))
    with pytest.raises(Failure, match="nothing for the chart 'no_such_number'"):
        result.write_figure(str(path), "no_such_number")
