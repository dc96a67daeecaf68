"""``pagewalk explain`` explains every word of reports, in any spelling."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import fake
import pagewalk
from invoking import Invoke, output_of
from pagewalk import native
from pagewalk.result import Result
from pagewalk.view import causes, columns
from terminals import shown


@pytest.fixture(scope="module")
def result() -> Result:
    return pagewalk.compare(
        ["radix", "thp"],
        workload="gups",
        size="64MiB",
        instructions="100K",
        warmup="20K",
        interval="50K",
        progress=False,
    )


def typed(word: str) -> str:
    """A heading or label as a user types it after `explain`."""
    word = re.sub(r"\([^)]*\)", "", html.unescape(word))
    word = re.sub(r"^(Speedup|fastest:).*", r"\1", word, flags=re.IGNORECASE).rstrip(":")
    return " ".join(word.split())


def meant(words: Iterator[str] | set[str], names: set[str]) -> int:
    """The number of words; fails for words without an explanation."""
    whole = {typed(word) for word in words} - names
    numbers = re.compile(r"[\d\s.,×%–-]*|\d+%|.*\d (nJ|uJ|mJ|[KMG]i?B?)")
    whole = {word for word in whole if not numbers.fullmatch(word) or word in ("50 %", "99 %")}
    unknown = sorted(word for word in whole if "found" not in native.explain(word))
    assert unknown == []
    return len(whole)


def test_every_word_of_a_report_is_explained(result: Result) -> None:
    every: list[columns.Column[Any]] = [
        *columns.comparison(result),
        *columns.times(result),
        *columns.energies(result),
        *columns.histogram(),
    ]
    words = {column.name for column in every} | {column.term for column in every if column.term}
    words |= {line for column in every for line in (" ".join(column.title.split("\n")),)}
    # A histogram's column is its name and one of its parts.
    parts = "|".join(map(re.escape, columns.PARTS.values()))
    words = {re.sub(rf"(?<=\w) ({parts})$", "", word) for word in words} | {*columns.PARTS.values()}
    assert meant(words, set()) > 35
    kinds = {
        s["name"].rpartition(".")[2]
        for s in native.statistics()["statistics"]
        if ".slots." in s["name"]
    }
    assert meant({causes.words(cause) for cause in kinds}, set()) > 12
    units = {"K", "M", "G", "KiB", "MiB", "GiB", "nJ", "uJ", "mJ", "J"}
    assert all("found" in native.explain(unit) for unit in units)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_every_title_of_a_report_is_explained(command: str) -> None:
    flags = "--workload gups --size 64MiB --instructions 100K --warmup 20K --sample 20K/50K"
    status, text = shown(100, "-m", "pagewalk", command, *flags.split(), raw=True)
    assert status == 0
    bold = re.findall(r"^ *\x1b\[1m([^\x1b\n]*)\x1b\[0m\s*$", text, re.MULTILINE)
    titles = {re.split(r",| \(| over ", title)[0] for title in bold}
    assert "Cycle stack" in titles
    assert meant(titles, set()) >= 2
    names = {quantity["name"] for quantity in native.statistics()["metrics"]}
    assert meant({"machine", "seed", "warm-up", "sampled IPC", "confidence"} | names, set()) > 30


def test_every_word_of_a_page_is_explained(result: Result) -> None:
    page = result.to_html()
    page = page[: page.index("<h2>Details")]
    words = set(re.findall(r"<(?:h2|th|summary)[^>]*>([^<]*)<", page))
    words |= set(re.findall(r"<span>([^<]*)</span>", page))
    words |= set(re.findall(r"<tr><td>([^<]*)</td>", page))
    words |= set(re.findall(r"<text[^>]*>([^<]*)</text>", page))
    # One heading is a sentence: what it begins with is a word.
    words = {word.partition(",")[0] for word in words}
    names = {design.name for design in result.designs}
    assert meant(words, names | {""}) > 50


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("speedup", "speedup"),
        ("mpki", "MPKI"),
        ("Walk", "walk"),
        ("pwc", "PWC"),
        ("L2 TLB MPKI", "l2_tlb_mpki"),
        ("l2_tlb_mpki", "l2_tlb_mpki"),
        ("EPYC Milan", "epyc-milan"),
        ("MMU.Walkers", "mmu.walkers"),
        ("core.0.mmu.walks", "core.N.mmu.walks"),
    ],
)
def test_case_and_blanks_make_no_difference(words: str, name: str, invoke: Invoke) -> None:
    status, out, err = invoke("explain", *words.split())
    assert (status, err) == (0, "")
    assert out.startswith(f"{name}  ")


def test_a_key_has_default_unit_and_reader(invoke: Invoke) -> None:
    out = output_of(invoke, "explain", "core.return_stack")
    assert "expected: a whole number, entries\n" in out
    assert "default: 32\n" in out
    assert "read by: the out-of-order core\n" in out
    out = output_of(invoke, "explain", "placement.thp.mode")
    assert 'expected: one of "always", "madvise", "never"\n' in out
    out = output_of(invoke, "explain", "mmu.l2")
    assert "mmu.l2.<name>.entries" in out


def test_explain_lists_the_keys_of_a_machine_a_design_and_a_paper(invoke: Invoke) -> None:
    out = output_of(invoke, "explain", "epyc-milan")
    assert re.search(r"core\.rob +256\n", out)
    assert re.search(r"mmu\.l2\.main\.ways +8  cpuid 0x80000006\n", out)
    assert re.search(r"frequency_ghz +3\.4  ours: boost clocks", out)
    every = [f"{path}" for path in paths(pagewalk.machine("epyc-milan").to_dict())]
    (machine,) = native.explain("epyc-milan")["found"]
    assert {s["key"] for s in machine["settings"]} <= set(every)
    out = output_of(invoke, "explain", "thp-reservation")
    assert re.search(r"placement\.reservation\.promotion_threshold +\S+", out)
    out = output_of(invoke, "explain", "mehpt")
    assert [line for line in out.splitlines() if line.startswith("mehpt  ")] == [
        "mehpt  design",
        "mehpt  paper",
    ]
    assert re.search(r"machine +mehpt-table3  table III\n", out)
    assert "HPCA 2023" in out


def paths(config: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in config.items():
        here = f"{path}.{key}" if path else key
        yield here
        if isinstance(value, dict):
            yield from paths(value, here)


def test_explain_compares_the_keys_of_a_file_with_the_defaults(invoke: Invoke) -> None:
    keys = {k["path"]: k["default"] for k in native.config_keys() if "default" in k}
    seen = 0
    for entry in pagewalk.designs():
        for setting in native.explain(entry["name"])["found"][0].get("settings", []):
            if setting["key"] in keys:
                assert setting["default"] == keys[setting["key"]]
                seen += 1
    assert seen > 10
    out = output_of(invoke, "explain", "revelator")
    assert re.search(r"engine\.revelator\.filter +adaptive \(the default\)  section 5\.3\.2\n", out)


def test_without_a_name_topics_are_listed(invoke: Invoke) -> None:
    out = output_of(invoke, "explain")
    for word in ("speedup", "l2_tlb_mpki", "thp-reservation", "epyc-milan", "gups", "stlt", "mmu"):
        assert re.search(rf"\b{word}\b", out), word
    out = output_of(invoke, "explain", "--json", "-")
    listed = json.loads(out)
    assert {"term", "metric", "design", "machine", "workload", "paper", "config"} == set(listed)
    assert native.explain(listed["term"][0]) == native.explain(listed["term"][0].upper())


def test_an_unknown_name_suggests_the_nearest_word_first(invoke: Invoke) -> None:
    status, _, err = invoke("explain", "speedpu")
    assert status == 2
    assert "did you mean speedup" in err
    status, _, err = invoke("explain", "xyzzyxyzzy")
    assert (status, "check the spelling" in err) == (2, True)


def test_words_of_a_name_are_one_name(engine: fake.Engine, invoke: Invoke) -> None:
    engine.explained = {
        "found": [{"kind": "term", "name": "a b", "text": "t", "unit": "", "source": ""}]
    }
    assert output_of(invoke, "explain", "a", "b").startswith("a b  term\n")
