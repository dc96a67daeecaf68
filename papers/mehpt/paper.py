"""Keys of this paper alone: page tables that grow during timed simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pagewalk.errors import UserError
from pagewalk.reproduce import Application, Design, Paper, Run
from pagewalk.reproduce.form import Table

Json = dict[str, Any]


class MeHpt(Paper):
    """Applications have keys for the timing of their growth, and for shared runs.

    `growth = { from = "6GiB", seconds = 6 }` times the last part of a program's initialisation.
    Each page of that part is touched in simulated time. The part starts after that much memory (the
    program's parameter `populate`). It takes about that many seconds of one host core a design.
    `together = true`: counting and timing share a run, since the program takes long to start.
    """

    own = ("growth", "together")

    def __init__(self, name: str, folder: Any, data: Json, scale: str | None) -> None:
        super().__init__(name, folder, data, scale)
        for app in self.applications.values():
            if "growth" in app.own:
                _checked(app.name, app.own["growth"])

    def run(
        self,
        application: str | Application,
        design: str | Design,
        *,
        timing: bool = False,
        growing: bool = False,
        changes: Json | None = None,
        machine: str | None = None,
    ) -> Run:
        """One run: to count, to time, or to time the last part of populating memory."""
        app, name, chosen = self.configured(application, design, changes, machine)
        if growing:
            growth = app.own.get("growth")
            if growth is None:
                raise UserError(f"application '{app.name}' says nothing of its growth")
            params = {"populate": growth["from"], "region": "initialisation"}
            program = replace(app.program, params={**app.program.params, **params})
            seconds = float(growth.get("seconds", 2))
            return Run(program, chosen, name, None, 0, self.seed, seconds)
        together = bool(app.own.get("together", False))
        return super().run(
            application, design, timing=timing or together, changes=changes, machine=machine
        )


def _checked(name: str, growth: object) -> None:
    if not isinstance(growth, dict):
        raise UserError(f'applications.{name}.growth: expected {{ from = "6GiB" }}, not {growth!r}')
    table = Table(growth, f"applications.{name}.growth")
    table.only(("from", "seconds"))
    table.text("from")
    table.size("from")
    table.seconds("seconds", 2)
