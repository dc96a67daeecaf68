"""Figure 10: which hash places a page, by memory pressure, and what the model says."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Outcome, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from . import kernel
from .common import HASHES, OCCUPIED, TIERS, revelator
from .counts import expected, placed
from .printed import FIRST_HASH_40, SECOND_HASH_40, THREE_HASHES, V2_THREE_HASHES

LEVELS = (20, 40, 60, 80)
"""Per cent of the frames: "memory is full from 20% up to 80%"."""
APPLICATION = "allocator"
MEASURED, MODEL = "measured", "model"
FALLBACK = "buddy allocator"


def part(number: int) -> str:
    """Name of a hash, from 0 on."""
    return f"H{number + 1}"


def design(paper: Paper, occupied: int, hashes: int) -> Design:
    """Revelator with so many hashes where others hold so much of the memory."""
    label = f"Revelator N={hashes}, {occupied}% occupied"
    return revelator(paper, label, {TIERS: hashes, OCCUPIED: occupied / 100})


def model(p: float, hashes: int) -> list[float]:
    """Per cent placed by each hash when a share `p` of the frames is taken (section 5.1.1)."""
    return [100 * (1 - p) * p**number for number in range(hashes)]


def farthest(outcome: Outcome) -> float | None:
    """Points between a hash's share and the model at each of the run's own allocations."""
    ours, theirs = placed(outcome), expected(outcome)
    if ours is None or theirs is None:
        return None
    pairs = zip(ours.shares(), theirs.shares(), strict=True)
    return max((abs(a - b) for a, b in pairs), default=None)


class Figure10(Figure):
    title = "Pages placed by each hash function"
    place = "figure 10, section 6.2"
    about = (
        "Frames are occupied at random before the program starts, and it fills more of them. The "
        "model is the paper's, (1 - p) p^(i - 1) for hash i; it contradicts what the text quotes "
        "from measurements: 65 % and 32 % at 40 % (the model: 60 % and 24 %), and 80 % or more "
        "with three hashes even under high pressure (the model at 80 %: 49 %). The bars of a group "
        "are, from the left, ours, the model's and, with --kernel, those of a booted Linux whose "
        "frames in use are random, and of one where they lie in runs."
    )
    deviation = "revelator-figure-10"
    kernel_file = "figure10.json"
    seeds = 3
    panels = tuple(
        Panel(
            Bars("% of the pages", stacked=True, averages=False),
            f"{occupied}%",
            f"{occupied} % of the memory occupied",
        )
        for occupied in LEVELS
    )

    def runs(self, paper: Paper) -> Runs:
        designs = [
            design(paper, occupied, hashes)
            for occupied in LEVELS
            for hashes in range(1, HASHES + 1)
        ]
        return paper.cross([APPLICATION], designs)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        found = {
            (occupied, hashes): results(runs[APPLICATION, design(paper, occupied, hashes).label])
            for occupied in LEVELS
            for hashes in range(1, HASHES + 1)
        }
        folder = paper.kernel_results
        booted = kernel.shares(folder / self.kernel_file) if folder is not None else {}
        rows = []
        text = []
        for (occupied, hashes), outcome in found.items():
            ours = placed(outcome)
            shares = ours.shares() if ours else [None] * hashes
            theory = model(occupied / 100, hashes)
            rest = 100 - sum(theory)
            fallback = 100 - ours.hashed if ours and ours.hashed is not None else None
            group, panel = f"N={hashes}", f"{occupied}%"
            parts = [*map(part, range(hashes)), FALLBACK]
            for series, values in ((MEASURED, [*shares, fallback]), (MODEL, [*theory, rest])):
                why = outcome.why if series == MEASURED else ""
                rows += [
                    Row(group, series, value, unit="%", failed=why, part=name, panel=panel)
                    for name, value in zip(parts, values, strict=True)
                ]
            text.append(
                Row(
                    f"{occupied} % occupied, N={hashes}", "farthest from the model, integrated",
                    farthest(outcome), unit="points", failed=outcome.why, panel="text",
                )
            )  # fmt: skip
            for linux in booted.get((occupied, hashes), []):
                rows += [
                    Row(group, linux.series, value, unit="%", part=name, panel=panel)
                    for name, value in zip(parts, linux.shares, strict=True)
                ]
                pairs = zip(linux.shares, [*theory, rest], strict=True)
                text.append(
                    Row(
                        f"{occupied} % occupied, N={hashes}",
                        f"farthest from the model, {linux.series}",
                        max(abs(a - b) for a, b in pairs), unit="points", panel="text",
                    )
                )  # fmt: skip
        return rows + self._stated(found) + text

    def _stated(self, found: dict[tuple[int, int], Outcome]) -> list[Row]:
        """Shares that the text quotes, ours and the model's."""
        quoted = []
        for said, number in ((FIRST_HASH_40, 0), (SECOND_HASH_40, 1)):
            ours = placed(found[40, HASHES])
            values = (ours.shares()[number] if ours else None, model(0.4, HASHES)[number])
            quoted += [
                said.row(f"40 % occupied, {part(number)}", series, value, "%",
                         average=True, panel="text")
                for series, value in zip((MEASURED, MODEL), values, strict=True)
            ]  # fmt: skip
        for occupied in LEVELS:
            ours = placed(found[occupied, 3])
            values = (ours.hashed if ours else None, sum(model(occupied / 100, 3)))
            # The second version gives a range instead.
            more = ((THREE_HASHES, ""), (V2_THREE_HASHES, ", second version"))
            for said, words in more if occupied == LEVELS[-1] else more[:1]:
                quoted += [
                    said.row(f"{occupied} % occupied, three hashes{words}", series, value, "%",
                             average=True, panel="text")
                    for series, value in zip((MEASURED, MODEL), values, strict=True)
                ]  # fmt: skip
        return quoted
