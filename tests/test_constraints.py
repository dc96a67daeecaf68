"""Every Python package that pyproject.toml requires has a pinned version."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PYTHONS = ["3.10.0", "3.11.0", "3.12.0", "3.13.0", "3.14.0"]


def requirements(project: dict[str, Any]) -> list[Requirement]:
    """The requirements of the package, its extras and its groups."""
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    return [Requirement(text) for texts in lists for text in texts]


def stale(requirements: list[Requirement], pins: list[Requirement], python: str) -> list[str]:
    """The requirements that the pins for one version of Python do not satisfy."""
    environment = {str(key): str(value) for key, value in default_environment().items()}
    environment |= {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    versions = {
        pin.name: str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate(environment)
    }
    return [
        str(requirement)
        for requirement in requirements
        if (requirement.marker is None or requirement.marker.evaluate(environment))
        and not (
            requirement.name in versions
            and requirement.specifier.contains(versions[requirement.name])
        )
    ]


def pinned() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("python", PYTHONS)
def test_constraints_satisfy_pyproject(python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    missing = stale(requirements(project), pinned(), python)
    assert not missing, f"constraints.txt is stale, run `make lock`: {missing}"


@pytest.mark.parametrize("text", ["no-such-package", "ruff<0.1", "numpy>=99"])
def test_a_requirement_without_a_fitting_pin_is_stale(text: str) -> None:
    assert stale([Requirement(text)], pinned(), "3.12.0") == [text]


def test_a_requirement_of_another_python_needs_no_pin() -> None:
    assert not stale([Requirement("absent; python_version < '3.11'")], pinned(), "3.12.0")


def test_constraints_name_exact_versions_and_no_index() -> None:
    assert all(str(pin.specifier).startswith("==") and pin.url is None for pin in pinned())
    assert "://" not in (ROOT / "constraints.txt").read_text()
