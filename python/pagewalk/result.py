"""The result of a simulation."""

from __future__ import annotations

import io
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from pagewalk.host import files
from pagewalk.measurements.design import DesignResult, unknown
from pagewalk.measurements.histograms import REPORTED
from pagewalk.view.escape import visible
from pagewalk.view.quantities import count

if TYPE_CHECKING:
    import polars

    from pagewalk.engine_types import Reference, RunResult

Json = dict[str, Any]


_OF_PARTS = {
    "dynamic": "Energy that accesses to this part of the machine took",
    "static": "Energy that leaked and ticked in this part of the machine",
}
OF_MIXES = {
    "weighted_speedup": "weighted speedup",
    "harmonic_speedup": "harmonic speedup",
    "antt": "ANTT",
}
"""Metrics of a whole mix, with their names in reports."""


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


class Result:
    """The result of `pagewalk.run` or `pagewalk.compare`.

    `designs` holds the results in the requested order; speedups refer to the
    first. `data` is the engine's whole answer, as
    ``--json`` writes it.
    """

    def __init__(self, data: RunResult | Json) -> None:
        self.data = cast("RunResult", data)
        self.designs = [DesignResult.from_json(d) for d in data["designs"]]

    @property
    def translation_reference(self) -> Reference | None:
        """The design that `DesignResult.translation_cost` compares with.

        Its ``name``, its ``cycles`` and its ``cycles_per_instruction``; None if it was not
        requested, or is not defined. It need not be among `designs`. Of several machines it is
        that of the first; ``data["translation_references"]`` has each one's.
        """
        several = self.data.get("translation_references")
        return several[0] if several else self.data.get("translation_reference")

    @property
    def machines(self) -> list[str]:
        """The machines that were compared, in order; empty where there was one."""
        return list(dict.fromkeys(d.machine for d in self.designs if d.machine is not None))

    @property
    def on_each(self) -> list[list[DesignResult]]:
        """The designs of each machine."""
        machines: list[str | None] = [*self.machines] or [None]
        return [[d for d in self.designs if d.machine == machine] for machine in machines]

    @property
    def reference(self) -> str:
        """The reference of speedups and energies, in words."""
        first = self.designs[0]
        return f"{first.design} on the same machine" if self.machines else first.name

    @property
    def speedup_by(self) -> str:
        """The unit of work whose cycles speedups compare: ``instruction`` or ``request``."""
        return self.designs[0].speedup_by

    @property
    def speedup_kind(self) -> str:
        """The kind of the speedups in words; empty if they compare cycles an instruction."""
        if self.designs[0].programs:
            return "weighted"
        return "by requests" if self.speedup_by == "request" else ""

    @property
    def per(self) -> str:
        """The unit of work that `cost` refers to, with its article, for titles."""
        return "a request" if self.speedup_by == "request" else "an instruction"

    @property
    def facts(self) -> list[str]:
        """The machine, and the part of the program, in words."""
        limits = self.data["limits"]
        several = self.machines
        machine = f"machines {', '.join(several)}" if several else f"machine {self.data['machine']}"
        facts = [machine, f"seed {self.data['seed']}"]
        for length, what in (
            (limits.get("skip"), "skipped {} instructions"),
            (limits.get("skip_requests"), "skipped {} requests"),
            (limits.get("warmup"), "warm-up {} instructions"),
            (limits.get("warmup_requests"), "warm-up {} requests"),
        ):
            if length:
                facts.append(what.format(count(length)))
        if limits.get("roi"):
            facts.append("region of interest")
        wanted, done = limits.get("instructions"), self.designs[0].get("instructions")
        if wanted and done and done >= wanted:
            facts.append(f"ended by --instructions {count(wanted)}")
        if regions := self.data.get("regions"):
            number = len(regions["regions"])
            each = "regions by their weights" if number > 1 else "region that stands for all"
            facts.append(f"{number} {each}, no error bound")
        return facts

    @property
    def partial(self) -> bool:
        """True if a design did not reach the end of the requested run, or the program died."""
        return bool(self.data["partial"])

    @property
    def why_partial(self) -> str:
        """The reason why the result is partial; empty if it is not."""
        if not self.partial:
            return ""
        if any(d.status == "partial" for d in self.designs):
            return "the run was stopped before its end"
        died = [d for d in self.designs if d.died]
        whys = {d.message for d in died or self.designs}
        return (len(whys) == 1 and whys.pop()) or "not every design reached its end"

    @property
    def verdict(self) -> list[str]:
        """The cost of translation, the designs that recover it, and the limits of the rest.

        One text of three sentences for each machine; empty if nothing was measured.
        """
        from pagewalk.view import verdict

        return verdict.sentences(self)

    @property
    def warnings(self) -> list[str]:
        """Caveats that a reader of the numbers must know."""
        return list(self.data["warnings"])

    @property
    def failed_files(self) -> list[str]:
        """Requested files that the engine could not write, with the reasons."""
        return list(self.data["failed_files"])

    @property
    def exit_status(self) -> int:
        """The simulated program's own exit status, 0 without a program."""
        return int(self.data["source"].get("exit_status") or 0)

    def __getitem__(self, design: str | tuple[str, str]) -> DesignResult:
        """A design's result by its name; of several machines by machine and design."""
        for result in self.designs:
            if design in (result.name, (result.machine, result.design)):
                return result
        raise KeyError(unknown("design", design, "this result", [d.name for d in self.designs]))

    def _key(self, design: DesignResult) -> dict[str, str | None]:
        """The first columns of frames: which design it is, and on which of several machines."""
        machine = {"machine": design.machine} if self.machines else {}
        return {**machine, "design": design.design or design.name}

    def _keys(self, designs: list[DesignResult]) -> dict[str, polars.Series]:
        """These columns, a row a design."""
        import polars

        keys = [self._key(d) for d in designs]
        return {
            name: polars.Series([key[name] for key in keys], dtype=polars.String)
            for name in self._key(self.designs[0])
        }

    @cached_property
    def summary(self) -> polars.DataFrame:
        """One row a design, a column a number of the summary.

        Numbers are Float64, and null for a design without that number. The columns are the same
        for every run. Only a mix has `weighted_speedup`, `harmonic_speedup` and `antt`.
        `translation_cost` is null unless it was measured. A result of several machines has a row
        for each machine and design, and the column machine first.
        """
        import polars

        from pagewalk import native

        across = ("speedup_in_time",) if self.machines else ()
        own = ("speedup", *across, "energy_ratio", *OF_MIXES, "translation_cost")
        # Also where no design has reached the measured part.
        names = dict.fromkeys(native.metrics(len(self.machines)))
        names |= dict.fromkeys(q.name for d in self.designs for q in d.quantities)
        return polars.DataFrame(
            {
                **self._keys(self.designs),
                "status": polars.Series([d.status for d in self.designs], dtype=polars.String),
                **{
                    name: polars.Series(
                        [_float(getattr(d, name)) for d in self.designs], dtype=polars.Float64
                    )
                    for name in own
                },
                **{
                    name: polars.Series(
                        [_float(d.get(name)) for d in self.designs], dtype=polars.Float64
                    )
                    for name in names
                },
            }
        )

    @cached_property
    def programs(self) -> polars.DataFrame:
        """One row a program of a mix and design; empty where there is one program."""
        import polars

        text, whole, real = polars.String(), polars.Int64(), polars.Float64()
        key = dict.fromkeys(self._key(self.designs[0]), text)
        numbers = {
            **dict.fromkeys(("instructions", "requests", "cycles"), whole),
            **dict.fromkeys(("ipc", "ipc_alone", "speedup"), real),
            **({"speedup_in_time": real} if self.machines else {}),
            "core_cycles": whole,
            **dict.fromkeys(("l1d_tlb_mpki", "l1i_tlb_mpki", "l2_tlb_mpki"), real),
            **dict.fromkeys(("walks", "walk_cycles"), whole),
            "walk_cycles_mean": real,
            **dict.fromkeys(("page_faults", "fault_cycles"), whole),
            **dict.fromkeys(("mapped_4kb", "mapped_2mb", "mapped_1gb", "page_table_bytes"), whole),
        }
        rows = [
            (*self._key(d).values(), p.name, *(p.get(name) for name in numbers))
            for d in self.designs
            for p in d.programs
        ]
        return polars.DataFrame(rows, schema={**key, "program": text, **numbers}, orient="row")

    def frame(self) -> polars.DataFrame:
        """One row a statistic and design: every counter, the summary, energy and the histograms.

        Columns: design, path, name, value, unit, gauge, meaning. The numbers
        of the summary have the path ``summary``; those of a histogram are named
        ``walk_latency.p99`` and so on, with count, mean and largest. The energy of a part of the
        machine has a path such as ``energy.mmu.l2.main``, named ``dynamic`` and ``static``. Of
        several machines, a column machine comes first.
        """
        import polars

        rows: list[tuple[Any, ...]] = [
            (d.name, "summary", q.name, q.value, q.unit, True, q.meaning)
            for d in self.designs
            for q in d.quantities
        ] + [
            (d.name, s.path, s.name, s.value, s.unit, s.gauge, s.meaning)
            for d in self.designs
            for s in d.statistics
        ]
        rows += [
            (
                *(d.name, h.path, f"{h.name}.{part}", getattr(h, part)),
                *("values" if part == "count" else h.unit, False, h.meaning),
            )
            for d in self.designs
            for h in d.histograms
            for part in REPORTED
        ]
        rows += [
            (d.name, f"energy.{p.part}", name, value, "nJ", False, _OF_PARTS[name])
            for d in self.designs
            for p in (d.energy.parts if d.energy else [])
            for name, value in (("dynamic", p.dynamic_nj), ("static", p.static_nj))
        ]
        keys = {d.name: tuple(self._key(d).values()) for d in self.designs}
        rows = [(*keys[name], *rest) for name, *rest in rows]
        schema = {
            **dict.fromkeys(self._key(self.designs[0]), polars.String()),
            "path": polars.String(),
            "name": polars.String(),
            "value": polars.Float64(),
            "unit": polars.String(),
            "gauge": polars.Boolean(),
            "meaning": polars.String(),
        }
        columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
        return polars.DataFrame(
            {
                name: polars.Series(name, list(column), dtype=dtype, strict=False)
                for (name, dtype), column in zip(schema.items(), columns, strict=True)
            }
        )

    def histograms(self) -> polars.DataFrame:
        """One row a bucket of a histogram and design; buckets without values have none.

        Columns: design, path, name, low, high, count, unit: `count` values were seen from `low` to
        `high`. Paths that begin with ``cores`` stand for all cores together.
        """
        import polars

        schema = {
            **dict.fromkeys(self._key(self.designs[0]), polars.String()),
            "path": polars.String(),
            "name": polars.String(),
            "low": polars.UInt64(),
            "high": polars.UInt64(),
            "count": polars.UInt64(),
            "unit": polars.String(),
        }
        rows = [
            (*self._key(d).values(), h.path, h.name, *bucket, h.unit)
            for d in self.designs
            for h in d.histograms
            for bucket in h.buckets
        ]
        return polars.DataFrame(rows, schema=schema, orient="row")

    def intervals(self) -> polars.DataFrame:
        """One row an interval and design; empty without ``interval=``.

        `first_instruction` is the position of an interval in the measured part, `instructions` and
        `cycles` are its length. An interval that is not `complete` was cut by the end. The other
        columns are the numbers of the summary, all counters by path and name, and the reported
        numbers of histograms: ``ipc``, ``core.0.mmu.walks``, ``core.0.mmu.walk_latency.p99``.
        With several cores ``cores.mmu.walks`` is the sum over them. Counts are Int64, numbers of
        the summary Float64, and null where a design has none. ``polars.concat(…, how="diagonal")``
        joins the frames of several runs.
        """
        import polars

        # Also of designs without any, so that the first columns are always there.
        frames = []
        for d in self.designs:
            columns = self._keys([d] * len(d.intervals))
            for name, values in d.intervals.columns().items():
                if name == "complete":
                    columns[name] = polars.Series(values, dtype=polars.Boolean)
                elif name in d.intervals.values and name not in ("instructions", "cycles"):
                    numbers = [_float(value) for value in values]
                    columns[name] = polars.Series(numbers, dtype=polars.Float64)
                else:
                    columns[name] = polars.Series(values, dtype=polars.Int64)
            frames.append(polars.DataFrame(columns))
        return polars.concat(frames, how="diagonal")

    def to_json(self) -> str:
        """Everything, as one JSON text."""
        return json.dumps(self.data, indent=1) + "\n"

    def write_json(self, path: str) -> None:
        """Writes everything as JSON."""
        files.write(path, self.to_json().encode())

    def write_parquet(self, path: str) -> list[str]:
        """Writes `frame` as Parquet; `intervals` and `programs` beside it where there are any.

        Configuration, seed, version and host speed are in the file's metadata
        under ``pagewalk``. Returns the paths written.
        """
        about = {key: value for key, value in self.data.items() if key != "designs"}
        about["configs"] = {d.name: d.config for d in self.designs}
        tables = [(path, self.frame())]
        stem = path.removesuffix(".parquet")
        if any(len(d.intervals) for d in self.designs):
            tables.append((f"{stem}.intervals.parquet", self.intervals()))
        if any(d.programs for d in self.designs):
            tables.append((f"{stem}.programs.parquet", self.programs))
        for target, table in tables:
            # Written to memory first: polars' error for a full disk names neither file nor cause.
            out = io.BytesIO()
            table.write_parquet(out, metadata={"pagewalk": json.dumps(about)})
            files.write(target, out.getvalue())
        return [target for target, _ in tables]

    def to_html(self) -> str:
        """A page that needs nothing but a browser."""
        from pagewalk.view.page import page

        return page(self)

    def write_html(self, path: str) -> None:
        """Writes `to_html`."""
        files.write(path, self.to_html().encode())

    def write_figure(self, path: str, chart: str | None = None) -> None:
        """Writes a chart for a column of a paper as SVG, PDF or PNG, by the ending of `path`.

        `chart` is ``speedup``, ``speedup-in-time`` of several machines, ``cycles``, ``energy``,
        ``times``, or a number of the summary, with ``-over-time`` if the run has intervals. The
        default is the speedup, or the cycles of a single design.
        """
        from pagewalk.view import figures

        figures.write(self, path, chart)

    def __repr__(self) -> str:
        state = ", partial" if self.partial else ""
        names = ", ".join(d.name for d in self.designs)
        return visible(f"<pagewalk.Result {self.data['source']['name']}: {names}{state}>")

    def _repr_html_(self) -> str:
        from pagewalk.view.page import fragment

        return fragment(self)
