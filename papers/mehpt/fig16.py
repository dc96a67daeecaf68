"""Figure 16: re-insertions of an insertion or rehash, under every reading of the paper."""

from __future__ import annotations

import itertools

from pagewalk.reproduce import Bars, Design, Figure, Outcome, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FOUR_KB

SHOWN = 8
"""Numbers of re-insertions drawn one by one; the last bar takes all above."""
PLACE = "section VII-E6"
MIGRATED = (1, 2, 4)
MERGES = ((False, "line"), (True, "entry"))
CHOICES = (("blind", "blind"), ("prefer_empty", "empty first"))
HASHES = (("crc", "CRC"), ("murmur", "Murmur"))
# Programs that differ in how their memory grows: by small objects, by large blocks, and TC's sets.
READ = ("BFS", "GUPS 32 GB", "TC")
OF_THREE = f"each reading: mean of {READ[0]}, {READ[1]} and {READ[2]} alone"


def distribution(outcome: Outcome) -> list[float]:
    """The share of insertions and rehashes with 0, 1, 2… re-insertions."""
    known = outcome.since_boot_of(f"{FOUR_KB}.reinsertions.", "")
    numbers = [known.get(str(n)) for n in range(SHOWN)]
    rest = sum(v for k, v in known.items() if not k.isdigit() or int(k) >= SHOWN) if known else 0.0
    total = outcome.since_boot(f"{FOUR_KB}.insertions_and_rehashes")
    if not total or any(n is None for n in numbers):
        return []
    return [(n or 0) / total for n in numbers] + [rest / total]


def average(outcome: Outcome) -> float | None:
    """Re-insertions for each insertion or rehash."""
    total = outcome.since_boot(f"{FOUR_KB}.insertions_and_rehashes")
    kicks = outcome.since_boot(f"{FOUR_KB}.reinsertions")
    return None if not total or kicks is None else kicks / total


def readings(paper: Paper) -> dict[str, Design]:
    """ME-HPT under each reading, by its words."""
    found = {}
    readings = itertools.product(HASHES, CHOICES, MERGES, MIGRATED)
    for (hashed, hash_words), (choice, choice_words), (counts, unit), migrated in readings:
        slots = "slot" if migrated == 1 else "slots"
        name = f"{hash_words}, {choice_words}: {migrated} {slots} a new {unit}"
        found[name] = paper.designs["ME-HPT"].changed(
            f"ME-HPT {hashed} {migrated} a {unit} {choice}",
            {
                "page_table.memory_efficient": {
                    "hash": hashed,
                    "choice": choice,
                    "merge_counts": counts,
                    "migrated_per_insertion": migrated,
                }
            },
        )
    return found


class Figure16(Figure):
    title = "Re-insertions of an insertion or rehash, 4 KB table"
    place = "figure 16, section VII-E6"
    about = (
        "What the paper leaves open decides this figure: how many slots of the old table each "
        "insertion migrates, whether an entry that joins an existing line counts as one, whether "
        "a line goes to a random way or to one with a free slot, and the hash: a CRC is linear "
        "and spreads dense keys more evenly than chance would. The default (CRC, 1.45 slots a "
        "new line, blind) was not chosen by this figure and is none of the readings. The "
        "distribution is the mean of all eleven applications; the 24 readings are means of BFS, "
        "GUPS with 32 GB and TC alone, which differ in how their memory grows. An upsize that is "
        "due waits in all of them; with one slot that fills a table far beyond its threshold."
    )
    deviation = "mehpt-figure-16"
    panels = (
        Panel(Bars("share of insertions and rehashes"), "all", "Mean of all applications"),
        Panel(Bars("share without re-insertion"), "none", f"P(0), {OF_THREE}"),
        Panel(Bars("re-insertions"), "mean", f"Mean number, {OF_THREE}"),
    )

    def runs(self, paper: Paper) -> Runs:
        designs = [*readings(paper).values()]
        return paper.cross(APPLICATIONS, ["ME-HPT"]) | paper.cross(READ, designs)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        outcomes = [results(runs[app, "ME-HPT"]) for app in APPLICATIONS]
        spreads = [distribution(outcome) for outcome in outcomes]
        rows = []
        for n in range(SHOWN + 1):
            value = mean(spread[n] for spread in spreads if spread)
            name = str(n) if n < SHOWN else f"{SHOWN}+"
            printed = 0.64 if n == 0 else None
            rows.append(
                Row(
                    name, "ME-HPT", value, printed, "", PLACE if n == 0 else "", panel="all",
                    average=n == 0,
                )
            )  # fmt: skip
        rows.append(
            Row(
                "mean number", "ME-HPT", mean(average(o) for o in outcomes), 0.7, "", PLACE,
                panel="text", average=True,
            )
        )  # fmt: skip
        for name, design in readings(paper).items():
            group, _, words = name.partition(": ")
            found = [results(runs[app, design.label]) for app in READ]
            why = next((o.why for o in found if o.failed), "")
            zero = mean(s[0] for o in found if (s := distribution(o)))
            kicks = mean(average(o) for o in found)
            rows += [
                Row(group, words, None if why else zero, 0.64, "", PLACE, "", why, panel="none"),
                Row(group, words, None if why else kicks, 0.7, "", PLACE, "", why, panel="mean"),
            ]
        return rows
