"""A paper's folder: `paper.toml`, a file a figure, and `paper.py` if it needs more."""

from __future__ import annotations

import copy
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from pagewalk import native
from pagewalk.config import toml_position
from pagewalk.config.config import is_path, parse, text_of
from pagewalk.errors import UserError
from pagewalk.reproduce import application, error_location, form
from pagewalk.reproduce.application import Application
from pagewalk.reproduce.figure import Figure, Panel, Results, Row
from pagewalk.reproduce.form import Table
from pagewalk.runs.plan import Design, Run, Runs, label
from pagewalk.view.escape import shown
from pagewalk.view.quantities import integer

Json = dict[str, Any]
Kind = TypeVar("Kind")

COUNTING = 1_000
"""Instructions of a run that only populates memory, whose counts precede the measured part."""
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Scale:
    """The length of the measured part of each thread: instructions or requests."""

    name: str
    about: str
    instructions: int | None
    warmup: int
    seeds: int = 1
    """Default number of seeds."""
    requests: int | None = None
    warmup_requests: int = 0

    @property
    def measured(self) -> int:
        """Instructions or requests, whichever it has."""
        return self.requests or self.instructions or 0


@dataclass(frozen=True)
class Machine:
    """One of the paper's machines: a shipped one or a file, with changes on top."""

    base: str
    changes: Json = field(default_factory=dict)


class Paper:
    """A paper at a scale: its applications, designs and machines, and runs made of them.

    A paper with further keys has a class of its own in `paper.py`. `own` are its keys of
    applications, and `own_of_scales` its keys of scales. Raises `UserError` for a mistake.
    """

    own: ClassVar[tuple[str, ...]] = ()
    own_of_scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, folder: Path, data: Json, scale: str | None) -> None:
        table = Table(data)
        table.only(_KEYS)
        self.name = name
        self.folder = folder
        self.kernel_results: Path | None = None
        self.title = table.text("title")
        self.source = table.text("source")
        self.machine = _file(folder, table.text("machine"))
        self.deviations = table.text("deviations", "")
        self.about = table.text("about", "")
        self.seed = table.whole("seed", 0, 2**63 - MOST_SEEDS, 1)
        self.order = table.figures("figures", needed=True)
        self.on_request = table.figures("on_request")
        both = [name for name in self.on_request if name in self.order]
        if both:
            raise UserError(f"on_request: '{both[0]}' is among the figures, too")
        self.scales = {
            key: _scale(key, value, self.own_of_scales)
            for key, value in table.tables("scales", needed=True).items()
        }
        self.full = known(table.text("full"), self.scales, "scale", "scales", "full: ")
        if scale is not None and scale not in self.scales:
            try:
                known(scale, self.scales, "scale", "scales", "--scale: ")
            except UserError as error:
                raise error_location.Placed(str(error)) from None
        self.scale = self.scales[scale or self.full]
        self.machines = {
            key: _machine(value, folder) for key, value in table.tables("machines").items()
        }
        self.designs = {
            key: _design(key, value, folder)
            for key, value in table.tables("designs", needed=True).items()
        }
        self.applications = {
            key: application.read(key, value, folder, self.scale.name, self.scales, self.own)
            for key, value in table.tables("applications", needed=True).items()
        }

    def with_kernel(self, chosen: list[str]) -> None:
        """Adds measurements of a booted kernel to the chosen figures, or all.

        Raises `UserError` if no such figure has any, or a file is missing.
        """
        figures = self.figures(chosen)
        files = {name: fig.kernel_file for name, fig in figures.items() if fig.kernel_file}
        if not files:
            raise UserError(
                "--kernel: no chosen figure has measurements in a kernel; expected revelator fig10 "
                "or fig11"
            )
        # Papers of a source checkout, to which the package has a link.
        folder = self.folder.resolve().parent.parent / "linux" / "results"
        for name, file in files.items():
            if not (folder / file).is_file():
                raise UserError(
                    f"--kernel: there is no '{folder / file}' for {name}; make it with 'make "
                    "linux-figures linux-figure11' in a checkout of the source, or leave out "
                    "--kernel"
                )
        self.kernel_results = folder

    @property
    def reduced(self) -> bool:
        """True if the scale is not the paper's own."""
        return self.scale.name != self.full

    def at_seed(self, seed: int) -> Paper:
        """The paper with another random seed."""
        twin = copy.copy(self)
        twin.seed = seed
        return twin

    def seeds(self, count: int | None = None, least: int = 1) -> list[int]:
        """`count` seeds from the paper's on; by default as many as the scale has, or `least`."""
        number = max(self.scale.seeds, least) if count is None else _seeds(count, "--seeds")
        return list(range(self.seed, self.seed + number))

    def note(self, figure: Figure) -> str:
        """The note of a figure on its scale."""
        used = {json.dumps(run.program.source()) for run in self.runs_of(figure)}
        smaller: dict[str, list[str]] = {}
        for app in self.applications.values():
            if app.smaller and json.dumps(app.program.source()) in used:
                smaller.setdefault(app.smaller, []).append(app.name)
        less = "; ".join(f"{', '.join(names)}: {how}" for how, names in smaller.items())
        if figure.timing:
            about = f"scale {self.scale.name}: {self.scale.about}"
        elif less:
            about = f"scale {self.scale.name}: counted with all of the program's memory but of"
            return f"{about} {less}"
        else:
            return (
                f"scale {self.scale.name}: counted with all of the program's memory, "
                "as at every scale"
            )
        return f"{about}; {less}" if less else about

    def run(
        self,
        application: str | Application,
        design: str | Design,
        *,
        timing: bool = False,
        changes: Json | None = None,
        machine: str | None = None,
    ) -> Run:
        """One run: to count (a built-in program just populates), or to time.

        It is on the paper's machine, or on the one of its machines that is named.
        """
        app, name, chosen = self.configured(application, design, changes, machine)
        program = app.program
        if timing or program.trace or program.mix:
            return self.timed(app, chosen, name)
        return Run(program, chosen, name, COUNTING, 0, self.seed)

    def configured(
        self,
        application: str | Application,
        design: str | Design,
        changes: Json | None = None,
        machine: str | None = None,
    ) -> tuple[Application, str, Design]:
        """The application, the machine's name or file, and the design with all changes."""
        if isinstance(application, str):
            name = known(application, self.applications, "application", "applications")
            app = self.applications[name]
        else:
            app = application
        if isinstance(design, str):
            chosen = self.designs[known(design, self.designs, "design", "designs")]
        else:
            chosen = design
        name = self.machine
        if machine is not None:
            there = self.machines[known(machine, self.machines, "machine", "machines")]
            name = there.base
            if there.changes:
                own = Design(chosen.label, chosen.base, there.changes)
                chosen = own.changed(chosen.label, chosen.changes)
        if app.changes or changes:
            chosen = chosen.changed(chosen.label, {**app.changes, **(changes or {})})
        return app, name, chosen

    def timed(self, app: Application, design: Design, machine: str) -> Run:
        """The application for as many instructions as the scale has."""
        scale, program = self.scale, app.program
        threads = program.threads
        share = scale.measured / self.scales[self.full].measured
        program = replace(program, memory=program.memory + int(app.grows * share))
        # A mix measures each program by itself, and warms them together.
        warmup = scale.warmup * threads * program.programs
        skip = app.skip * threads if self.reduced else 0
        if scale.requests is not None:
            return Run(
                program, design, machine, None, warmup, self.seed, skip=skip,
                requests=scale.requests * threads,
                warmup_requests=scale.warmup_requests * threads,
            )  # fmt: skip
        instructions = (scale.instructions or 0) * threads
        return Run(program, design, machine, instructions, warmup, self.seed, skip=skip)

    def cross(
        self,
        applications: Iterable[str],
        designs: Iterable[str | Design],
        *,
        machine: str | None = None,
        **how: Any,
    ) -> Runs:
        """Every application with every design; `how` as in `run`.

        With a `machine` the runs are found by "DESIGN on MACHINE", so that those of several
        go together.
        """
        names = list(designs)
        on = "" if machine is None else f" on {machine}"
        return Runs(
            {
                (app, (design if isinstance(design, str) else design.label) + on): self.run(
                    app, design, machine=machine, **how
                )
                for app in applications
                for design in names
            }
        )

    def runs_of(self, figure: Figure) -> Runs:
        """The runs that a figure needs. Raises `UserError` for its mistakes."""
        with error_location.on(self.folder):
            runs = figure.runs(self)
        if not isinstance(runs, Runs):
            raise UserError(
                f"{_source(figure)}: runs gives {shown(runs)}; expected Runs, as paper.cross makes"
            )
        return runs

    def rows_of(self, figure: Figure, results: Results) -> list[Row]:
        """The numbers of a figure. Raises `UserError` for its mistakes."""
        with error_location.on(self.folder):
            rows = figure.rows(self, results)
        if not isinstance(rows, list) or not all(isinstance(row, Row) for row in rows):
            raise UserError(f"{_source(figure)}: rows gives {shown(rows)}; expected a list of Row")
        for row in rows:
            for what in ("value", "paper", "up_to"):
                number = getattr(row, what)
                if number is not None and not isinstance(number, (int, float)):
                    raise UserError(
                        f"{_source(figure)}: the row {row.group}, {row.series} has "
                        f"{what}={shown(number)}; expected a number or None"
                    )
        return rows

    def figures(self, names: Iterable[str] = ()) -> dict[str, Figure]:
        """The named figures, or all but those on request, in the paper's order.

        Raises `UserError` for an unknown one.
        """
        every = [*self.order, *self.on_request]
        wanted = {known(name, every, "figure", f"figures of {self.name}") for name in names}
        return {name: _figure(self, name) for name in every if name in (wanted or self.order)}


def known(name: str, names: Iterable[str], kind: str, kinds: str, where: str = "") -> str:
    """The name, if it is among `names`. Raises `UserError` with these names otherwise."""
    there = list(names)
    if name in there:
        return name
    near = native.nearest(name, there)
    hint = f"did you mean '{near}'? " if near else ""
    raise UserError(f"{where}there is no {kind} '{name}'; {hint}{kinds}: {', '.join(there)}")


_KEYS = (
    "title", "source", "about", "machine", "deviations", "seed", "figures", "on_request", "full",
    "scales", "machines", "designs", "applications",
)  # fmt: skip


def _scale(key: str, table: Table, own: Iterable[str]) -> Scale:
    """A scale of `paper.toml`, by instructions or by requests.

    Raises `UserError` if it has both or neither, and for other mistakes.
    """
    name = _at(table.where, form.name, key, "a scale")
    table.only(("about", "instructions", "warmup", "requests", "warmup_requests", "seeds", *own))
    of_requests = "requests" in table or "warmup_requests" in table
    if of_requests and ("instructions" in table or "warmup" in table):
        raise UserError(
            f"{table.where}: expected instructions and warmup, or requests and warmup_requests"
        )
    one, before = ("requests", "warmup_requests") if of_requests else ("instructions", "warmup")
    about = table.text("about")
    measured, warmup = table.count(one, least=1), table.count(before)
    seeds = _seeds(table.fields.get("seeds", 1), table.at("seeds"))
    if of_requests:
        return Scale(name, about, None, 0, seeds, measured, warmup)
    return Scale(name, about, measured, warmup, seeds)


def _machine(table: Table, folder: Path) -> Machine:
    table.only(("machine", "set"))
    return Machine(_file(folder, table.text("machine")), table.settings("set"))


def _design(key: str, table: Table, folder: Path) -> Design:
    called = _at(table.where, label, key, "a design")
    table.only(("design", "set"))
    return Design(called, _file(folder, table.text("design")), table.settings("set"))


def _at(where: str, check: Callable[[str, str], str], *given: str) -> str:
    """Says where a name stands that is none."""
    try:
        return check(*given)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _file(folder: Path, name: str) -> str:
    """A machine's name, or its path, which is relative to the paper's folder."""
    return str((folder / name).resolve()) if is_path(name) else name


def _seeds(count: object, where: str) -> int:
    number = integer(count)
    if number is None or not 1 <= number <= MOST_SEEDS:
        raise UserError(f"{where}: {shown(count)} is not possible; expected 1 to {MOST_SEEDS}")
    return number


def papers() -> dict[str, Path]:
    """The papers that are shipped."""
    folder = native.DATA / "papers"
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/paper.toml"))}


def load(name: str, scale: str | None = None) -> Paper:
    """A shipped paper by its name, or another one by its folder."""
    folder = Path(name)
    if "/" not in name and not (folder / "paper.toml").is_file():
        shipped = papers()
        folder = shipped[known(name, shipped, "paper", "papers")]
    if scale is not None:
        form.name(scale, "--scale: a scale")
    file = folder / "paper.toml"
    if not file.exists():
        raise UserError(f"there is no paper in '{folder}': it has no paper.toml")
    text = text_of(file)
    try:
        data = parse(text)
    except ValueError as error:
        # tomllib says line and column.
        raise UserError(f"{file}: is not TOML: {error}") from None
    kind = _kind(folder)
    try:
        return kind(folder.resolve().name, folder, data, scale)
    except error_location.Placed:
        raise
    except UserError as error:
        # The mistake is in the file, whichever function has found it.
        raise toml_position.placed(error, file, text) from None
    except Exception:
        with error_location.on(folder):
            raise


def _source(figure: Figure) -> str:
    return getattr(sys.modules[type(figure).__module__], "__file__", None) or type(figure).__name__


def _figure(paper: Paper, name: str) -> Figure:
    kind = _only(paper.folder, name, Figure)  # type: ignore[type-abstract]
    where = f"{paper.folder / name}.py: the class {kind.__name__}"
    for what in ("title", "place"):
        if not isinstance(getattr(kind, what, None), str):
            raise UserError(f'{where} has no {what}; expected {what} = "…"')
    if not isinstance(kind.seeds, int) or kind.seeds < 1:
        raise UserError(f"{where}: seeds is {shown(kind.seeds)}; expected 1 or more")
    panels = kind.panels
    if not isinstance(panels, (list, tuple)) or not all(isinstance(p, Panel) for p in panels):
        raise UserError(f"{where}: panels is {shown(kind.panels)}; expected a list of Panel")
    with error_location.on(paper.folder):
        return kind()


def _kind(folder: Path) -> type[Paper]:
    """The paper's own class, where it has one."""
    return _only(folder, "paper", Paper) if (folder / "paper.py").is_file() else Paper


def _only(folder: Path, name: str, kind: type[Kind]) -> type[Kind]:
    """The one class of a kind that a file of the folder defines."""
    file = folder / f"{name}.py"
    if not file.is_file():
        near = native.nearest(name, [path.stem for path in folder.glob("*.py")])
        hint = f"did you mean '{near}'? " if near else ""
        raise UserError(
            f"there is no file '{file}' for figure '{name}'; {hint}add it, or take the name out "
            "of figures and on_request in paper.toml"
        )
    with error_location.on(folder):
        module = importlib.import_module(f"{_package(folder)}.{name}")
    found: list[type[Kind]] = [
        value
        for value in vars(module).values()
        # Before Python 3.11, `list[int]` is an instance of `type`, and no class.
        if issubclass(type(value), type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and not getattr(value, "__abstractmethods__", None)
    ]
    if len(found) != 1:
        raise UserError(
            f"{folder}/{name}.py: expected one {kind.__name__} in it, found {len(found)}"
        )
    return found[0]


def _package(folder: Path) -> str:
    """Makes the folder a package, so that figures can share modules."""
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
