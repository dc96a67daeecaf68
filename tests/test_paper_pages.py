"""Pages of papers are made of results that are kept, and hold no number of their own run else."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from invoking import Invoke
from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.reproduce import Outcome, Row, claims
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.stored_results import NAME, TEMPLATE, StoredResults

ROOT = Path(__file__).parent.parent
PAPERS = ROOT / "papers"
TEMPLATES = [path.parent.name for path in PAPERS.glob(f"*/{TEMPLATE}")]
KEPT = [path.parent.name for path in PAPERS.glob(f"*/{NAME}")]
ABOUT = {
    "scale": {"name": "smoke"}, "seeds": [1], "version": "0", "deviations": "../../DEVIATIONS.md",
}  # fmt: skip


MORE = {"claims": "", "figures": ""}
"""Texts for what a page has besides numbers."""


def planned(name: str) -> StoredResults:
    """The rows that a run at the smallest scale would have, each with a number."""
    paper = papers.load(name, "smoke")
    failed = Outcome("", None, "no luck")
    rows: dict[str, list[Row]] = {
        figure: [replace(row, value=1.0) for row in made.rows(paper, lambda _run: failed)]
        for figure, made in paper.figures([*paper.order, *paper.on_request]).items()
    }
    for path in (PAPERS / name).glob("results-*@*.json"):
        at_scale = path.stem.removeprefix("results-")
        rows[at_scale] = rows[at_scale.partition("@")[0]]
    return StoredResults(ABOUT, rows)


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_number_that_a_page_names_is_one_of_the_paper_s_figures(name: str) -> None:
    template = (PAPERS / name / TEMPLATE).read_text()
    page = planned(name).page(template, MORE)
    assert "{{" not in page
    with pytest.raises(UserError, match="no such row"):
        planned(name).page(template + "{{fig8; ; none; none}}", MORE)


@pytest.mark.parametrize("name", KEPT)
def test_a_page_agrees_with_the_stored_results(name: str) -> None:
    folder = PAPERS / name
    page = (ROOT / "docs" / "papers" / f"{name}.md").read_text()
    assert page == claims.page(folder), f"run 'python scripts/paper_page.py {name} --write'"
    kept = StoredResults.read(folder / NAME)
    assert kept.about["version"]
    assert kept.about["seeds"]
    assert set(kept.figures) == set(papers.load(name).order), "not of a whole run"


def test_the_status_of_the_script_shows_if_a_page_agrees() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "paper_page.py")]
    for name in TEMPLATES:
        answer = subprocess.run([*script, name], capture_output=True, text=True, check=False)
        assert answer.returncode == (0 if name in KEPT else 2), answer.stderr
    answer = subprocess.run([*script, "none"], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: there is no template")


def test_a_page_made_of_other_numbers_is_another_page() -> None:
    for name in TEMPLATES:
        template = (PAPERS / name / TEMPLATE).read_text()
        kept = planned(name)
        other = {f: [replace(r, value=7.5) for r in rows] for f, rows in kept.figures.items()}
        assert StoredResults(ABOUT, other).page(template, MORE) != kept.page(template, MORE)
        # A page that is generated from all numbers of the figures names few of them.
        assert "{{figures}}" in template or len(re.findall(r"\{\{", template)) > 50


def test_some_figures_of_another_scale_are_kept_beside_the_whole_run(tmp_path: Path) -> None:
    about = dict.fromkeys(("paper", "title", "source", "full_scale", "machine"), "") | ABOUT
    large = about | {"scale": {"name": "paper"}}
    both = {name: [Row("g", "s", 5.0)] for name in ("fig1", "fig2")}
    StoredResults(about, both).store(tmp_path, [])
    StoredResults(large, {"fig2": [Row("g", "s", 6.0)]}).store(tmp_path, [])
    template = "{{run}}\n{{fig2; ; g; s}} {{fig2@paper; ; g; s}}\n"
    page = StoredResults.of_folder(tmp_path).page(template, MORE)
    assert page.splitlines()[1:] == ["Pagewalk 0, scale `smoke`, seed 1", "5 6"]
    with pytest.raises(UserError, match=r"lacks figures .* of the same scale \(fig1\)"):
        StoredResults(about, {"fig2": [Row("g", "s", 7.0)]}).store(tmp_path, [])
    # All figures of another scale take the whole run's place.
    StoredResults(large, both).store(tmp_path, [])
    assert "scale `paper`" in StoredResults.of_folder(tmp_path).page(template, MORE)


def test_figures_on_request_are_kept_by_themselves(tmp_path: Path) -> None:
    cells = {"a": 1.0, "b": 2.0}
    long = [Row(group, name, cells[name], unit="of 3") for group in "xy" for name in cells]
    about = dict.fromkeys(("paper", "title", "source", "full_scale", "machine"), "") | ABOUT
    StoredResults(about, {"fig1": [Row("g", "s", 5.0)]}).store(tmp_path, ["long"])
    StoredResults(about, {"long": long}).store(tmp_path, ["long"])
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["results-long.json", NAME]
    page = StoredResults.of_folder(tmp_path).page("{{fig1; ; g; s}}\n{{all long; }}\n")
    assert page.splitlines()[1:] == [
        "5", "| | a, of 3 | b, of 3 |", "|---|--:|--:|", "| x | 1 | 2 |", "| y | 1 | 2 |",
    ]  # fmt: skip
    with pytest.raises(UserError, match="no such panel"):
        StoredResults.of_folder(tmp_path).page("{{all long; other}}")


def claimed(folder: Path, text: str) -> list[claims.Claim]:
    (folder / claims.NAME).write_text(text)
    return claims.read(folder)


def test_claims_are_judged_by_the_worst_of_their_rows(tmp_path: Path) -> None:
    model = native.model_version()
    near, far = Row("g", "near", 2.0, 2.0), Row("g", "far", 3.0, 2.0, deviation="why")
    head = dict.fromkeys(("paper", "title", "source", "full_scale", "machine"), "")
    about = {**head, **ABOUT, "model": model}
    StoredResults(about, {"fig1": [near, far]}).write(tmp_path / NAME)
    StoredResults({**about, "model": model - 1}, {"fig2": [near, Row("g", "none", 1.0)]}).write(
        tmp_path / "results-fig2.json"
    )
    one = '[[claim]]\nsays = "fast"\nplace = "section I"\nrows = ["fig1; ; g; near"'
    (claim,) = claimed(tmp_path, f"{one}]\n")
    assert (claim.verdict, claim.outdated) == ("agrees", "")
    (claim,) = claimed(tmp_path, f'{one}, "fig1; ; g; far"]\n')
    assert claim.verdict == "differs"
    assert "#why" in claims.markdown([claim], "DEVIATIONS.md")
    # A range that holds ours makes it agree.
    (claim,) = claimed(tmp_path, f'{one}, "fig1; ; g; far"]\nup_to = 3.1\n')
    assert claim.verdict == "agrees"
    # A claim by which a parameter was chosen agrees by construction at best.
    (claim,) = claimed(tmp_path, f'{one}]\nchosen = "the size"\n')
    assert claim.verdict == "agrees by construction"
    (claim,) = claimed(tmp_path, f'{one}, "fig2; ; g; near"]\n')
    assert claim.outdated == f"results of model {model - 1}, now {model}"
    for rows, says in (
        ('"fig1; ; g; nowhere"', "no such row"),
        ('"fig1; g"', "expected figure; panel; group; series"),
        ('"fig2; ; g; none"', "no number of the paper"),
    ):
        with pytest.raises(UserError, match=says):
            claimed(tmp_path, f'[[claim]]\nsays = "x"\nplace = "y"\nrows = [{rows}]\n')
    with pytest.raises(UserError, match="did you mean 'rows'"):
        claimed(tmp_path, '[[claim]]\nsays = "x"\nplace = "y"\nrow = []\n')


def test_claims_simulate_nothing(invoke: Invoke) -> None:
    status, out, _ = invoke("reproduce", "stlt", "--claims")
    assert status == 0
    assert "claims agree" in out
    status, _, err = invoke("reproduce", "stlt", "fig11", "--claims")
    assert status == 2
    assert "simulates nothing" in err
