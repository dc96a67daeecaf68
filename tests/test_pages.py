"""Pages in a browser: nothing is cut off, nothing overlaps, everything can be read, day and night.

One headless Chromium loads them all, at the widths of a telephone, a tablet and a screen.
"""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

import fake
import live
from browser import PROGRAM, Browser
from pagewalk.reproduce import drawing
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.report import Finished, Reproduction
from pagewalk.reproduce.stored_results import StoredResults
from pagewalk.result import Result
from pagewalk.view import causes, labels, palette
from sight import SIGHT, seen, through

ROOT = Path(__file__).parent.parent
LOOKS = (Path(__file__).parent / "looks.js").read_text()
WIDTHS = (360, 768, 1280)
# Reads a chart with one bar a row: label, length and number at the end of each bar.
BARS = """name => {
  const svg = [...document.querySelectorAll(`figure[data-name="${name}"] svg`)]
    .find(one => one.getClientRects().length > 0);
  const all = what => [...svg.querySelectorAll(what)].map(element => {
    const box = element.getBoundingClientRect();
    return {text: element.textContent, width: box.width, at: box.top + box.height / 2};
  });
  const level = (bar, texts) => texts.filter(text => Math.abs(text.at - bar.at) < 5)
    .map(text => text.text).join();
  return all('.mark-rect.role-mark path').map(bar => [
    level(bar, all('.role-axis-label text')), bar.width, level(bar, all('.role-mark text')),
  ]);
}"""
needs_browser = live.needs(PROGRAM)

HOSTILE = """<script>document.title='ran'</script><img src=x onerror="document.title='ran'">'"&"""
TEN = [
    "radix", "thp", "thp-reservation", "l2tlb-128k", "perfect-tlb", "ecpt", "mehpt", "pom-tlb",
    "radix[mmu.walkers=1,cores=2,os.memory_gb=2048,placement.thp.giant=true]", HOSTILE,
]  # fmt: skip


def result(designs: list[str]) -> Result:
    """A result whose designs differ, with histograms, energy and intervals."""
    spec = {"designs": designs, "seed": 1, "machine": "epyc-milan", "limits": {}}
    data = copy.deepcopy(fake.result(spec))
    data["source"]["name"] = f"./prog {HOSTILE} --file={'x' * 200}"
    for number, design in enumerate(data["designs"]):
        speed = 1 + 0.13 * ((number * 7) % 10 - 2) if number else 1.0
        design["speedup"] = speed
        for quantity in design["summary"]:
            if quantity["name"] == "l2_tlb_mpki":
                quantity["value"] = 61.25 / (1 + number)
        causes = (
            "base",
            "compute",
            "l1d",
            "l2",
            "dram",
            "tlb",
            "walker",
            "walk",
            "kernel",
            "branch",
        )
        shares = [0.1, 0.05, 0.03, 0.07, 0.35, 0.04, 0.06, 0.2, 0.04, 0.06]
        design["cycle_stack"] = [
            {"cause": cause, "cycles": 3e7 * share / speed, "share": share, "meaning": cause}
            for cause, share in zip(causes, shares, strict=True)
        ]
        # Close to one another, so that the names of their lines would lie on each other.
        intervals = design["intervals"]["values"]
        intervals["ipc"] = [0.2, 0.2 + 0.001 * number, 3.0]
        intervals["l2_tlb_mpki"] = [60.0, 61.25 / (1 + number), 333.0]
    return Result(data)


def machines() -> Result:
    """The result of a mix on several machines."""
    programs = [{"workload": {"name": name}} for name in ("gups", "bfs")]
    source = {"mix": {"programs": programs}}
    spec = {"designs": ["radix", "thp"], "seed": 1, "limits": {}, "source": source}
    return Result(fake.result({**spec, "machine": ["epyc-milan", "revelator-table1"]}))


def reproduced(name: str, chosen: list[str]) -> Reproduction:
    """A paper's page of the numbers that are kept of its last whole run."""
    paper = papers.load(name)
    kept = StoredResults.of_folder(ROOT / "papers" / name)
    finished = []
    for figure_name, figure in paper.figures(chosen).items():
        rows, note = kept.figures[figure_name], paper.note(figure)
        picture = drawing.chart(figure, rows, note)
        finished.append(Finished(figure_name, figure, rows, picture, note, []))
    return Reproduction(paper, finished, kept.about["seeds"])


@dataclass
class Pages:
    browser: Browser
    paths: dict[str, Path]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "run": result(["radix"]).to_html(),
        "compare": result(TEN).to_html(),
        "machines": machines().to_html(),
        "bars": reproduced("stlt", ["fig11", "fig15", "table5"]).to_html(),
        "lines": reproduced("combined", ["guesses"]).to_html(),
    }
    paths = {name: folder / f"{name}.html" for name in made}
    for name, text in made.items():
        paths[name].write_text(text)
    with closing(Browser()) as browser:
        yield Pages(browser, paths)


def test_a_browser_that_does_not_answer_leaves_no_process_or_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It starts another process, as Chromium does.
    started, program = tmp_path / "started", tmp_path / "program"
    lines = ("sleep 300 &", f'echo $$ $! "$@" > {started}.part', f"mv {started}.part {started}")
    program.write_text("\n".join(("#!/bin/sh", *lines, "wait\n")))
    program.chmod(0o755)

    def refuse(*_: object, **_parameters: object) -> None:
        assert by_and_by(started.exists)
        raise RuntimeError("no answer")

    monkeypatch.setattr("browser.PROGRAM", str(program))
    monkeypatch.setattr(Browser, "_ask", refuse)
    with pytest.raises(RuntimeError, match="no answer"):
        Browser()
    first, second, *flags = started.read_text().split()
    assert by_and_by(lambda: ended(first) and ended(second))
    (profile,) = (flag.partition("=")[2] for flag in flags if "--user-data-dir=" in flag)
    assert not Path(profile).exists()


def by_and_by(true: Callable[[], bool]) -> bool:
    """True if a condition becomes true within half a minute."""
    deadline = time.monotonic() + 30
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def ended(process: str) -> bool:
    """True if a process is gone, or has ended and waits for its parent to read its status."""
    try:
        state = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


@needs_browser
def test_pages_can_be_read_at_every_width_day_and_night(pages: Pages) -> None:
    browser = pages.browser
    problems = []
    for (name, path), width, dark in itertools.product(pages.paths.items(), WIDTHS, (False, True)):
        browser.show(width, dark=dark)
        browser.load(path)
        # Folded parts are checked, too.
        browser.ask("document.querySelectorAll('details').forEach(d => d.open = true)")
        looks = browser.ask(f"({LOOKS})()")
        assert looks["charts"] >= 1
        assert looks["texts"] > 50
        assert looks["marks"] >= 5
        at = f"{name}, {width} px, {'dark' if dark else 'light'}"
        problems += [f"{at}: {problem}" for problem in looks["found"] + browser.errors()]
        # The page itself is the only request.
        assert browser.requests() == [path.resolve().as_uri()]
    assert problems == []


@needs_browser
def test_the_fastest_of_several_machines_is_so_in_time(pages: Pages) -> None:
    browser = pages.browser
    browser.show(1280)
    browser.load(pages.paths["machines"])
    designs = machines().designs
    for chart, expected in (
        ("speedup", {d.name: d.speedup for d in designs}),
        ("speedup-in-time", {d.name: d.speedup_in_time for d in designs}),
    ):
        bars = {name: (length, text) for name, length, text in browser.ask(f"({BARS})('{chart}')")}
        assert {name: text for name, (_, text) in bars.items()} == {
            name: f"{value:.3f}" for name, value in expected.items()
        }
        longest = max(length for length, _ in bars.values())
        assert longest > 300
        most = max(value for value in expected.values() if value is not None)
        for name, value in expected.items():
            assert value is not None
            # To half a pixel at each end.
            assert bars[name][0] == pytest.approx(longest * value / most, abs=1), (chart, name)
    # No bar of the last chart is as long as that of the one that is called the fastest.
    assert [name for name, (length, _) in bars.items() if length > longest - 1] == [
        "thp on epyc-milan"
    ]
    tile = "[...document.querySelectorAll('.tile')].at(-1).innerText"
    assert browser.ask(tile).split("\n") == ["2.000×", "fastest: thp on epyc-milan"]
    about = browser.ask("document.querySelector('.about').innerText")
    # Equally much as on the other machine.
    assert "thp on epyc-milan gains most, 2.000 times as fast" in about


def test_equal_designs_have_no_fastest() -> None:
    pair = copy.deepcopy(result(["radix", "thp"]).data)
    assert "fastest: thp" in Result(pair).to_html() or "fastest: radix" in Result(pair).to_html()
    for design in pair["designs"]:
        design["speedup"] = 1.0
    page = Result(pair).to_html()
    assert "all designs are equally fast" in page
    assert "fastest:" not in page


@needs_browser
def test_dark_mode_is_dark_and_print_stays_white(pages: Pages) -> None:
    browser = pages.browser
    ask = "getComputedStyle(document.querySelector('section')).backgroundColor"
    ink = "getComputedStyle(document.querySelector('svg text')).fill"
    seen = []
    for dark, media in ((False, ""), (True, ""), (True, "print")):
        browser.show(1280, dark=dark, media=media)
        browser.load(pages.paths["compare"])
        seen.append((browser.ask(ask), browser.ask(ink)))
    light, night, paper = seen
    assert light == paper
    assert light[0] == "rgb(255, 255, 255)"
    assert night[0] != light[0]
    assert night[1] != light[1]


@needs_browser
def test_the_name_of_a_program_is_not_executed(pages: Pages) -> None:
    browser = pages.browser
    browser.show(1280)
    browser.load(pages.paths["compare"])
    assert "<script>" in browser.ask("document.title")
    assert browser.ask("document.querySelectorAll('script').length") == 1
    assert browser.ask("document.querySelectorAll('img').length") == 0
    assert HOSTILE in browser.ask("document.querySelector('h1').textContent")
    # Nor would it if it had got through: the page runs its own script and no other.
    browser.ask(
        "document.body.append(Object.assign(document.createElement('script'),"
        "{textContent: 'document.title = \"ran\"'}))"
    )
    assert browser.ask("document.title") != "ran"
    assert any("Content Security Policy" in error for error in browser.errors())


@needs_browser
def test_charts_are_saved_from_the_page(pages: Pages) -> None:
    browser = pages.browser
    browser.show(1280, dark=True)
    browser.load(pages.paths["compare"])
    assert browser.ask("document.querySelectorAll('figure').length") == browser.ask(
        "document.querySelectorAll('.save').length"
    )
    # Downloads are kept in the page instead.
    browser.ask(
        "window.kept = []; HTMLAnchorElement.prototype.click = function () {"
        "kept.push(fetchable(this.href).then(text => [this.download, text])); }; "
        "window.blobs = {}; const make = URL.createObjectURL; "
        "URL.createObjectURL = blob => { const url = make(blob); blobs[url] = blob; return url; }; "
        "window.fetchable = async url => { const bytes = new Uint8Array("
        "await blobs[url].arrayBuffer()); return String.fromCharCode(...bytes.slice(0, 20000)); };"
        "0"
    )
    browser.ask("document.querySelectorAll('.save button')[0].click()")
    browser.ask("document.querySelectorAll('.save button')[1].click()")
    saved = dict(
        browser.ask(
            "(async () => { while (kept.length < 2) await new Promise(requestAnimationFrame);"
            " return Promise.all(kept); })()"
        )
    )
    assert set(saved) == {"pagewalk-speedup.svg", "pagewalk-speedup.png"}
    picture = saved["pagewalk-speedup.svg"]
    assert picture.startswith("<svg")
    # By itself it has a background and no style's colours.
    assert 'fill="#ffffff"' in picture
    assert "var(" not in picture
    assert saved["pagewalk-speedup.png"].startswith("\x89PNG")
    assert browser.errors() == []


def oklab(colour: str, sight: str) -> tuple[float, ...]:
    """A colour for these eyes in Ottosson's OKLab, where distances are visible differences."""
    cones = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
             (0.0883024619, 0.2817188376, 0.6299787005))  # fmt: skip
    roots = tuple(part ** (1 / 3) for part in through(cones, seen(colour, sight)))
    to = ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
          (0.0259040371, 0.7827717662, -0.8086757660))  # fmt: skip
    return through(to, roots)


@pytest.mark.parametrize("eyes", SIGHT)
@pytest.mark.parametrize("dark", [False, True])
def test_the_colours_of_ten_designs_are_distinguishable(eyes: str, dark: bool) -> None:
    colours = [palette.DARK[c] if dark else c for c in palette.designs(10)]
    placed = [oklab(colour, eyes) for colour in colours]
    least = min(math.dist(a, b) for a, b in itertools.combinations(placed, 2))
    # Without green, the nearest two of Okabe and Ito's eight are 0.076 apart, of Tableau's ten
    # 0.007.
    assert least > 0.08


def test_every_colour_stands_out_by_day_and_by_night() -> None:
    marks = {*palette.designs(30), palette.SLOWER}
    marks |= set(palette.causes([*causes.CAUSES, "a", "b", "c", "d", "e"]).values())
    marks |= {palette.energy(group) for group in palette.ENERGY}
    for colour in marks:
        assert palette.contrast(colour, palette.LIGHT_PANEL) >= 3, colour
        assert palette.contrast(palette.DARK[colour], palette.DARK_PANEL) >= 3, colour
        written = palette.on(colour)
        assert palette.contrast(written, colour) >= 4.5
        assert palette.contrast(palette.DARK[written], palette.DARK[colour]) >= 4.5
    for colour in (palette.INK, palette.FAINT):
        assert palette.contrast(colour, palette.LIGHT_PANEL) >= 4.5
        assert palette.contrast(palette.DARK[colour], palette.DARK_PANEL) >= 4.5
    assert round(palette.contrast("#000000", "#ffffff"), 6) == 21
    assert round(palette.contrast("#777777", "#ffffff"), 2) == 4.48


def test_labels_stay_apart_and_near_their_lines() -> None:
    places = labels.apart([50, 51, 52, 10, 199, 199], 14, 200)
    assert [round(p, 6) for p in places] == [37, 51, 65, 10, 179, 193]
    # More than there is room for still do not lie on each other.
    crowded = sorted(labels.apart([5.0] * 20, 14, 200))
    assert all(b - a >= 14 - 1e-9 for a, b in itertools.pairwise(crowded))
    assert labels.lines("radix[mmu.walkers=1,cores=2]", 14) == [
        "radix[mmu.",
        "walkers=1,",
        "cores=2]",
    ]
    assert "".join(labels.lines("x" * 50, 14)) == "x" * 50
    assert labels.nice(0.845) == 1.0
    assert labels.nice(70) == 70
    assert labels.nice(0.2) == 0.2
