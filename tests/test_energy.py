"""Energy in results, reports, pages and frames."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fake
import pagewalk
from pagewalk.view.quantities import joules, with_unit

GUPS: dict[str, Any] = {"workload": "gups", "size": "64MiB", "instructions": "200K"}


@pytest.fixture(scope="module")
def result() -> pagewalk.Result:
    return pagewalk.compare(["radix", "thp", "perfect-tlb"], interval="50K", **GUPS)


@pytest.mark.parametrize(
    ("nanojoules", "text"),
    [
        (0, "0 nJ"),
        (812, "812 nJ"),
        (999.4, "999 nJ"),
        (999.96, "1.00 uJ"),
        (43_100_000, "43.1 mJ"),
        (2.5e9, "2.50 J"),
        (1e15, "1000 kJ"),
    ],
)
def test_an_energy_reads_well(nanojoules: float, text: str) -> None:
    assert joules(nanojoules) == text
    assert with_unit(nanojoules, "nJ") == text


def test_parts_and_kinds_of_parts_add_up_to_the_whole(result: pagewalk.Result) -> None:
    for design in result.designs:
        energy = design.energy
        assert energy is not None
        assert sum(p.total_nj for p in energy.parts) == pytest.approx(energy.total_nj)
        assert sum(energy.groups.values()) == pytest.approx(energy.total_nj)
        assert energy.dynamic_nj + energy.static_nj == pytest.approx(energy.total_nj)
        assert design["energy"] == energy.total_nj
        for part in energy.parts:
            assert sum(e.total_nj for e in part.events) == pytest.approx(part.dynamic_nj)
            for event in part.events:
                assert event.count * event.each_pj / 1e3 == pytest.approx(event.total_nj)
            milliwatts = part.static_mw * part.number
            assert part.static_nj == pytest.approx(milliwatts * energy.seconds * 1e6)


def test_energy_is_compared_with_the_first_design(result: pagewalk.Result) -> None:
    ratios = [d.energy_ratio for d in result.designs]
    per = [d["energy_per_instruction"] for d in result.designs]
    assert ratios == pytest.approx([own / per[0] for own in per])
    assert ratios[0] == 1
    assert result.summary["energy_ratio"].to_list() == ratios


def test_intervals_have_energies_that_add_up(result: pagewalk.Result) -> None:
    frame = result.intervals()
    for design in result.designs:
        own = frame.filter(frame["design"] == design.name)
        assert own["energy"].sum() == pytest.approx(design["energy"])


def test_frames_and_parquet_have_a_row_a_part(result: pagewalk.Result, tmp_path: Path) -> None:
    import polars

    path = str(tmp_path / "r.parquet")
    result.write_parquet(path)
    for frame in (result.frame(), polars.read_parquet(path)):
        rows = frame.filter(polars.col("path").str.starts_with("energy."))
        own = rows.filter(polars.col("design") == "thp")
        assert set(own["name"]) == {"dynamic", "static"}
        assert set(own["unit"]) == {"nJ"}
        assert own["value"].sum() == pytest.approx(result["thp"]["energy"])
        assert "energy.mmu.l2.main" in own["path"].to_list()


def test_own_numbers_change_their_part_only(result: pagewalk.Result) -> None:
    own = pagewalk.run("radix", settings={"energy.arrays.l3.static_mw": 0}, **GUPS)
    before, after = result["radix"].energy, own["radix"].energy
    assert before and after
    lost = next(p for p in before.parts if p.part == "l3").static_nj
    assert after.total_nj == pytest.approx(before.total_nj - lost)


def test_a_run_and_a_comparison_say_where_the_energy_went(
    engine: fake.Engine, invoke: Callable[..., tuple[int, str, str]]
) -> None:
    status, out, _ = invoke("run", "--workload", "gups", "--verbose")
    assert status == 0
    shown = out[out.index("Energy (3.50 uJ)") :]
    # The largest first; what is next to nothing in one line.
    order = [shown.index(name) for name in ("core", "l1d", "dram", "smaller parts together")]
    assert order == sorted(order)
    assert "dynamic 300 nJ, static 1.50 uJ" in shown
    assert "mmu.pwc.2" not in shown
    status, out, _ = invoke("compare", "--workload", "gups", "--designs", "radix,thp")
    assert status == 0
    shown = out[out.index("Energy (") :]
    assert "walk" in shown
    assert "0.900" in shown
    assert "0.450" in shown


def test_a_page_draws_it_and_lists_every_part(result: pagewalk.Result) -> None:
    page = result.to_html()
    assert "<h2>Energy</h2>" in page
    assert "<figure data-name=energy><svg" in page
    assert "walk caches" in page
    assert "<th scope=row>mmu.l2.main<small>" in page
    assert "energy_ratio" in page


def test_a_result_without_energy_has_a_report(result: pagewalk.Result) -> None:
    data = copy.deepcopy(result.data)
    for design in data["designs"]:
        del design["energy"], design["energy_ratio"]
    older = pagewalk.Result(data)
    assert older.designs[0].energy is None
    assert "<h2>Energy</h2>" not in older.to_html()


def test_explain_energy_has_the_source_of_each_number(
    invoke: Callable[..., tuple[int, str, str]],
) -> None:
    status, out, _ = invoke("explain", "energy")
    assert status == 0
    for text in ("CACTI 7", "Horowitz", "DRAMsim3", "energy.core.instruction_pj", "14.7"):
        assert text in out
