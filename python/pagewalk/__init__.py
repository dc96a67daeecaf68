"""A timing-accurate laboratory for the cost of address translation.

>>> import pagewalk
>>> design = pagewalk.design("thp")
>>> result = pagewalk.compare(["radix", design], workload="gups", size="1GiB")
>>> result.summary                                              # a polars frame
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from pagewalk.errors import Failure, PagewalkError, UserError

if _TYPE_CHECKING:
    from pagewalk.api import (
        Interrupted,
        compare,
        design,
        designs,
        explain,
        machine,
        machines,
        result_schema,
        run,
        workloads,
    )
    from pagewalk.config.config import Config
    from pagewalk.measurements.design import DesignResult
    from pagewalk.measurements.frames import export_frames
    from pagewalk.programs import regions as regions
    from pagewalk.programs.generators import Block, Mapping, WorkloadError
    from pagewalk.result import Result
    from pagewalk.studies.api import Sweep, sweep

    __version__: str

__all__ = [
    "Block",
    "Config",
    "DesignResult",
    "Failure",
    "Interrupted",
    "Mapping",
    "PagewalkError",
    "Result",
    "Sweep",
    "UserError",
    "WorkloadError",
    "__version__",
    "compare",
    "design",
    "designs",
    "explain",
    "export_frames",
    "get_include",
    "machine",
    "machines",
    "result_schema",
    "run",
    "sweep",
    "workloads",
]

_HOME = {
    **dict.fromkeys(
        [
            *("compare", "design", "designs", "explain", "machine", "machines", "result_schema"),
            *("run", "workloads"),
        ],
        "pagewalk.api",
    ),
    "Interrupted": "pagewalk.api",
    **dict.fromkeys(["Block", "Mapping", "WorkloadError"], "pagewalk.programs.generators"),
    "Config": "pagewalk.config.config",
    "DesignResult": "pagewalk.measurements.design",
    "export_frames": "pagewalk.measurements.frames",
    "Result": "pagewalk.result",
    "regions": "pagewalk.programs.regions",
    **dict.fromkeys(["Sweep", "sweep"], "pagewalk.studies.api"),
}


def get_include() -> str:
    """The folder of ``pagewalk.h``, for a compiler's ``-I``.

    The header marks regions of interest and asks the machine, in C and C++.
    """
    from pathlib import Path

    return str(Path(__file__).parent / "_data" / "include")


def __getattr__(name: str) -> object:
    # Loaded when first used: the command line starts without them.
    if name == "__version__":
        from pagewalk import native

        return native.version()
    if name in _HOME:
        import importlib

        home = importlib.import_module(_HOME[name])
        value = home if name == "regions" else getattr(home, name)
        globals()[name] = value
        return value
    import sys

    # With these two Python says itself which name is near.
    raise AttributeError(
        f"module 'pagewalk' has no attribute '{name}'", name=name, obj=sys.modules[__name__]
    )


def __dir__() -> list[str]:
    return sorted(__all__)
