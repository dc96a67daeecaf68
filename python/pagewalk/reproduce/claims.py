"""A paper's claims beside our numbers, from the kept results: nothing is simulated.

`claims.toml` in the paper's folder has a table `[[claim]]` for each claim:

    says = "..."          the claim, in our words
    place = "..."         its place in the paper
    rows = ["figure; panel; group; series", …]   rows of kept results, all of which must hold
    chosen = "..."        the parameter that was chosen by this claim, if one was
    paper, up_to, bound, tolerance, deviation    as of a row, where they differ from its own
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table as Printed

from pagewalk import native
from pagewalk.config.config import parse, text_of
from pagewalk.errors import UserError
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.figure import (
    AGREES,
    AT_LEAST,
    AT_MOST,
    BY_CONSTRUCTION,
    DIFFERS,
    MISSING,
    UNEXPLAINED,
    Row,
)
from pagewalk.reproduce.form import Table
from pagewalk.reproduce.report import ours, printed
from pagewalk.reproduce.stored_results import TEMPLATE, StoredResults
from pagewalk.view.terminal import console, line, names

Json = dict[str, Any]

NAME = "claims.toml"
_WORST = (MISSING, UNEXPLAINED, DIFFERS, BY_CONSTRUCTION, AGREES)
_KEYS = ("says", "place", "rows", "chosen", "paper", "up_to", "bound", "tolerance", "deviation")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and the rows of kept results that decide it."""

    says: str
    place: str
    rows: tuple[Row, ...]
    chosen: str
    scales: tuple[str, ...]
    """Scales of the runs that the rows come from."""
    models: tuple[int | None, ...]
    """Versions of the timing model that made the rows; None for results that do not say."""

    @property
    def verdict(self) -> str:
        """The worst status of its rows. A claim that chose a parameter never agrees by itself."""
        worst = min((row.status for row in self.rows), key=_WORST.index)
        return BY_CONSTRUCTION if worst == AGREES and self.chosen else worst

    @property
    def outdated(self) -> str:
        """A note if another version of the model made the rows; empty otherwise."""
        now = native.model_version()
        old = [model for model in self.models if model != now]
        if not old:
            return ""
        made = "an older model" if None in old else f"model {min(m for m in old if m is not None)}"
        return f"results of {made}, now {now}"

    def shown(self, what: str) -> str:
        """The numbers of the rows: `ours` or the `paper`'s, each once."""
        form = ours if what == "ours" else printed
        return ", ".join(dict.fromkeys(form(row) for row in self.rows))

    def as_json(self) -> Json:
        """The claim as a JSON object."""
        return {
            "says": self.says, "place": self.place, "verdict": self.verdict,
            "chosen": self.chosen, "scales": list(self.scales), "outdated": self.outdated,
            "rows": [
                {"group": row.group, "series": row.series, "ours": row.value, "paper": row.paper,
                 "up_to": row.up_to, "bound": row.bound, "unit": row.unit, "status": row.status,
                 "deviation": row.deviation}
                for row in self.rows
            ],
        }  # fmt: skip


def read(folder: Path) -> list[Claim]:
    """The claims of the paper in `folder`, in their order.

    Raises `UserError` for a paper without claims or kept results, and for a mistake in the file.
    """
    file = folder / NAME
    if not file.is_file():
        raise UserError(f"there are no claims in '{folder}': it has no {NAME}")
    try:
        data = parse(text_of(file))
    except ValueError as error:
        raise UserError(f"{file}: is not TOML: {error}") from None
    given = data.get("claim")
    if not isinstance(given, list) or not given or set(data) != {"claim"}:
        raise UserError(f"{file}: expected tables [[claim]] and nothing else")
    kept = StoredResults.of_folder(folder)
    claims = []
    for number, fields in enumerate(given, 1):
        try:
            claims.append(_claim(Table(fields, f"claim {number}"), kept))
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    return claims


def _claim(table: Table, kept: StoredResults) -> Claim:
    table.only(_KEYS)
    places = table.texts("rows", needed=True)
    if not places:
        raise UserError(f"{table.at('rows')} is empty; expected one row at least")
    changes: Json = {}
    for key in ("paper", "up_to", "tolerance"):
        if key in table:
            value = table.fields[key]
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise UserError(f"{table.at(key)}: expected a number, found {value!r}")
            changes[key] = float(value)
    for key in ("bound", "deviation"):
        if key in table:
            changes[key] = table.text(key)
    if changes.get("bound", AT_LEAST) not in {AT_LEAST, AT_MOST}:
        raise UserError(f"{table.at('bound')}: expected '{AT_LEAST}' or '{AT_MOST}'")
    rows, figures = [], []
    for place in places:
        row = replace(kept.row(place), **changes)
        if row.paper is None:
            raise UserError(
                f"{table.at('rows')}: '{place}' has no number of the paper; expected paper = …"
            )
        rows.append(row)
        figures.append(place.partition(";")[0].strip())
    abouts = [kept.origin(figure) for figure in dict.fromkeys(figures)]
    return Claim(
        table.text("says"),
        table.text("place"),
        tuple(rows),
        table.text("chosen", ""),
        tuple(dict.fromkeys(about["scale"]["name"] for about in abouts)),
        tuple(dict.fromkeys(about.get("model") for about in abouts)),
    )


def show(claims: list[Claim], title: str, stream: TextIO) -> None:
    """Prints the claims as a table, and how many agree."""
    out = console(stream)
    out.print(line(title, style="bold"))
    table = Printed(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    names(table)
    for head in ("paper", "ours", "scale", "verdict"):
        table.add_column(head, overflow="fold")
    for claim in claims:
        verdict = claim.verdict
        style = "green" if verdict in {AGREES, BY_CONSTRUCTION} else "yellow"
        notes = [verdict, claim.outdated]
        table.add_row(
            line(f"{claim.says} ({claim.place})"),
            claim.shown("paper"),
            claim.shown("ours"),
            ", ".join(claim.scales),
            line(("; ".join(note for note in notes if note), style)),
        )
    out.print(table)
    agree = sum(claim.verdict == AGREES for claim in claims)
    out.print(line(f"{agree} of {len(claims)} claims agree", style="bold"))


def markdown(claims: list[Claim], deviations: str) -> str:
    """The claims as a table of a page. `deviations`: the file that explains differences."""
    lines = ["| claim | paper | ours | scale | verdict |", "|---|---|---|---|---|"]
    for claim in claims:
        verdict = claim.verdict
        anchor = next((row.deviation for row in claim.rows if row.status == DIFFERS), "")
        if verdict == DIFFERS:
            verdict = f"[{verdict}]({deviations}#{anchor})"
        if claim.chosen:
            verdict += f" ({claim.chosen})"
        if claim.outdated:
            verdict += f"; {claim.outdated}"
        scales = ", ".join(f"`{scale}`" for scale in claim.scales)
        cells = (
            f"{claim.says} ({claim.place})", claim.shown("paper"), claim.shown("ours"), scales,
            verdict,
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page(folder: Path) -> str:
    """The page of the paper in `folder`: its template, filled in with kept results.

    ``{{claims}}`` is the table of the claims. ``{{figures}}`` has a section for each figure.
    """
    kept = StoredResults.of_folder(folder)
    template = (folder / TEMPLATE).read_text(encoding="utf-8")
    more = {}
    if "{{claims}}" in template:
        more["claims"] = markdown(read(folder), kept.about["deviations"])
    if "{{figures}}" in template:
        paper = papers.load(str(folder))
        sections = []
        for name, figure in paper.figures([*paper.order, *paper.on_request]).items():
            if name in kept.figures:
                sections.append(kept.section(name, f"{figure.title} ({figure.place})"))
        more["figures"] = "\n\n".join(sections)
    return kept.page(template, more)
