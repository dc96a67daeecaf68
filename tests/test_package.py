"""Files of an installed package beside its modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pagewalk
from live import needs

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def packed() -> set[Path]:
    """The files that pyproject.toml includes in the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = [i["path"] for i in project["tool"]["maturin"]["include"]]
    return {path for pattern in included for path in ROOT.glob(pattern)}


def test_the_wheel_has_the_headers_where_get_include_says() -> None:
    headers = {path.name for path in packed() if path.suffix == ".h"}
    assert headers == {path.name for path in (ROOT / "include").glob("*.h")}
    assert "pagewalk.h" in headers
    include = Path(pagewalk.get_include())
    assert {include / name for name in headers} <= packed()


@needs("cc")
def test_a_program_compiles_with_the_packages_header(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text('#include "pagewalk.h"\nint main(void) { pagewalk_roi_begin(); return 0; }\n')
    out = tmp_path / "program"
    subprocess.run(["cc", "-I", pagewalk.get_include(), "-o", out, source], check=True)
    assert subprocess.run([out], check=False).returncode == 0
