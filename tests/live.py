"""Requirements of tests of live programs, and the skip or failure without them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pagewalk import native


def _emulator() -> str | None:
    """The reason if no program can run here; None if programs can."""
    problem = native.doctor()["qemu"].get("Err")
    if problem is not None and "PAGEWALK_REQUIRE_LIVE" in os.environ:
        raise RuntimeError(f"PAGEWALK_REQUIRE_LIVE is set, and {problem}")
    return problem


_EMULATOR = _emulator()

# A host without root cannot install QEMU; .ci/run forbids the skip where it can be had.
needs_qemu = pytest.mark.skipif(_EMULATOR is not None, reason=f"SKIPPED LOUDLY: {_EMULATOR}")


def newer_emulator() -> str:
    """A QEMU from 9.0 on beside the installed one, or the test that runs is skipped.

    ``PAGEWALK_QEMU_NEWER`` names it; ``scripts/setup.sh qemu10`` builds it. No distribution has
    two versions. A build takes minutes and Debian's source, which a host without a network cannot
    fetch. So hosts that run live programs need not have it.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    built = cache / "pagewalk" / "qemu10" / "qemu-x86_64"
    path = os.environ.get("PAGEWALK_QEMU_NEWER", str(built))
    if not os.access(path, os.X_OK):
        pytest.skip(f"SKIPPED LOUDLY: no newer QEMU at {path} (scripts/setup.sh qemu10)")
    return path


# Debian's packages of programs with other names than they, and of headers.
_PACKAGES = {
    "cc": "gcc",
    "redis-benchmark": "redis-tools",
    "redis-cli": "redis-tools",
    "absl/container/btree_map.h": "libabsl-dev",
    "sparsehash/dense_hash_map": "libsparsehash-dev",
    "xxhash.h": "libxxhash-dev",
}


def needs(*names: str) -> pytest.MarkDecorator:
    """Marks a test that runs these programs or compiles with these headers of libraries.

    A host without root may lack them. The test is then skipped, or fails if
    PAGEWALK_REQUIRE_LIVE is set (`look_for`).
    """
    return pytest.mark.needs(*names)


def look_for(*names: str) -> None:
    """Skips or fails the test that runs if one of `names` is not installed."""
    missing = [name for name in names if not _is_there(name)]
    if not missing:
        return
    packages = sorted({_PACKAGES.get(name, name) for name in missing})
    reason = (
        f"not installed: {', '.join(missing)} (on Debian: apt-get install {' '.join(packages)})"
    )
    if "PAGEWALK_REQUIRE_LIVE" in os.environ:
        pytest.fail(f"PAGEWALK_REQUIRE_LIVE is set, and {reason}", pytrace=False)
    # A user's host need not have programs that only tests run; few tests need each.
    pytest.skip(f"SKIPPED LOUDLY: {reason}")


def _is_there(name: str) -> bool:
    if _PACKAGES.get(name, "").startswith("lib"):
        return Path("/usr/include", name).exists()
    return shutil.which(name) is not None
