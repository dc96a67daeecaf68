"""The output of a reproduction: pictures, tables, a page, and numbers as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk import native
from pagewalk.errors import Failure
from pagewalk.host import files
from pagewalk.reproduce import drawing
from pagewalk.reproduce.figure import AT_LEAST, AT_MOST, DIFFERS, Figure, Row
from pagewalk.reproduce.sampled import within
from pagewalk.view import svg
from pagewalk.view.markup import escape, line, table, whole
from pagewalk.view.quantities import significant

if TYPE_CHECKING:
    import polars

    from pagewalk.reproduce.paper import Paper
    from pagewalk.runs.cache import Outcome
    from pagewalk.runs.plan import Run

Json = dict[str, Any]

_MORE = """
main { max-width: 1160px; }
td.far, td.near, td.between { white-space: normal; min-width: 8em; }
td.far { color: var(--bad); } td.near { color: var(--good); }
tbody th { min-width: 4em; }
p.scale { color: var(--faint); font-size: 13px; margin: 2px 0 10px; }
p.scale a { white-space: nowrap; }
nav a { display: inline-block; margin: 0 14px 4px 0; }
tr.average > * { font-weight: 600; background: var(--soft); }
td.text { min-width: 8em; } td.text:last-child { min-width: 16em; }
td.why { color: var(--bad); }
@media (max-width: 700px) { td.text { min-width: 5em; } td.text:last-child { min-width: 11em; } }
"""


@dataclass(frozen=True)
class Finished:
    """A figure with its rows and its picture."""

    name: str
    figure: Figure
    rows: list[Row]
    picture: Json | None
    note: str
    runs: list[tuple[Run, Outcome]]
    samples: str = ""
    """The note on samples; empty without a precision, or for a figure without samples."""


class Reproduction:
    """The requested figures of a paper, at a scale."""

    def __init__(
        self,
        paper: Paper,
        figures: list[Finished],
        seeds: list[int],
        precision: float | None = None,
    ) -> None:
        self.paper = paper
        self.figures = figures
        self.seeds = seeds
        self.precision = precision

    @property
    def broken(self) -> list[str]:
        """Runs that gave no result at all, each once, with the reason."""
        return list(
            dict.fromkeys(
                f"{run.name}: {outcome.why}"
                for finished in self.figures
                for run, outcome in finished.runs
                if outcome.broken
            )
        )

    @property
    def ended_early(self) -> list[str]:
        """Runs whose design failed, such as out of memory: a result, not an error."""
        return list(
            dict.fromkeys(
                f"{run.name}: {outcome.why}"
                for finished in self.figures
                for run, outcome in finished.runs
                if outcome.failed and not outcome.broken
            )
        )

    def to_json(self) -> str:
        """Every number, with the paper's, and where each run's result is found."""
        data = {
            "paper": self.paper.name,
            "title": self.paper.title,
            "source": self.paper.source,
            "scale": asdict(self.paper.scale),
            "full_scale": self.paper.full,
            "machine": self.paper.machine,
            "seeds": self.seeds,
            **({} if self.precision is None else {"precision": self.precision}),
            "deviations": self.paper.deviations,
            "version": native.version(),
            "model": native.model_version(),
            "figures": [_figure_json(finished) for finished in self.figures],
        }
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

    def frame(self) -> polars.DataFrame:
        """A row a number: figure, panel, group, series, part, ours, the paper's, difference."""
        import polars

        text, real = polars.String(), polars.Float64()
        schema: dict[str, polars.DataType] = {
            "figure": text, "panel": text, "group": text, "series": text, "part": text,
            "average": polars.Boolean(), "value": real, "low": real, "high": real,
            "seeds": polars.Int64(), "paper": real, "up_to": real, "bound": text,
            "difference": real,
            "ratio": real, "unit": text, "status": text, "by_construction": text,
            "deviation": text, "place": text, "note": text, "failed": text, "scale": text,
        }  # fmt: skip
        rows = [
            {"figure": finished.name, "scale": finished.note, **_row_json(row)}
            for finished in self.figures
            for row in finished.rows
        ]
        return polars.DataFrame(
            {key: [row[key] for row in rows] for key in schema}, schema=schema, strict=False
        )

    def write(self, folder: Path) -> None:
        """Pictures, tables, the page, and the numbers as JSON, CSV and Parquet."""
        drawn = folder / "figures"
        try:
            drawn.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(f"could not make the folder '{drawn}': {error.strerror}") from None
        for finished in self.figures:
            if finished.picture is not None:
                files.write(
                    str(drawn / f"{finished.name}.svg"), drawing.svg(finished.picture).encode()
                )
                files.write(str(drawn / f"{finished.name}.png"), drawing.png(finished.picture))
        frame = self.frame()
        for name in frame["figure"].unique(maintain_order=True):
            rows = frame.filter(frame["figure"] == name).drop("figure")
            files.write(str(drawn / f"{name}.csv"), rows.write_csv().encode())
        files.write(str(folder / "results.json"), self.to_json().encode())
        files.write(str(folder / "results.csv"), frame.write_csv().encode())
        self.write_parquet(str(folder / "results.parquet"))
        files.write(str(folder / "index.html"), self.to_html().encode())

    def write_parquet(self, path: str) -> None:
        """Writes `frame`."""
        out = io.BytesIO()
        about = {"paper": self.paper.name, "scale": self.paper.scale.name}
        self.frame().write_parquet(out, metadata={"pagewalk": json.dumps(about)})
        files.write(path, out.getvalue())

    def to_html(self) -> str:
        """One page that needs nothing but a browser."""
        paper = self.paper
        title = escape(f"{paper.title}, reproduced – Pagewalk")
        links = "".join(f'<a href="#{escape(f.name)}">{escape(f.name)}</a>' for f in self.figures)
        notes = [f"scale {paper.scale.name}: {paper.scale.about}"] if paper.reduced else []
        notes += [f"no result: {text}" for text in self.broken]
        drawn = ", ".join(map(str, self.seeds))
        warnings = "".join(f"<p>{escape(text)}</p>" for text in notes)
        if warnings:
            warnings = f"<section class=warning>{warnings}</section>\n"
        facts = f"{paper.source} · machine {paper.machine} · scale {paper.scale.name}"
        body = (
            f"<h1>{escape(paper.title)}</h1><p class=facts>{escape(facts)}</p>\n"
            f"{warnings}<section><p class=about>{escape(paper.about)}</p>"
            f'<nav aria-label="Figures">{links}</nav></section>\n'
            f"{_averages(self)}"
            f"{''.join(_section(f, paper.deviations) for f in self.figures)}"
            f"<footer>Pagewalk {escape(native.version())}, "
            f"seed{'s' if len(self.seeds) > 1 else ''} {drawn}</footer>\n"
        )
        return whole(title, body, style=_MORE)


def _row_json(row: Row) -> Json:
    derived = {"difference": row.difference, "ratio": row.ratio, "status": row.status}
    return {**asdict(row), **derived}


def _figure_json(finished: Finished) -> Json:
    return {
        "name": finished.name,
        "title": finished.figure.title,
        "place": finished.figure.place,
        "about": finished.figure.about,
        "scale": finished.note,
        "rows": [_row_json(row) for row in finished.rows],
        "runs": [
            {
                "name": run.name,
                "machine": run.machine,
                "design": run.design.base,
                "changes": run.design.changes,
                "program": (source := run.program.source()).get("workload", source),
                "limits": run.limits,
                "seed": run.seed,
                "result": outcome.key,
                "status": "error" if outcome.error is not None else outcome.result.status,
                "why": outcome.why,
                **_samples_json(run, outcome),
            }
            for run, outcome in finished.runs
        ],
    }


def _samples_json(run: Run, outcome: Outcome) -> Json:
    """Samples of a run and their confidence; empty for a run that may not take samples."""
    if run.precision is None:
        return {}
    found = None if outcome.data is None else outcome.result.sampling
    return {
        "precision": run.precision,
        "samples": found.samples if found else None,
        "within": within(outcome),
    }


def _averages(reproduction: Reproduction) -> str:
    rows = [
        (finished.name, row)
        for finished in reproduction.figures
        for row in finished.rows
        if row.average and row.paper is not None
    ]
    if not rows:
        return ""
    body = [
        [
            f'<a href="#{escape(name)}">{escape(name)}</a>',
            f"<td class=text>{escape(label(row))}</td>",
            *_numbers(row, reproduction.paper.deviations),
        ]
        for name, row in rows
    ]
    head = ["", "<th scope=col class=text>quantity</th>", *_HEADS]
    title = "What the paper's text states"
    return f"<section><h2>{title}</h2>{table(head, body, title)}</section>\n"


_HEADS = [
    "ours",
    "paper",
    "difference",
    "<th scope=col class=text>status</th>",
]


def label(row: Row) -> str:
    """The name of a row outside of its figure."""
    return ", ".join(part for part in (row.panel, row.group, row.series, row.part) if part)


def _section(finished: Finished, deviations: str) -> str:
    figure = finished.figure
    parts = [
        f'<section id="{escape(finished.name)}"><h2>{escape(finished.name)}: '
        f"{escape(figure.title)}</h2>"
        f"<p class=scale>{escape(figure.place)} · {escape(finished.note)}</p>"
    ]
    if figure.about:
        parts.append(f"<p class=about>{escape(figure.about)}</p>")
    picture = finished.picture
    shown = f"{finished.name}: {figure.title}"
    if picture is None:
        parts.append(_grid(finished.rows, shown))
    else:
        # The page has its title above it.
        plain = drawing.svg({key: value for key, value in picture.items() if key != "title"})
        caption = f"{shown}; its numbers are in the table below"
        chart = svg.embedded(plain, caption, "wide", finished.name, least=0.75)
        parts.append(
            f'<figure class=scroll tabindex=0 role=region aria-label="{escape(shown)}">{chart}'
            f"</figure>{_files(finished.name)}"
        )
    opened = " open" if picture and len(finished.rows) <= _SHORT else ""
    parts.append(
        f"<details{opened}><summary>ours and the paper's, number for number</summary>"
        f"{_table(finished.rows, deviations, shown)}</details>"
    )
    return "".join(parts) + "</section>\n"


def _files(name: str) -> str:
    """Links to the files of a figure that `Reproduction.write` makes beside the page."""
    links = " · ".join(
        f'<a href="figures/{escape(name)}.{kind}" download>{kind.upper()}</a>'
        for kind in ("svg", "png", "csv")
    )
    return f"<p class=scale>this figure as {links}</p>"


def _grid(rows: list[Row], title: str) -> str:
    """A table as the paper prints it: ours, the paper's number below in grey."""
    columns = list(dict.fromkeys(row.series for row in rows if not row.average))
    places = {(row.group, row.series): row for row in rows if row.series in columns}
    found = {column: {r.unit for r in places.values() if r.series == column} for column in columns}
    # In a column of several units, each number has its own.
    units = {column: next(iter(of)) if len(of) == 1 else "" for column, of in found.items()}
    head = [
        "",
        *(
            f"{escape(column)}{f' ({escape(units[column])})' if units[column] else ''}"
            for column in columns
        ),
    ]
    body = []
    for group in dict.fromkeys(group for group, _ in places):
        cells = [escape(group)]
        for column in columns:
            row = places.get((group, column))
            if row is None:
                cells.append("")
                continue
            unit = "" if units[column] else row.unit
            shown = "✗" if row.value is None and row.failed else ours(row, unit)
            paper = printed(row, unit)
            below = "" if row.paper is None else f"<small>{escape(paper)}</small>"
            cells.append(
                f'<td title="{escape(row.failed or row.note)}">{escape(shown)}{below}</td>'
            )
        average = any(row.average for (g, _), row in places.items() if g == group)
        body.append(line(cells, " class=average" if average else ""))
    return table(head, body, escape(title), " class=grid")


def _table(rows: list[Row], deviations: str, title: str) -> str:
    names = [name for name in ("panel", "part") if any(getattr(row, name) for row in rows)]
    texts = [f"<th scope=col class=text>{name}</th>" for name in ("series", *names)]
    head = ["", *texts, *_HEADS, "<th scope=col class=text>remark</th>"]
    body = []
    for row in rows:
        remark = "; ".join(part for part in (row.place, row.note) if part)
        cells = [
            escape(row.group),
            *(f"<td class=text>{escape(getattr(row, name))}</td>" for name in ("series", *names)),
            *_numbers(row, deviations),
            f"<td class='text why'>{escape(row.failed)}</td>"
            if row.failed
            else f"<td class=text>{escape(remark)}</td>",
        ]
        body.append(line(cells, " class=average" if row.average else ""))
    return table(head, body, f"{escape(title)}, number for number")


_FAR = 0.25
_SHORT = 24


def _numbers(row: Row, deviations: str) -> list[str]:
    """The cells below `_HEADS`."""
    distance = abs(row.ratio - 1) if row.ratio is not None else None
    kind = "between"
    if distance is not None and distance <= row.tolerance:
        kind = "near"
    elif distance is not None and distance > _FAR:
        kind = "far"
    status = escape(row.status)
    if row.status == DIFFERS:
        place = f"{deviations}#{row.deviation}"
        status = f'<a href="{escape(place)}" title="{escape(place)}">{status}</a>'
    if row.by_construction:
        status += f"<small>{escape(row.by_construction)}</small>"
    return [
        escape(ours(row)),
        escape(printed(row)),
        f"<td class={kind}>{escape(difference(row)).replace(' %', chr(0xA0) + '%')}</td>",
        f"<td class=text>{status}</td>",
    ]


def ours(row: Row, unit: str | None = None) -> str:
    """Our value as tables print it, with the spread of several seeds or of samples."""
    shown = number(row.value, row.unit if unit is None else unit)
    if row.low is None or row.high is None or row.low == row.high:
        return shown
    return f"{shown} ({number(row.low, '')} to {number(row.high, '')})"


_BOUNDS = {AT_LEAST: "≥ ", AT_MOST: "≤ "}


def printed(row: Row, unit: str | None = None) -> str:
    """The paper's value: a number, a range, or a bound."""
    unit = row.unit if unit is None else unit
    if row.up_to is not None:
        return f"{number(row.paper, '')} to {number(row.up_to, unit)}"
    return _BOUNDS.get(row.bound, "") + number(row.paper, unit)


def number(value: float | None, unit: str) -> str:
    """A value as tables print it."""
    if value is None:
        return "–"
    if float(value).is_integer() and abs(value) < 1e6:
        text = f"{value:.0f}"
    else:
        text = significant(value)
    return f"{text} {unit}".strip()


def difference(row: Row) -> str:
    """Ours less the paper's, with the relative error if it is defined.

    Savings in per cent differ by points; their error is relative to the remainder.
    """
    if row.difference is None:
        return ""
    if row.difference == 0:
        return "0"
    text = f"{row.difference:+.4g}"
    if row.saved:
        text += " points"
    if row.ratio is not None:
        of = " of what remains" if row.saved else ""
        text += f" ({(row.ratio - 1) * 100:+.1f} %{of})"
    return text
