"""Results of a reproduction, stored in the paper's folder, and the page generated from them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from pagewalk.errors import UserError
from pagewalk.host import files
from pagewalk.reproduce.figure import DIFFERS, Row
from pagewalk.reproduce.report import difference, label, number, ours, printed
from pagewalk.reproduce.seeds import placed

Json = dict[str, Any]

NAME, TEMPLATE = "results.json", "page.md"
_ONE = "results-{}.json"
_HEAD = ("paper", "title", "source", "scale", "full_scale", "machine", "seeds", "version")
_LATER = ("model",)
"""Keys that results of Pagewalk 0.2 and earlier lack."""
_DEFAULTS = {field.name: field.default for field in fields(Row)}
_PLACEHOLDER = re.compile(r"\{\{(.+?)\}\}")
_MARKED = "<!-- made of {} and {}: change the template and run scripts/paper_page.py -->\n"


class StoredResults:
    """The part of a reproduction that a page needs: its identity, and the rows of each figure."""

    def __init__(
        self, about: Json, figures: dict[str, list[Row]], origins: dict[str, Json] | None = None
    ) -> None:
        self.about = about
        self.figures = figures
        self._origins = origins or {}
        self._more: dict[str, str] = {}
        self._placed = {name: placed(rows) for name, rows in figures.items()}

    @classmethod
    def of(cls, data: Json) -> StoredResults:
        """Reads the content of a `results.json`, of a reproduction or a stored one.

        Raises `UserError` for one with samples, which pages do not show.
        """
        if "precision" in data:
            raise UserError("it was made with --precision; pages are made of runs without it")
        names = _DEFAULTS.keys()
        return cls(
            {key: data[key] for key in (*_HEAD, "deviations")}
            | {key: data[key] for key in _LATER if key in data},
            {
                figure["name"]: [
                    Row(**{key: value for key, value in row.items() if key in names})
                    for row in figure["rows"]
                ]
                for figure in data["figures"]
            },
        )

    @classmethod
    def read(cls, path: Path) -> StoredResults:
        """Reads such a file. Raises `UserError` for another one."""
        try:
            return cls.of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise UserError(f"there is no file '{path}'; 'pagewalk reproduce' makes it") from None
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: no results of a reproduction ({error})") from None

    @classmethod
    def of_folder(cls, folder: Path) -> StoredResults:
        """Results in a paper's folder: the whole run, and figures on request, each a file."""
        whole = cls.read(folder / NAME)
        figures = dict(whole.figures)
        origins: dict[str, Json] = {}
        for path in sorted(folder.glob(_ONE.format("*"))):
            one = cls.read(path)
            figures |= one.figures
            origins |= dict.fromkeys(one.figures, one.about)
        return cls(whole.about, figures, origins)

    def origin(self, figure: str) -> Json:
        """The identity of the run that a figure comes from."""
        return self._origins.get(figure, self.about)

    def row(self, place: str) -> Row:
        """The row at ``figure; panel; group; series``, and a part if it has one.

        Raises `UserError` for another form, or if there is no such row.
        """
        parts = [part.strip() for part in place.split(";")]
        if len(parts) not in {4, 5}:
            raise UserError(
                f"'{place}': expected figure; panel; group; series, and a part if it has one"
            )
        figure, panel, group, series, part = [*parts, ""][:5]
        row = self._placed.get(figure, {}).get((panel, group, series, part, 0))
        if row is None:
            raise UserError(f"'{place}': there is no such row in the kept results")
        return row

    def store(self, folder: Path, on_request: list[str]) -> None:
        """Stores a run in a paper's folder; each figure on request gets a file of its own.

        A part of the figures at another scale than the stored run is stored as ``FIGURE@SCALE``.
        Raises `UserError` for a part of the figures at its scale: a page shows a single run.
        """
        requested = [name for name in self.figures if name in on_request]
        rest = {name: rows for name, rows in self.figures.items() if name not in requested}
        single = {name: self.figures[name] for name in requested}
        if rest and (folder / NAME).is_file():
            whole, scale = StoredResults.read(folder / NAME), self.about["scale"]["name"]
            missing = whole.figures.keys() - rest.keys()
            if missing and whole.about["scale"]["name"] == scale:
                raise UserError(
                    f"the run lacks figures that {folder / NAME} has, of the same scale "
                    f"({', '.join(sorted(missing))}); run all together, to keep them"
                )
            if missing:
                single |= {f"{name}@{scale}": rows for name, rows in rest.items()}
                rest = {}
        for name, rows in single.items():
            StoredResults(self.about, {name: rows}).write(folder / _ONE.format(name))
        if rest:
            StoredResults(self.about, rest).write(folder / NAME)

    def text(self) -> str:
        """JSON with a line for each row, without default values."""
        figures = []
        for name, rows in self.figures.items():
            lines = ",\n".join("  " + json.dumps(_unusual(row), ensure_ascii=False) for row in rows)
            figures.append(f' {{"name": {json.dumps(name)}, "rows": [\n{lines}\n ]}}')
        head = "".join(
            f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)},\n"
            for key, value in self.about.items()
        )
        return "{\n" + head + ' "figures": [\n' + ",\n".join(figures) + "\n]}\n"

    def write(self, path: Path) -> None:
        """Writes it, whole or not at all."""
        files.write(str(path), self.text().encode())

    def page(self, template: str, more: dict[str, str] | None = None) -> str:
        """A page: its template with every ``{{…}}`` filled in.

        ``{{figure; panel; group; series}}`` is our number. `` : .1f`` behind it sets the format;
        ``paper``, ``low`` or ``high`` before it selects another number of the row. ``{{run}}``
        describes the run. ``{{stated}}`` is the table of the paper's statements, and
        ``{{all figure; panel}}`` a table of a panel, with a line for each group. `more` are
        texts for further names, such as ``{{claims}}``. Raises `UserError` for a missing number.
        """
        self._more = more or {}
        body = _PLACEHOLDER.sub(lambda found: self._filled(found[1].strip()), template)
        return _MARKED.format(TEMPLATE, NAME) + body

    def _filled(self, text: str) -> str:
        if text == "run":
            return self._run()
        if text == "stated":
            return self._stated()
        if text in self._more:
            return self._more[text]
        if text.startswith("all "):
            figure, _, panel = text.removeprefix("all ").partition(";")
            return self._all(figure.strip(), panel.strip())
        path, _, form = text.partition(" : ")
        which, _, rest = path.partition(" ")
        if which not in {"paper", "low", "high"}:
            which, rest = "value", path
        try:
            row = self.row(rest)
        except UserError as error:
            raise UserError(f"{{{{{text}}}}}: {error}") from None
        value = getattr(row, which)
        if value is None:
            raise UserError(f"{{{{{text}}}}}: there is no such number in the kept results")
        return format(value, form) if form else number(value, row.unit)

    def _run(self) -> str:
        seeds = self.about["seeds"]
        drawn = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
        return f"Pagewalk {self.about['version']}, scale `{self.about['scale']['name']}`, {drawn}"

    def _all(self, figure: str, panel: str) -> str:
        rows = [row for row in self.figures.get(figure, []) if row.panel == panel]
        if not rows:
            raise UserError(
                f"{{{{all {figure}; {panel}}}}}: there is no such panel in what is kept"
            )
        units = {_column(row): row.unit for row in rows}
        columns = list(units)
        heads = [
            ", ".join(dict.fromkeys(part for part in (name, units[name]) if part))
            for name in columns
        ]
        lines = [f"| | {' | '.join(heads)} |", "|---|" + "--:|" * len(columns)]
        for group in dict.fromkeys(row.group for row in rows):
            cells = {
                _column(row): ours(replace(row, unit="")) for row in rows if row.group == group
            }
            lines.append(f"| {' | '.join([group, *(cells.get(c, '') for c in columns)])} |")
        return "\n".join(lines)

    def _stated(self) -> str:
        return "\n".join(
            [_STATED, *(line for name in self.figures for line in self._of(name, [name]))]
        )

    def _of(self, figure: str, first: list[str]) -> list[str]:
        """Lines of the table of the paper's statements, of one figure; `first`: the first cells."""
        lines = []
        for row in self.figures[figure]:
            if not row.average or row.paper is None:
                continue
            status = row.status
            if status == DIFFERS:
                status = f"[{status}]({self.about['deviations']}#{row.deviation})"
            name = label(replace(row, panel="" if row.panel == "text" and not first else row.panel))
            shown = (
                *first, name, ours(row), printed(row), difference(row),
                status, row.by_construction,
            )  # fmt: skip
            lines.append("| " + " | ".join(shown) + " |")
        return lines

    def section(self, figure: str, title: str) -> str:
        """A section of a page: the paper's statements about a figure, then all its numbers."""
        origin = self.origin(figure)
        parts = [f"### {title}", f"Scale `{origin['scale']['name']}`."]
        stated = self._of(figure, [])
        if stated:
            parts.append("\n".join([_STATED_OF_ONE, *stated]))
        panels = dict.fromkeys(row.panel for row in self.figures[figure] if row.panel != "text")
        for panel in panels:
            parts.append(f"{panel}:" if panel else "All numbers:")
            parts.append(self._all(figure, panel))
        return "\n\n".join(parts)


def _column(row: Row) -> str:
    """The column of a row in the table of a panel."""
    return ", ".join(part for part in (row.series, row.part) if part)


_STATED_OF_ONE = """\
| quantity | ours | paper | difference | | agreement by construction |
|---|---|---|---|---|---|"""
_STATED = """\
| figure | quantity | ours | paper | difference | | agreement by construction |
|---|---|---|---|---|---|---|"""


def _unusual(row: Row) -> Json:
    """The fields of a row without defaults, with numbers of nine digits."""
    return {
        key: float(f"{value:.9g}") if isinstance(value, float) else value
        for key, value in asdict(row).items()
        if value != _DEFAULTS[key]
    }
