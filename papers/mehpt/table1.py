"""Table I: memory of the applications and of their page tables."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs, geometric
from pagewalk.reproduce.figure import Results

from .common import (
    ALL_SIZES,
    APPLICATIONS,
    BIG_MACHINE,
    CHOSEN_SIZES,
    GB,
    KB,
    MB,
    RATE,
    TABLE_1,
    TABLE_1_DATA_GB,
    TABLE_1_ECPT_MB,
    TABLE_1_ECPT_THP_MB,
    TABLE_1_TREE_MB,
    TABLE_1_TREE_THP_MB,
    TABLE_1_WAY_KB,
    VARIANTS,
    fits,
    mapped,
    scaled,
)

# Column, design, statistic, unit, what the paper prints, its row "GeoMean".
CONTIGUOUS, TOTAL = "largest_contiguous_bytes", "os.page_table_peak_bytes"
COLUMNS = (
    ("contiguous, tree", "Radix", CONTIGUOUS, KB, "KB", dict.fromkeys(APPLICATIONS, 4), 4.0),
    ("contiguous, ECPT", "ECPT", CONTIGUOUS, KB, "KB", TABLE_1_WAY_KB, 12697.6),
    ("total, tree", "Radix", TOTAL, MB, "MB", TABLE_1_TREE_MB, 23.5),
    ("total, ECPT", "ECPT", TOTAL, MB, "MB", TABLE_1_ECPT_MB, 56.0),
    ("total, tree, THP", "Radix+THP", TOTAL, MB, "MB", TABLE_1_TREE_THP_MB, 7.9),
    ("total, ECPT, THP", "ECPT+THP", TOTAL, MB, "MB", TABLE_1_ECPT_THP_MB, 18.0),
)
PLACE = "table I"


class Table1(Figure):
    title = "Memory consumption of the applications"
    place = "table I, section III"
    about = (
        "A radix table of so many MB maps 512 times as much. By its own tree columns the paper "
        "mapped 0.7 GB of MUMmer, 2.05 GB of TC and 8.6 GB of BC: a tenth, a sixth and half of the "
        "data that its first column gives; and 14 to 16 GB of the graph programs with 9.3 GB. "
        + BIG_MACHINE
    )
    deviation = TABLE_1

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(ALL_SIZES, ["Radix", "ECPT", "Radix+THP", "ECPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        columns: dict[str, list[float | None]] = {}
        for app in APPLICATIONS:
            data = scaled(mapped(results(runs[app, "Radix"])), GB)
            columns.setdefault("data", []).append(data)
            rows.append(Row(app, "data", data, TABLE_1_DATA_GB[app], "GB", PLACE))
            for column, design, statistic, size, unit, printed, _ in COLUMNS:
                outcome = results(runs[app, design])
                value = scaled(outcome.get(statistic), size)
                columns.setdefault(column, []).append(value)
                note = ""
                if column == "contiguous, ECPT":
                    note = fits(TABLE_1_DATA_GB[app], printed[app])
                rows.append(
                    Row(
                        app, column, value, printed[app], unit, PLACE, note, outcome.why,
                        by_construction=RATE if design == "ECPT" else "",
                    )
                )  # fmt: skip
        printed_means = {column: (mean, unit) for column, _, _, _, unit, _, mean in COLUMNS}
        for column, values in columns.items():
            mean, unit = printed_means.get(column, (13.9, "GB"))
            rows.append(
                Row(
                    "GeoMean", column, geometric(values), mean, unit, PLACE, average=True,
                    by_construction=RATE if column.endswith(", ECPT") else "",
                )
            )  # fmt: skip
        for suffix, words, percent in (("", "without THP", 138.0), ("+THP", "with THP", 128.0)):
            for variant, other in VARIANTS:
                tree, ecpt = (
                    geometric(
                        results(runs[other.get(app, app), f"{design}{suffix}"]).get(TOTAL)
                        for app in APPLICATIONS
                    )
                    for design in ("Radix", "ECPT")
                )
                rows.append(
                    Row(
                        "mean", f"ECPT over tree, {words}{variant}",
                        100 * (ecpt / tree - 1) if tree and ecpt else None, percent, "% more",
                        "section III", "of the geometric means, as in the paper: 56.0 / 23.5 and "
                        "18.0 / 7.9", average=True,
                        by_construction=CHOSEN_SIZES if variant else "",
                    )
                )  # fmt: skip
        return rows
