"""A test whose programs or libraries are missing is left out, or fails where it must not be."""

from __future__ import annotations

import pytest

import live


def test_a_missing_program_skips_or_fails_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PAGEWALK_REQUIRE_LIVE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(pytest.skip.Exception, match=r"redis-cli .*apt-get install redis-tools"):
        live.look_for("redis-cli")
    monkeypatch.setenv("PAGEWALK_REQUIRE_LIVE", "1")
    with pytest.raises(pytest.fail.Exception, match=r"cc, g\+\+ .*apt-get install g\+\+ gcc"):
        live.look_for("cc", "g++")


def test_a_header_is_searched_in_the_folders_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAGEWALK_REQUIRE_LIVE", "1")
    monkeypatch.setitem(live._PACKAGES, "stdio.h", "libc6-dev")
    live.look_for("stdio.h")
    monkeypatch.setitem(live._PACKAGES, "no/such.h", "libnone-dev")
    with pytest.raises(pytest.fail.Exception, match=r"no/such\.h .*apt-get install libnone-dev"):
        live.look_for("no/such.h", "stdio.h")
