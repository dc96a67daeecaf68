"""Rows of the paper that contradict one another, with the arithmetic."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    ALL_SIZES,
    APPLICATIONS,
    CHOSEN,
    FITTING,
    GB,
    KB,
    MB,
    TABLE_1,
    TABLE_1_DATA_GB,
    TABLE_1_TREE_MB,
    TABLE_1_WAY_KB,
    clusters,
    fits,
    mapped,
    scaled,
    way_bytes,
)


class Printed(Figure):
    title = "Data, tree and ways of table I against each other"
    place = "table I, section III; arithmetic"
    about = (
        "A way doubles when three of them are more than 0.6 full. The way that the printed data "
        "need by that rule, the one that the memory mapped by the printed tree needs (tree x 512), "
        "and the printed one. At 64 GB three ways of 64 MB would be 0.667 full; the data of BC, TC "
        "and MUMmer do not fit the printed ways at all. The last column is simulated with as much "
        "data as the printed ways hold."
    )
    deviation = TABLE_1

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(ALL_SIZES, ["ECPT"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        place = "table I, column 4"
        for app in APPLICATIONS:
            data, tree, printed = TABLE_1_DATA_GB[app], TABLE_1_TREE_MB[app], TABLE_1_WAY_KB[app]
            by_data = way_bytes(clusters(data * GB)) / KB
            by_tree = way_bytes(clusters(tree * MB * 512)) / KB
            outcome = results(runs[app, "ECPT"])
            ours = scaled(outcome.get("largest_contiguous_bytes"), KB)
            rows += [
                Row(app, "way for the data", by_data, printed, "KB", place, fits(data, printed)),
                Row(
                    app, "way for what the tree maps", by_tree, printed, "KB", place,
                    f"{tree:g} MB of tree map {tree * 512 / 1024:.3g} GB; "
                    + fits(tree / 2, printed),
                ),
                Row(app, "simulated way", ours, printed, "KB", place, failed=outcome.why),
            ]  # fmt: skip
            held = mapped(outcome)
            if ours is not None and held:
                expected = way_bytes(clusters(held)) / KB
                rows.append(
                    Row(
                        app, "way for our data", expected, None, "KB",
                        note=f"the closed form for the {held / GB:.3g} GB that are mapped",
                    )
                )  # fmt: skip
            if app in FITTING:
                outcome = results(runs[FITTING[app], "ECPT"])
                value = scaled(outcome.get("largest_contiguous_bytes"), KB)
                rows.append(
                    Row(
                        app, "simulated way, less data", value, printed, "KB", place,
                        f"as {FITTING[app]}", outcome.why,
                        by_construction=CHOSEN,
                    )
                )  # fmt: skip
        return rows
