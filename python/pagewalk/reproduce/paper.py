"""A paper's folder: `paper.toml`, and a file a figure."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pagewalk import native
from pagewalk.config import parse
from pagewalk.errors import UserError
from pagewalk.quantities import parse_bytes, parse_count
from pagewalk.reproduce.figure import Figure
from pagewalk.reproduce.plan import Design, Program, Run, Runs

Json = dict[str, Any]

COUNTING = 1_000
"""Instructions of a run that only populates: what is counted happens before them."""


@dataclass(frozen=True)
class Scale:
    """How much of the measured part is simulated, of each thread."""

    name: str
    about: str
    instructions: int
    warmup: int


@dataclass(frozen=True)
class Growth:
    """The last part of what a program initialises, each page of it touched in simulated time.

    It starts after so much memory (as the program's parameter `populate` takes it); a design
    takes about so many seconds of one host core for it.
    """

    start: str
    seconds: float


@dataclass(frozen=True)
class Application:
    """One of the paper's programs."""

    name: str
    program: Program
    changes: Json = field(default_factory=dict)
    together: bool = False
    """Whether counting and timing share a run, since the program takes long to start."""
    growth: Growth | None = None
    """Where page tables grow in time, if they are looked at there."""
    grows: int = 0
    """Bytes of the host that it takes in addition at the end of the paper's own scale."""
    skip: int = 0
    """Instructions a thread that smaller scales pass over, since they are not like the rest."""

    def resized(
        self, *, size: str | None = None, threads: int = 1, **params: object
    ) -> Application:
        """The same program with another size, or other parameters."""
        program = replace(
            self.program,
            size=size or self.program.size,
            threads=threads,
            params={**self.program.params, **{key: str(value) for key, value in params.items()}},
        )
        return replace(self, program=program)

    def growing(self) -> Application:
        """The same program while it initialises the last part of its memory."""
        if self.growth is None:
            raise UserError(f"application '{self.name}' says nothing of its growth")
        params = {"populate": self.growth.start, "region": "initialisation"}
        program = replace(self.program, params={**self.program.params, **params})
        return replace(self, program=program)


class Paper:
    """A paper at a scale: its applications and designs, and runs made of them."""

    def __init__(self, name: str, folder: Path, data: Json, scale: str | None) -> None:
        self.name = name
        self.folder = folder
        self.title: str = data["title"]
        self.source: str = data["source"]
        self.machine: str = data["machine"]
        self.about: str = data.get("about", "")
        self.seed: int = data.get("seed", 1)
        self.order: list[str] = data["figures"]
        self.on_request: list[str] = data.get("on_request", [])
        self.scales = {
            key: Scale(
                key,
                value["about"],
                parse_count(value["instructions"], f"scales.{key}.instructions"),
                parse_count(value["warmup"], f"scales.{key}.warmup"),
            )
            for key, value in data["scales"].items()
        }
        self.full: str = data["full"]
        self.scale = self.scales[known(scale or self.full, self.scales, "scale", "scales")]
        self.designs = {
            key: Design(key, value["design"], value.get("set", {}))
            for key, value in data["designs"].items()
        }
        self.applications = {
            key: _application(key, value) for key, value in data["applications"].items()
        }

    @property
    def reduced(self) -> bool:
        """Whether the scale is not the paper's own."""
        return self.scale.name != self.full

    def note(self, figure: Figure) -> str:
        """What a figure has to say of the scale."""
        if figure.timing:
            return f"scale {self.scale.name}: {self.scale.about}"
        return (
            f"scale {self.scale.name}: counted with all of the program's memory, as at every scale"
        )

    def run(
        self,
        application: str | Application,
        design: str | Design,
        *,
        timing: bool = False,
        growing: bool = False,
        changes: Json | None = None,
    ) -> Run:
        """One run: to count (just populating), to time, or to time the last part of populating."""
        app = self.applications[application] if isinstance(application, str) else application
        chosen = self.designs[design] if isinstance(design, str) else design
        if app.changes or changes:
            chosen = chosen.changed(chosen.label, {**app.changes, **(changes or {})})
        if growing:
            grown = app.growing().program
            seconds = app.growth.seconds if app.growth else 0.0
            return Run(grown, chosen, self.machine, None, 0, self.seed, seconds)
        program = app.program
        if timing or app.together:
            scale, threads = self.scale, program.threads
            share = scale.instructions / self.scales[self.full].instructions
            program = replace(program, memory=program.memory + int(app.grows * share))
            instructions, warmup = scale.instructions * threads, scale.warmup * threads
            skip = app.skip * threads if self.reduced else 0
            return Run(program, chosen, self.machine, instructions, warmup, self.seed, skip=skip)
        return Run(program, chosen, self.machine, COUNTING, 0, self.seed)

    def cross(
        self,
        applications: Iterable[str],
        designs: Iterable[str | Design],
        *,
        timing: bool = False,
        growing: bool = False,
    ) -> Runs:
        """Every application with every design."""
        names = list(designs)
        return Runs(
            {
                (app, design if isinstance(design, str) else design.label): self.run(
                    app, design, timing=timing, growing=growing
                )
                for app in applications
                for design in names
            }
        )

    def figures(self, names: Iterable[str] = ()) -> dict[str, Figure]:
        """The named figures, or all but those on request, in the paper's order.

        Raises `UserError` for an unknown one.
        """
        every = [*self.order, *self.on_request]
        wanted = {known(name, every, "figure", f"figures of {self.name}") for name in names}
        return {name: _figure(self, name) for name in every if name in (wanted or self.order)}


def known(name: str, names: Iterable[str], kind: str, kinds: str) -> str:
    """The name, if there is such a thing. Raises `UserError` with what there is."""
    there = list(names)
    if name in there:
        return name
    near = native.nearest(name, there)
    hint = f"did you mean '{near}'? " if near else ""
    raise UserError(f"there is no {kind} '{name}'; {hint}{kinds}: {', '.join(there)}")


def _application(name: str, data: Json) -> Application:
    program = Program(
        data["workload"],
        data.get("size"),
        data.get("threads", 1),
        {key: str(value) for key, value in data.get("params", {}).items()},
        parse_bytes(data.get("host_memory", "512MiB"), f"applications.{name}.host_memory"),
        float(data.get("start_seconds", 2)),
    )
    grows, skip = data.get("host_memory_grows", ""), data.get("skip", "")
    return Application(
        name,
        program,
        data.get("set", {}),
        bool(data.get("together", False)),
        _growth(name, data.get("growth")),
        parse_bytes(grows, f"applications.{name}.host_memory_grows") if grows else 0,
        parse_count(skip, f"applications.{name}.skip") if skip else 0,
    )


def _growth(name: str, data: object) -> Growth | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise UserError(f'applications.{name}.growth: expected {{ from = "6GiB" }}, not {data!r}')
    parse_bytes(data["from"], f"applications.{name}.growth.from")
    return Growth(data["from"], float(data.get("seconds", 2)))


def papers() -> dict[str, Path]:
    """The papers that are shipped."""
    folder = native.DATA / "papers"
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/paper.toml"))}


def load(name: str, scale: str | None = None) -> Paper:
    """A shipped paper by its name, or one's own by its folder."""
    folder = Path(name)
    if "/" not in name and not (folder / "paper.toml").is_file():
        shipped = papers()
        folder = shipped[known(name, shipped, "paper", "papers")]
    file = folder / "paper.toml"
    try:
        data = parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no paper in '{folder}': it has no paper.toml") from None
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    try:
        return Paper(folder.resolve().name, folder, data, scale)
    except KeyError as error:
        raise UserError(f"{file}: {error} is missing") from None


def _figure(paper: Paper, name: str) -> Figure:
    package = _package(paper.folder)
    module = importlib.import_module(f"{package}.{name}")
    found: list[type[Figure]] = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Figure)
        and value.__module__ == module.__name__
        and not getattr(value, "__abstractmethods__", None)
    ]
    if len(found) != 1:
        raise UserError(f"{paper.folder}/{name}.py: expected one Figure in it, found {len(found)}")
    return found[0]()


def _package(folder: Path) -> str:
    """The folder as a package, so that figures can share a module beside them."""
    resolved = folder.resolve()
    name = "pagewalk_paper_" + "".join(c if c.isalnum() else "_" for c in str(resolved))
    if name not in sys.modules:
        module = ModuleType(name, f"The figures of {resolved}.")
        module.__path__ = [str(resolved)]
        sys.modules[name] = module
    return name


def catalogue() -> list[dict[str, Any]]:
    """Name and title of each shipped paper, with its figures and scales."""
    result = []
    for name in papers():
        paper = load(name)
        result.append(
            {
                "name": name,
                "description": f"{paper.title} ({paper.source})",
                "figures": paper.order,
                "scales": list(paper.scales),
            }
        )
    return result
