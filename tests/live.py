"""What tests of live programs need of the host, and what becomes of them without it."""

from __future__ import annotations

import os
import shutil

import pytest

from pagewalk import native


def _emulator() -> str | None:
    """Why programs cannot be run here at all."""
    problem = native.doctor()["qemu"].get("Err")
    if problem is not None and "PAGEWALK_REQUIRE_LIVE" in os.environ:
        raise RuntimeError(f"PAGEWALK_REQUIRE_LIVE is set, and {problem}")
    return problem


_EMULATOR = _emulator()

# A host without root cannot install QEMU; .ci/run forbids the skip where it can be had.
needs_qemu = pytest.mark.skipif(_EMULATOR is not None, reason=f"SKIPPED LOUDLY: {_EMULATOR}")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips where one of `programs` is not installed."""
    # Real programs are Debian packages; without root they may be missing.
    missing = [p for p in programs if shutil.which(p) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"SKIPPED LOUDLY: not installed: {', '.join(missing)}"
    )
