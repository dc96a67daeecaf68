"""Options, beside those of a run, that all commands of many runs share."""

from __future__ import annotations

from dataclasses import replace

from pagewalk.config.options import BY_NAME, Number, Option, Text
from pagewalk.errors import UserError, Words
from pagewalk.view.escape import shown


def _share(value: str | float | None, about: Words) -> float | None:
    """Reads ``2%``. Raises `UserError` for what is no share, and where metrics are named."""
    precision = BY_NAME["precision"].read(value, about)
    if precision is None:
        return None
    if precision["metrics"]:
        raise UserError(
            f"{shown(value)} names metrics; here it is of IPC and L2 TLB MPKI; "
            "expected a share alone, as 2%",
            about=about,
        )
    within: float = precision["within"]
    return within


FOLDER = Option("out", Text, "", "DIR", short="-o")
SEEDS = Option("seeds", Number, "", "N")
"""Each command has its own help for these two."""
PRECISION = replace(BY_NAME["precision"], read=_share)
FRESH = Option("fresh", bool, "Simulate finished runs again.", default=False)
CACHE = Option("cache", Text, "Cache folder of finished runs.", "DIR")
CLUSTER = replace(
    BY_NAME["cluster"], help="Dask cluster: tcp://…, or slurm, kubernetes with --jobs workers."
)
JOBS = BY_NAME["jobs"]
