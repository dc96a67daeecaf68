from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

from pagewalk.config.config import Config, Section
from pagewalk.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RESOLVED = {
    "cores": 1,
    "mmu": {"walkers": 4, "l2": {"main": {"entries": 2048, "ways": 8}}, "nested": None},
    "placement": {"reservation": {"promotion_threshold": 0.3}},
    "page_table": {"radix": {"levels": 4}},
}


@pytest.fixture
def design(tmp_path: Path) -> Config:
    path = tmp_path / "thp-reservation.toml"
    path.write_text(
        'description = "Reserved \\"huge\\" pages"\n'
        "[placement.reservation]\npromotion_threshold = 0.3\n[page_table.radix]\nlevels = 4\n"
    )
    return Config("thp-reservation", path, RESOLVED)


def written(config: Config, tmp_path: Path) -> dict[str, object]:
    config.write(tmp_path / "out.toml")
    fields: dict[str, object] = tomllib.loads((tmp_path / "out.toml").read_text())
    return fields


def test_fields_are_attributes_and_keys(design: Config) -> None:
    design.mmu.l2.main.entries = 4096
    design["mmu"]["walkers"] = 1
    assert design["mmu"]["l2"]["main"]["entries"] == 4096
    assert design.mmu.walkers == 1
    assert design.changes == {"mmu": {"l2": {"main": {"entries": 4096}}, "walkers": 1}}
    assert design.name == "thp-reservation (changed)"


def test_an_untouched_design_has_no_changes(design: Config) -> None:
    assert design.changes == {}
    assert design.name == "thp-reservation"


def test_changes_are_written_on_top_of_the_file(design: Config, tmp_path: Path) -> None:
    design.mmu.l2.main.entries = 4096
    design.placement.reservation.promotion_threshold = 0.5
    assert written(design, tmp_path) == {
        "description": 'Reserved "huge" pages',
        "placement": {"reservation": {"promotion_threshold": 0.5}},
        "page_table": {"radix": {"levels": 4}},
        "mmu": {"l2": {"main": {"entries": 4096}}},
    }


def test_one_alternative_replaces_another(design: Config, tmp_path: Path) -> None:
    design.placement = {"buddy": {}}
    assert written(design, tmp_path)["placement"] == {"buddy": {}}


def test_a_misspelt_field_is_refused_with_the_nearest(design: Config) -> None:
    with pytest.raises(UserError, match=r"'mmu\.l2\.main' has no field 'entires'.*'entries'"):
        design.mmu.l2.main.entires = 1
    with pytest.raises(UserError, match="no field 'tlb'; there are cores, mmu"):
        _ = design.tlb


def test_copies_are_independent(design: Config) -> None:
    twin = design.copy("half")
    twin.mmu.walkers = 2
    assert (design.mmu.walkers, twin.mmu.walkers) == (4, 2)
    assert twin.name == "half"
    assert copy.deepcopy(twin).changes == {"mmu": {"walkers": 2}}


def test_a_value_that_toml_has_no_word_for_is_refused(design: Config) -> None:
    with pytest.raises(UserError, match=r"mmu\.walkers: None is not possible"):
        design.mmu.walkers = None


def test_a_section_is_a_mapping() -> None:
    section = Section({"a": 1, "b": {"c": 2}})
    assert dict(section) == {"a": 1, "b": {"c": 2}}
    assert list(section) == ["a", "b"]
    assert section == {"a": 1, "b": {"c": 2}}
    assert "b" in dir(section)
