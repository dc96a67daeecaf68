"""The design that a setting changes, and the name of the changed design."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke
from pagewalk.config.config import listed, variant
from pagewalk.result import Result

SIZES = {"workload": "gups", "size": "64MiB", "instructions": "50K", "warmup": "10K"}
GUPS = ("--workload", "gups", "--size", "64MiB", "--instructions", "50K", "--warmup", "10K")
GIANT = "thp[placement.thp.giant=true]"


def small(*designs: str | pagewalk.Config, **more: object) -> Result:
    return pagewalk.compare(designs, progress=False, **SIZES, **more)  # type: ignore[arg-type]


def giant(result: Result, name: str) -> Any:
    return result[name].config["placement"]


def test_a_setting_does_not_make_another_design_under_the_same_name(invoke: Invoke) -> None:
    wrong = (*GUPS, "--set", "placement.thp.giant=true", "--designs", "radix,thp")
    status, _, err = invoke("compare", *wrong)
    assert status == 2
    assert "the design radix has placement.buddy" in err
    assert "--set NAME:placement.thp.giant=true" in err
    assert "radix[placement.thp.giant=true]" in err
    with pytest.raises(pagewalk.UserError, match=r"the design radix has placement\.buddy"):
        small("radix", "thp", settings={"placement.thp.giant": True})


def test_a_setting_is_for_the_design_that_it_names(invoke: Invoke, tmp_path: Path) -> None:
    result = small("radix", "thp", settings={"thp:placement.thp.giant": True})
    assert giant(result, "thp")["thp"]["giant"] is True
    assert list(giant(result, "radix")) == ["buddy"]
    out = tmp_path / "x.json"
    named = ("--designs", "radix,thp", "--set", "thp:placement.thp.giant=true")
    assert invoke("compare", *GUPS, *named, "--json", str(out))[0] == 0
    designs = json.loads(out.read_text())["designs"]
    assert [list(d["config"]["placement"]) for d in designs] == [["buddy"], ["thp"]]
    status, _, err = invoke("run", *GUPS, "--set", "thp:mmu.walkers=2")
    assert status == 2
    assert "no design of this run is called thp; expected one of radix" in err


def test_a_variant_has_a_name_of_its_own_everywhere(invoke: Invoke, tmp_path: Path) -> None:
    out, page = tmp_path / "x.json", tmp_path / "x.html"
    two = f"{GIANT[:-1]},mmu.walkers=2]"
    names = ["thp", GIANT, two]
    files = ("--json", str(out), "--html", str(page))
    status, shown, _ = invoke("compare", *GUPS, "--designs", ",".join(names), *files)
    assert status == 0
    assert "placement.thp.giant=true" in "".join(shown.split())
    designs = json.loads(out.read_text())["designs"]
    assert [d["name"] for d in designs] == names
    assert [d["config"]["placement"]["thp"]["giant"] for d in designs] == [False, True, True]
    assert designs[2]["config"]["mmu"]["walkers"] == 2
    assert GIANT in page.read_text()
    result = small(*names)
    assert result.summary["design"].to_list() == names
    assert result.frame()["design"].unique(maintain_order=True).to_list() == names


def test_python_makes_the_same_variant() -> None:
    by_name = pagewalk.design(GIANT)
    by_keys = pagewalk.design("thp", settings={"placement.thp.giant": True})
    other = pagewalk.design("radix[placement.thp.giant=true]")
    assert by_name.name == by_keys.name == GIANT
    assert by_name.changes == by_keys.changes == {"placement": {"thp": {"giant": True}}}
    result = small("thp-1g", by_keys, other)
    assert [d.name for d in result.designs] == ["thp-1g", GIANT, "radix[placement.thp.giant=true]"]
    assert result[GIANT].config == result["thp-1g"].config == result.designs[2].config
    changed = by_keys.copy()
    changed.mmu.walkers = 3
    assert changed.changes == {"placement": {"thp": {"giant": True}}, "mmu": {"walkers": 3}}


def test_a_design_on_a_base_can_be_changed_and_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.toml").write_text('base = "thp"\n[mmu]\nwalkers = 2\n')
    (tmp_path / "in" / "b.toml").write_text('base = "a.toml"\n[placement.thp]\ngiant = true\n')
    design = pagewalk.design(tmp_path / "in" / "b.toml")
    assert (design.mmu.walkers, design.placement.thp.giant) == (2, True)
    design.mmu.walkers = 5
    design.write(tmp_path / "c.toml")
    again = pagewalk.design(tmp_path / "c.toml")
    assert again.to_dict() == design.to_dict()
    assert small(design)["b (changed)"].config["mmu"]["walkers"] == 5


def test_a_design_is_simulated_on_the_machine_that_it_was_made_for() -> None:
    design = pagewalk.design("radix", machine="revelator-table1")
    assert small(design).data["machine"] == "revelator-table1"
    assert small("thp", design).data["machine"] == "revelator-table1"
    assert small(design, machine="revelator-table1").data["machine"] == "revelator-table1"
    assert small(design, machine=pagewalk.machine("revelator-table1")).data["machine"]
    assert small(pagewalk.design("radix"), machine="stlt-table3").data["machine"] == "stlt-table3"
    with pytest.raises(
        pagewalk.UserError, match=r"'radix' was made for 'revelator-table1', and machine is"
    ):
        small(design, machine="epyc-milan")
    other = pagewalk.design("thp", machine="epyc-milan")
    with pytest.raises(
        pagewalk.UserError, match=r"'thp' was made for 'epyc-milan', and the design 'radix' for"
    ):
        small(design, other)


@pytest.mark.parametrize(
    "twice",
    [
        ("run", *GUPS, "--seed", "1", "--seed", "2"),
        ("run", *GUPS, "--design=radix", "--design", "thp"),
        ("compare", *GUPS, "--designs", "radix", "--designs", "thp"),
        ("record", "--workload", "gups", "-o", "a.pwt", "--out", "b.pwt"),
        ("trace", "convert", "x", "-o", "a.pwt", "-o", "b.pwt"),
        ("reproduce", "mehpt", "--scale", "smoke", "--scale", "full"),
    ],
)
def test_an_option_with_one_value_is_refused_twice(invoke: Invoke, twice: tuple[str, ...]) -> None:
    status, out, err = invoke(*twice)
    assert (status, out) == (2, "")
    assert "is given twice; expected it once" in err


def test_repeatable_flags_may_be_repeated(invoke: Invoke) -> None:
    sets = ("--set", "mmu.walkers=2", "--set", "mmu.walkers=3", "--roi", "--roi")
    assert invoke("run", *GUPS, *sets)[0] == 0


def test_commas_in_brackets_do_not_separate_names() -> None:
    assert listed("a, b[c=1,d=[1,2]] ,,e[f=\"x,]\"],g") == [
        "a", "b[c=1,d=[1,2]]", 'e[f="x,]"]', "g",
    ]  # fmt: skip
    assert variant("x/thp.toml[a=1,b=2]") == ("x/thp.toml", "a=1,b=2")
    assert variant("thp") == ("thp", "")


def test_a_report_lists_the_unusual_keys_of_each_design(invoke: Invoke) -> None:
    changed = "thp[placement.thp.khugepaged.pages_to_scan=64,mmu.walkers=2]"
    status, out, _ = invoke("compare", *GUPS, "--designs", f"radix,thp,{changed}")
    assert status == 0
    heading = [" ".join(row.split()) for row in out.split("\n\n")[0].splitlines()]
    assert heading[-3:] == [
        "radix placement.buddy, page_table.radix.levels=4",
        "thp placement.thp",
        f"{changed} mmu.walkers=2, placement.thp.khugepaged.pages_to_scan=64",
    ]
    status, out, _ = invoke("run", *GUPS, "--design", changed, "--verbose")
    assert status == 0
    # A verbose report of one design has all its keys.
    rows = {row.split()[0]: row.split()[1:] for row in out.splitlines() if row.strip()}
    assert {"pages_to_scan=64,", "settled=false"} <= set(rows["placement.thp.khugepaged"])
    assert "virtual" not in rows
