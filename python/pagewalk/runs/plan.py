"""Runs: their programs, designs and limits, and the keys of their cached results."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.config.config import file_of, is_path, read
from pagewalk.errors import Failure, UserError
from pagewalk.host import files
from pagewalk.view.escape import shown
from pagewalk.view.output import reason

Json = dict[str, Any]


def label(given: str, what: str) -> str:
    """The name of a design in figures and of its file.

    Raises `UserError` for a separator of paths, for control characters and for more than
    `files.LONGEST` bytes.
    """
    return files.naming(
        given,
        given.isprintable(),
        f"{what} cannot be called {shown(given)}; expected 1 to {files.LONGEST} bytes without '/'",
    )


@dataclass(frozen=True)
class Design:
    """A shipped design, or a file's, with configuration keys changed on top.

    `changes` may hold keys of the machine too; an alternative (``placement =
    {thp = {}}``) takes the place of another.
    """

    label: str
    base: str
    changes: Json = field(default_factory=dict)

    def changed(self, label: str, changes: Json) -> Design:
        """Another design: this one with more changes."""
        merged = _plain(self.changes)
        _merge(merged, _plain(changes))
        return Design(label, self.base, merged)

    @cached_property
    def identity(self) -> str:
        """Equal for designs that are the same as they are written."""
        return json.dumps([self.base, _plain(self.changes)])

    def text(self) -> str:
        """The design as a TOML file that the engine reads."""
        path = Path(self.base)
        if not is_path(self.base):
            path = native.DATA / "designs" / f"{self.base}.toml"
        if not path.exists():
            raise UserError(
                f"design '{self.label}': there is no design '{self.base}'; "
                "'pagewalk designs' lists them"
            )
        fields = copy.deepcopy(_read_before(path, path.stat().st_mtime_ns))
        _merge(fields, _plain(self.changes))
        return file_of(fields)


@cache
def _read_before(path: Path, _written: int) -> Json:
    """A file that many designs begin with; not to be changed."""
    return read(path)


_ALTERNATIVES = frozenset(
    ["placement", "page_table", "fragmentation", "dram", "predictor", "prefetcher"]
)
"""Tables with one key at a time, which another key replaces."""


def _merge(into: Json, changes: Json, name: str = "") -> None:
    if name in _ALTERNATIVES and not changes.keys() <= into.keys():
        into.clear()
    for key, value in changes.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value, key)
        else:
            into[key] = value


def _plain(changes: Mapping[str, Any]) -> Json:
    """Nested dictionaries of their own; a dotted key names a table in a table."""
    result: Json = {}
    for key, value in changes.items():
        inner: Any = _plain(value) if isinstance(value, Mapping) else value
        for part in reversed(key.split(".")):
            inner = {part: inner}
        _merge(result, inner)
    return result


@dataclass(frozen=True)
class Program:
    """The program of a run: a built-in one with size, threads and parameters, a trace, or a mix.

    `workload` is the built-in program, or the name of a trace or mix for people. `trace` is
    a file, and `mix` the programs side by side as the engine reads them. `region` is true if
    only the marked region of interest counts. `memory` is its host memory in bytes, and `start`
    the seconds until its first instruction. Both affect only the order of runs.
    """

    workload: str
    size: str | None = None
    threads: int = 1
    params: Mapping[str, str] = field(default_factory=dict)
    memory: int = 1 << 29
    start: float = 2.0
    trace: Path | None = None
    mix: tuple[Json, ...] = ()
    region: bool = True

    @property
    def programs(self) -> int:
        """Number of programs that run side by side."""
        return max(1, len(self.mix))

    def source(self) -> Json:
        """The `source` of a specification."""
        if self.trace is not None:
            return {"trace": {"path": str(self.trace)}}
        if self.mix:
            return {"mix": {"programs": list(self.mix)}}
        return {
            "workload": {
                "name": self.workload,
                "size": self.size,
                "threads": self.threads,
                "params": dict(self.params),
            }
        }

    def threading(self) -> Json:
        """A source with the same threads, on which the default number of cores depends."""
        if self.trace is not None or self.mix:
            return self.source()
        return {"workload": {"name": self.workload, "threads": self.threads}}

    def content(self) -> Json:
        """The source with hashes of traces' contents in place of their paths.

        Raises `UserError` for a trace that is not there.
        """
        if self.trace is not None:
            return {"trace": _content(self.trace, "trace")}
        if self.mix:
            members = (
                {"trace": _content(Path(one["trace"]["path"]), "trace")} if "trace" in one else one
                for one in self.mix
            )
            return {"mix": list(members)}
        return self.source()


def _content(trace: Path, kind: str) -> str:
    """A hash of a trace, or of another file of this `kind`."""
    try:
        if trace.is_dir():
            # A drmemtrace: the files of its threads. Their order follows from their contents.
            files = sorted(path for path in trace.rglob("*") if path.is_file())
            code = hashlib.blake2b(digest_size=16)
            for path in files:
                code.update(f"{path.relative_to(trace)}\0{_content(path, kind)}\0".encode())
            return code.hexdigest()
        stat = trace.stat()
        return _hashed(trace, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise UserError(
            f"the {kind} '{trace}' cannot be read ({error.strerror}); put it there, or record it"
        ) from None


@cache
def _hashed(trace: Path, _bytes: int, _written: int) -> str:
    with trace.open("rb") as file:
        code = hashlib.blake2b(digest_size=16)
        while block := file.read(1 << 20):
            code.update(block)
    return code.hexdigest()


SAMPLED = 100_000_000
"""Instructions of the shortest run that is sampled. Programs need some hundreds of samples, each at
the price of about 50,000 instructions, and many programs need two passes."""
STARTS = 4
"""Starts of its program that a run has to outlast to be sampled: each pass begins with one."""
REQUEST = 500
"""Instructions of a request, about: it steers the order of runs and nothing else."""
SPEED = 10e6
"""Instructions a second and host core, about."""


@dataclass(frozen=True)
class Run:
    """One design on one program, for so many instructions or to the end of its region of interest.

    With `requests` it is measured for so many of those instead, after `warmup_requests`. `extra`
    is the time beside its instructions, in seconds; it steers the order of runs.
    With `mappings` its result has the mapping of every page at the end. With a `precision`, a
    share, it is sampled until IPC and L2 TLB misses are within that. With an `interval` its result
    has statistics of every interval of so many instructions.
    """

    program: Program
    design: Design
    machine: str
    instructions: int | None
    warmup: int = 0
    seed: int = 1
    extra: float = 1.0
    skip: int = 0
    mappings: bool = False
    requests: int | None = None
    warmup_requests: int = 0
    precision: float | None = None
    interval: int | None = None

    def sampled(self, precision: float) -> Run:
        """The run with samples, if it allows any and they cost less than the full simulation.

        Fast-forwarding between samples saves a program's work only with a single thread.
        """
        seconds = (self.instructions or 0) / SPEED
        if (
            self.requests is not None
            or self.program.mix
            or self.program.threads > 1
            or self.mappings
            or (self.instructions or 0) < SAMPLED
            or seconds < STARTS * self.program.start
        ):
            return self
        return replace(self, precision=precision)

    @property
    def name(self) -> str:
        """The name for people."""
        size = f" {self.program.size}" if self.program.size else ""
        return f"{self.program.workload}{size}, {self.design.label}"

    @property
    def limits(self) -> Json:
        """The `limits` of a specification."""
        limits = {
            "skip": self.skip,
            "warmup": self.warmup,
            "instructions": self.instructions,
            "roi": self.program.region,
        }
        if self.requests is not None:
            limits |= {"requests": self.requests, "warmup_requests": self.warmup_requests}
        return limits

    @property
    def seconds(self) -> float:
        """Estimated seconds on one host core, without the program's start."""
        # Each program of a mix has as many instructions.
        measured = (self.instructions or 0) * self.program.programs
        measured += ((self.requests or 0) + self.warmup_requests) * REQUEST
        return self.extra + (measured + self.warmup + self.skip / 10) / SPEED

    @cached_property
    def stream(self) -> str:
        """Equal for runs that can be simulated over one stream of the program."""
        whole = [self.program.source(), self.limits, self.seed, self.mappings]
        return json.dumps([*whole, self.precision, self.interval])

    @cached_property
    def identity(self) -> str:
        """Equal for runs that are the same before their configuration is resolved."""
        return json.dumps([self.stream, self.machine, self.design.identity])


class Runs:
    """The runs of a figure, by application and design."""

    def __init__(self, runs: Mapping[tuple[str, str], Run] | None = None) -> None:
        self._runs = dict(runs or {})

    def __getitem__(self, key: tuple[str, str]) -> Run:
        return self._runs[key]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs.values())

    def __len__(self) -> int:
        return len(self._runs)

    def __or__(self, other: Runs) -> Runs:
        return Runs(self._runs | other._runs)

    def items(self) -> Iterable[tuple[tuple[str, str], Run]]:
        """Application and design with the run."""
        return self._runs.items()


def keys(runs: Iterable[Run], folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The keys of the results, and the errors of runs that cannot start, by the run's identity.

    The key is a hash of the resolved configuration, the program, the limits, the
    seed and the engine's model version; with an extended engine also its bytes. Traces and files
    of placements count by their content. `folder` takes the file of a design that is wrong.
    """
    found: dict[str, str] = {}
    wrong: dict[str, str] = {}
    configured: dict[tuple[str, str, str], str] = {}
    model = native.model_version()
    extended = native.extended()
    for run in runs:
        if run.identity in found or run.identity in wrong:
            continue
        try:
            label(run.design.label, "a design")
            on = (run.machine, run.design.text(), json.dumps(run.program.threading()))
            if on not in configured:
                configured[on] = _digest(_configuration(run, folder))
            program = run.program.content()
        except UserError as error:
            error.forget_place(str(folder))
            wrong[run.identity] = str(error)
            continue
        whole = [model, configured[on], program, run.limits, run.seed, run.mappings]
        if run.precision is not None:
            whole.append({"precision": run.precision})
        if run.interval is not None:
            whole.append({"interval": run.interval})
        if extended is not None:
            whole.append({"engine": extended})
        found[run.identity] = _digest(whole)
    return found, wrong


def _configuration(run: Run, folder: Path) -> Json:
    """The whole resolved configuration of a run. Raises `UserError` for a mistake in it."""
    with os.fdopen(os.memfd_create("design"), "wb") as file:
        # A file on a disk takes longer to make than to read.
        file.write(run.design.text().encode())
        file.flush()
        with suppress(UserError):
            return _resolved(run, f"/proc/self/fd/{file.fileno()}")
    # With a name, so that the message says where the mistake is.
    return _resolved(run, str(written(run.design, folder)))


def _resolved(run: Run, design: str) -> Json:
    spec = {"machine": run.machine, "designs": [design], "source": run.program.threading()}
    config = native.resolved(spec)[0]["config"]
    if recorded := config["placement"].get("recorded"):
        recorded["file"] = _content(Path(recorded["file"]), "file of placements")
    return config


def _digest(value: Any) -> str:
    """A hash of a JSON value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def written(design: Design, folder: Path) -> Path:
    """The design's file; the engine calls a design by its file's name.

    Raises `UserError` for a label that cannot name a file, `Failure` for a full disk.
    """
    return write_config(label(design.label, "a design"), design.text(), folder)


def write_config(label: str, text: str, folder: Path) -> Path:
    """A design's file in a folder for the files of a run. Raises `Failure` for a full disk."""
    path = folder / hashlib.sha256(text.encode()).hexdigest()[:16] / f"{label}.toml"
    if not path.exists():
        _write(path, text)
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Only this process needs the file: no need to wait for the disk.
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"could not write '{path}': {reason(error)}; make room there") from None
