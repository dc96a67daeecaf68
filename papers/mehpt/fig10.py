"""Figure 10: page-table memory saved, by in-place and by per-way resizing."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, MB

PEAK = "os.page_table_peak_bytes"
IN_PLACE, PER_WAY = "in-place resizing", "per-way resizing"
PLACE = "section VII-C"


class Figure10(Figure):
    title = "Page-table memory saved over ECPT"
    place = "figure 10, section VII-C"
    about = (
        "In-place resizing is what ME-HPT without per-way resizing saves over ECPT, per-way "
        "resizing the rest. The peak counts all tables of the process, walk tables included."
    )
    panels = (
        Panel(Bars("% of ECPT's memory", stacked=True), "share", "Reduction"),
        Panel(Bars("MB"), "MB", "Absolute reduction (the numbers on the paper's bars)"),
    )

    def runs(self, paper: Paper) -> Runs:
        designs = ("ECPT", "ME-HPT all ways", "ME-HPT")
        return paper.cross(APPLICATIONS, [f"{d}{t}" for t in ("", "+THP") for d in designs])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        shares, sizes, averages = [], [], []
        for suffix, words, percent, absolute in (
            ("", "without THP", 43.0, 37.0),
            ("+THP", "with THP", 41.0, 20.0),
        ):
            parts: dict[str, list[float | None]] = {IN_PLACE: [], PER_WAY: []}
            saved: list[float | None] = []
            for app in APPLICATIONS:
                outcomes = [
                    results(runs[app, f"{design}{suffix}"])
                    for design in ("ECPT", "ME-HPT all ways", "ME-HPT")
                ]
                why = next((o.why for o in outcomes if o.failed), "")
                ecpt, in_place, both = (o.since_boot(PEAK) for o in outcomes)
                split: dict[str, float | None] = {IN_PLACE: None, PER_WAY: None}
                total = None
                if ecpt and in_place is not None and both is not None:
                    split[IN_PLACE] = 100 * (ecpt - in_place) / ecpt
                    split[PER_WAY] = 100 * (in_place - both) / ecpt
                    total = (ecpt - both) / MB
                for part, value in split.items():
                    parts[part].append(value)
                    shares.append(
                        Row(app, words, value, None, "%", failed=why, part=part, panel="share")
                    )
                saved.append(total)
                printed = 96.0 if app in ("GUPS", "SysBench") and not suffix else None
                place = "section VII-D: 96 Mbytes more memory" if printed else ""
                sizes.append(Row(app, words, total, printed, "MB", place, failed=why, panel="MB"))
            means = {part: mean(values) for part, values in parts.items()}
            ours = [means[IN_PLACE], means[PER_WAY]]
            whole = sum(v for v in ours if v is not None) if None not in ours else None
            averages += [
                Row("mean saved", words, whole, percent, "%", PLACE, panel="text", average=True),
                Row(
                    "mean saved", f"{words}, absolute", mean(saved), absolute, "MB", PLACE,
                    panel="text", average=True,
                ),
            ]  # fmt: skip
            for part, printed_share in ((IN_PLACE, 77.5), (PER_WAY, 22.5)):
                value = means[part]
                averages.append(
                    Row(
                        f"share of {part}", words,
                        100 * value / whole if whole and value is not None else None,
                        printed_share, "%", f"{PLACE}: 75-80 % and 25-20 %, here their middle",
                        panel="text", average=True,
                    )
                )  # fmt: skip
        return shares + sizes + averages
