"""Reports list the parts that a design has, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pagewalk
from invoking import Invoke
from pagewalk.view.page import page

SHORT = ("--workload", "gups", "--size", "1MiB", "--instructions", "10K", "--warmup", "0")


def test_the_first_design_that_can_be_built_is_that_of_the_verdict() -> None:
    result = pagewalk.compare(
        ["perfect-tlb", "radix", "thp"], workload="gups", size="64MiB", instructions="50K"
    )
    assert result.verdict[0].startswith("With radix, translation costs ")
    assert "times as fast as radix" in " ".join(result.verdict)
    alone = pagewalk.run(workload="gups", size="1MiB", instructions="10K")
    assert "(translation_cost=True measures it)" in alone.verdict[0]


def test_the_page_calls_the_same_design_the_fastest_as_the_verdict() -> None:
    result = pagewalk.compare(
        ["radix", "thp", "perfect-tlb"], workload="gups", size="64MiB", instructions="50K"
    )
    thp, perfect = result["thp"].speedup, result["perfect-tlb"].speedup
    assert thp is not None and perfect is not None and perfect > thp > 1
    text = page(result)
    assert f"<b>{thp:.3f}×</b><span>fastest: thp</span>" in text
    assert f"thp is the fastest, {thp:.3f} times as fast." in text
    assert f"The fastest design is thp: {thp:.3f} times" in text
    # A single design has nothing to be compared with.
    alone = page(pagewalk.run(workload="gups", size="1MiB", instructions="10K"))
    for word in (">speedup<", ">energy_ratio<"):
        assert (word in text, word in alone) == (True, False)


def test_the_settings_of_a_first_design_have_what_it_changes_of_the_mmu(invoke: Invoke) -> None:
    for design, setting in (("perfect-tlb", "mmu.perfect=true"), ("tlb-asp", "mmu.prefetcher.asp")):
        _, out, _ = invoke("compare", "--designs", f"{design},radix", *SHORT)
        assert re.search(rf"^ +{design} .*{re.escape(setting)}", out, re.MULTILINE)


def test_parts_that_a_design_lacks_are_in_no_report(tmp_path: Path, invoke: Invoke) -> None:
    tables = {"mmu.walk_caches": "radix", "mmu.cuckoo": "ecpt", "mmu.nested_tlb": "thp-virtual"}
    for design in (*tables.values(), "hash-dont-cache"):
        written = tmp_path / f"{design}.html"
        _, out, _ = invoke("run", *SHORT, "--verbose", "--design", design, "--html", str(written))
        has = {table for table in tables if re.search(rf"^ +{table} ", out, re.MULTILINE)}
        expected = {table for table, of in tables.items() if of == design}
        assert has - {"mmu.walk_caches"} == expected - {"mmu.walk_caches"}
        assert ("mmu.walk_caches" in has) == (design in ("radix", "thp-virtual"))
        for text in (out, written.read_text()):
            assert ("table_resizes" in text.split("Every statistic")[0]) == (design == "ecpt")
        energies = written.read_text().split("Part by part")[1].split("</details>")[0]
        assert ">mmu.pwc.5<" not in energies
        assert (">mmu.pwc.4<" in energies) == ("mmu.walk_caches" in has)
