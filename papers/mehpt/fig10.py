"""Figure 10: page-table memory saved, by in-place and by per-way resizing."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import ALL_SIZES, APPLICATIONS, BIG_MACHINE, CHOSEN_SIZES, MB, TABLE_1, VARIANTS

PEAK = "os.page_table_peak_bytes"
IN_PLACE, PER_WAY = "in-place resizing", "per-way resizing"
PLACE = "section VII-C"
SAVED = "mean saved"
STEPS = ("ECPT", "ME-HPT all ways", "ME-HPT")


class Figure10(Figure):
    title = "Page-table memory saved over ECPT"
    place = "figure 10, section VII-C"
    about = (
        "In-place resizing is what ME-HPT without per-way resizing saves over ECPT, per-way "
        "resizing the rest. The peak counts all tables of the process, walk tables included. "
        "With 64 GB the last doubling of GUPS and SysBench also changes chunks from 1 MB to 8 MB "
        "and rehashes out of place: in-place resizing saves nothing there. MUMmer's 6.9 GB fill "
        "three ways of 8 MB to 0.575; with per-way resizing the fullest comes to 0.6 and doubles, "
        "so that per-way resizing costs memory there. " + BIG_MACHINE
    )
    deviation = TABLE_1
    panels = (
        Panel(Bars("% of ECPT's memory", stacked=True), "share", "Reduction"),
        Panel(Bars("MB"), "MB", "Absolute reduction (the numbers on the paper's bars)"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(ALL_SIZES, [f"{d}{t}" for t in ("", "+THP") for d in STEPS])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        shares, sizes, averages = [], [], []
        for suffix, words, percent, absolute in (
            ("", "without THP", 43.0, 37.0),
            ("+THP", "with THP", 41.0, 20.0),
        ):
            saved = {}
            for app in ALL_SIZES:
                found = [results(runs[app, f"{design}{suffix}"]) for design in STEPS]
                why = next((o.why for o in found if o.failed), "")
                saved[app] = split([outcome.since_boot(PEAK) for outcome in found])
                if app not in APPLICATIONS:
                    continue
                for part in (IN_PLACE, PER_WAY):
                    value = saved[app].get(part)
                    shares.append(
                        Row(app, words, value, None, "%", failed=why, part=part, panel="share")
                    )
                printed = 96.0 if app in ("GUPS", "SysBench") and not suffix else None
                place = "section VII-D: 96 Mbytes more memory" if printed else ""
                value = saved[app].get("MB")
                sizes.append(Row(app, words, value, printed, "MB", place, failed=why, panel="MB"))
            for variant, other in VARIANTS:
                means = {
                    part: mean(saved[other.get(app, app)].get(part) for app in APPLICATIONS)
                    for part in (IN_PLACE, PER_WAY, "whole", "MB")
                }
                whole = means["whole"]
                parts = {
                    part: 100 * value / whole if whole and (value := means[part]) else None
                    for part in (IN_PLACE, PER_WAY)
                }
                chosen = CHOSEN_SIZES if variant else ""
                middle = "the paper gives a range; its middle stands here"
                averages += [
                    Row(name, f"{words}{variant}", value, printed, unit, place, panel="text",
                        average=True, by_construction="; ".join(filter(None, (chosen, how))),
                        saved=name == SAVED, tolerance=reach)
                    for name, value, printed, unit, place, how, reach in (
                        (SAVED, whole, percent, "%", PLACE, "", 0.05),
                        ("mean saved, absolute", means["MB"], absolute, "MB", PLACE, "", 0.05),
                        (f"share of {IN_PLACE}", parts[IN_PLACE], 77.5, "%",
                         f"{PLACE}: 75-80 %", middle, 2.5 / 77.5),
                        (f"share of {PER_WAY}", parts[PER_WAY], 22.5, "%",
                         f"{PLACE}: 25-20 %", middle, 2.5 / 22.5),
                    )
                ]  # fmt: skip
        return shares + sizes + averages


def split(bytes_of: list[float | None]) -> dict[str, float]:
    """The savings of each technique, in per cent of ECPT's memory, and of both in MB."""
    ecpt, in_place, both = bytes_of
    if not ecpt or in_place is None or both is None:
        return {}
    return {
        IN_PLACE: 100 * (ecpt - in_place) / ecpt,
        PER_WAY: 100 * (in_place - both) / ecpt,
        "whole": 100 * (ecpt - both) / ecpt,
        "MB": (ecpt - both) / MB,
    }
