"""Figure 5: misses of SpecTLB by its size and by fragmentation."""

from __future__ import annotations

from pagewalk.reproduce import Design, Figure, Lines, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, Compared
from .counts import spectlb_miss_rate
from .printed import MISS_64_HIGH, MISS_64_LOW, MISS_64_MEAN, MISS_1024_LOW, MISS_HIGH, Said

# Per cent of the requests for 2 MB blocks that are not served.
FRAGMENTATION = (0, 25, 50, 85, 98)
SIZES = {"64 entries": "SpecTLB", "1024 entries": "SpecTLB-Large"}
LOW, HIGH = 25, 85
SAID: dict[tuple[str, int], Said] = {
    ("64 entries", LOW): MISS_64_LOW,
    ("1024 entries", LOW): MISS_1024_LOW,
    ("64 entries", HIGH): MISS_HIGH,
    ("1024 entries", HIGH): MISS_HIGH,
}


def design(paper: Paper, size: str, fragmentation: int) -> Design:
    """SpecTLB of a size where so many requests for blocks fail."""
    name = SIZES[size]
    served = round(1 - fragmentation / 100, 2)
    # These are designs of other figures, too.
    kept = {LOW: f"{name} low", HIGH: f"{name} high"}.get(fragmentation, "")
    if kept in paper.designs:
        return paper.designs[kept]
    label = f"{name} {fragmentation}% fragmented"
    return paper.designs[name].changed(label, {"os.fragmentation": {"served_2mb": served}})


class Figure5(Figure):
    title = "Misses of SpecTLB"
    place = "figure 5, sections 1 and 3.3"
    about = (
        "Of the walks, those for which SpecTLB had no reservation. Fragmentation is the share of "
        "requests for 2 MB blocks that are not served; the paper's low (high) is 20 to 30 % (80 to "
        "90 %)."
    )
    timing = True
    panels = (Panel(Lines("% of 2 MB requests that are not served", "% of the walks")),)

    def runs(self, paper: Paper) -> Runs:
        designs = [design(paper, size, f) for size in SIZES for f in FRAGMENTATION]
        return paper.cross(APPLICATIONS, designs, timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows: list[Row] = []
        each: list[Row] = []
        every: dict[str, list[float | None]] = {size: [] for size in SIZES}
        for size in SIZES:
            for fragmentation in FRAGMENTATION:
                label = design(paper, size, fragmentation).label
                values = {app: found.value(app, label, spectlb_miss_rate) for app in APPLICATIONS}
                every[size] += values.values()
                each += [
                    Row(
                        str(fragmentation), size, value, unit="%", failed=found.why(app, label),
                        panel=app,
                    )
                    for app, value in values.items()
                ]  # fmt: skip
                said = SAID.get((size, fragmentation))
                group, value = str(fragmentation), mean(values.values())
                rows.append(
                    said.row(group, size, value, "%", average=True)
                    if said
                    else Row(group, size, value, unit="%", average=True)
                )
        small = every["64 entries"]
        return [
            *rows,
            MISS_64_MEAN.row(
                "mean over fragmentations", "64 entries", mean(small), "%", average=True,
                panel="text",
            ),
            MISS_64_HIGH.row(
                "largest mean", "64 entries",
                max((r.value for r in rows if r.series == "64 entries" and r.value is not None),
                    default=None),
                "%", average=True, panel="text",
            ),
            *each,
        ]  # fmt: skip
