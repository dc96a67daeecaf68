"""The second version's headline results: huge pages, nested prediction, sixteen cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pagewalk.reproduce import (
    Application,
    Bars,
    Design,
    Figure,
    Means,
    Outcome,
    Panel,
    Paper,
    Program,
    Row,
    Run,
    Runs,
    mean,
)
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, Compared, ipc, mean_row, over, speedups
from .counts import accuracy, covered
from .fig17 import total
from .fig19 import pressed
from .printed import V2_ACCURACY, V2_ENERGY, V2_MIXES, V2_NESTED, V2_THP

Json = dict[str, Any]

AVAILABLE = (90, 50, 10)
"""Per cent of the 2 MB blocks that are available: low, medium, high fragmentation."""
MIXES = ("mix 1", "mix 2")
MACHINE = "sixteen"
MIX_SHARE = 4
"""A program of a mix has this part of the scale's instructions: there are sixteen of them."""
THP, OURS = "THP", "Revelator+THP"


def at(paper: Paper, design: str, available: int) -> Design:
    """A design with so many of the 2 MB blocks."""
    served = {"os.fragmentation": {"served_2mb": available / 100}}
    return paper.designs[design].changed(label(design, available), served)


def label(design: str, available: int) -> str:
    """The name of a design with that share of 2 MB blocks."""
    return f"{design} {available}%"


def nested(paper: Paper) -> list[Design]:
    """Both predictions inside of nested walks, under low and high pressure."""
    return pressed(paper, "Revelator-VM nested")


def shorter(run: Run) -> Run:
    """The part of a run that mixes have."""
    assert run.instructions is not None
    return replace(run, instructions=run.instructions // MIX_SHARE, warmup=run.warmup // MIX_SHARE)


def alone(program: Json, memory: int) -> Application:
    """A program of a mix by itself."""
    workload = program["workload"]
    name = f"{workload['name']} {workload['size'] or ''}".strip()
    return Application(
        name,
        Program(
            workload["name"], workload["size"], workload["threads"], workload["params"], memory,
            region=False,
        ),
    )  # fmt: skip


def weighted(mixed: Outcome, by_itself: list[Outcome]) -> float | None:
    """Sum over the programs of their speed in the mix over that alone."""
    if mixed.failed:
        return None
    pairs = [
        (program.ipc, ipc(outcome))
        for program, outcome in zip(mixed.result.programs, by_itself, strict=True)
    ]
    if not pairs or any(not own or not base for own, base in pairs):
        return None
    return sum(own / base for own, base in pairs if own and base)


class Version2(Figure):
    title = "Huge pages, nested prediction, sixteen cores"
    place = "second version"
    about = (
        "What the second version of the paper adds: Revelator with huge pages over "
        "reservation-based THP where 90, 50 and 10 % of the requests for 2 MB blocks are served; "
        "prediction of host addresses inside of nested walks (diagonal and horizontal); and 16 "
        "cores with private L2 TLBs, shared L3 and DRAM. It runs traces of data centres, we the "
        "programs of table 2, in mixes of 16, each with a quarter of the scale's instructions. "
        "Weighted speedup is the sum of each program's speed over that alone with THP; the L3 has "
        "64 miss registers a core, and the DRAM the bandwidth of the released configuration of 16 "
        "cores: 16 channels. Its nested prediction is over nested paging with "
        "THP and has huge pages itself; ours has small ones."
    )
    timing = True
    deviation = "revelator-second-version"
    panels = (
        Panel(Bars("speedup over THP"), "thp", "Revelator with huge pages over THP"),
        Panel(Bars("speedup over nested paging"), "nested", "Prediction in nested walks"),
        Panel(Bars("speedup over THP"), "mixes", "Weighted speedup of sixteen cores over THP"),
    )

    def runs(self, paper: Paper) -> Runs:
        huge = [at(paper, name, share) for name in (THP, OURS) for share in AVAILABLE]
        others: list[str | Design] = ["NP", "NP+THP", "ISP"]
        virtual = [*others, *pressed(paper), *nested(paper)]
        runs = paper.cross(APPLICATIONS, huge, timing=True)
        runs |= paper.cross(APPLICATIONS, virtual, timing=True)
        return runs | self._mixes(paper)

    def _mixes(self, paper: Paper) -> Runs:
        found = {}
        for mix in MIXES:
            for share in V2_MIXES:
                for name in (THP, OURS):
                    run = paper.run(mix, at(paper, name, share), timing=True, machine=MACHINE)
                    found[mix, label(name, share)] = shorter(run)
                for number, app in enumerate(self._programs(paper, mix)):
                    run = paper.run(app, at(paper, THP, share), timing=True, machine=MACHINE)
                    found[f"{mix} {number}", label(THP, share)] = shorter(run)
        return Runs(found)

    @staticmethod
    def _programs(paper: Paper, mix: str) -> list[Application]:
        program = paper.applications[mix].program
        return [alone(one, program.memory) for one in program.mix]

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        found = Compared(runs, results, APPLICATIONS)
        names = {label(OURS, share): label(THP, share) for share in AVAILABLE}
        said = {label(OURS, share): of for share, of in V2_THP.items()}
        rows, _ = speedups(found, names, said, base=names.__getitem__, panel="thp")
        virtual = [d.label for d in (*pressed(paper), *nested(paper))]
        more, _ = speedups(found, (*virtual, "ISP"), {}, base="NP", panel="nested")
        saved = (
            found.saved(app, ours, thp, total)
            for app in APPLICATIONS
            for ours, thp in names.items()
        )
        return [
            *rows,
            *more,
            *self._of_mixes(paper, runs, results),
            over(found, nested(paper)[0].label, "NP+THP", V2_NESTED),
            V2_ENERGY.row(
                "energy saved over THP", "", mean(saved), "%", average=True, panel="text",
                saved=True,
            ),
        ]  # fmt: skip

    def _of_mixes(self, paper: Paper, runs: Runs, results: Results) -> list[Row]:
        rows, text = [], []
        for share, said in V2_MIXES.items():
            ratios: list[float | None] = []
            misses: list[float | None] = []
            guesses: list[float | None] = []
            for mix in MIXES:
                count = len(paper.applications[mix].program.mix)
                by_itself = [
                    results(runs[f"{mix} {number}", label(THP, share)]) for number in range(count)
                ]
                both = [results(runs[mix, label(name, share)]) for name in (THP, OURS)]
                thp, ours = (weighted(outcome, by_itself) for outcome in both)
                ratios.append(ours / thp if ours and thp else None)
                misses.append(covered(both[1]))
                guesses.append(accuracy(both[1]))
                why = next((o.why for o in (*both, *by_itself) if o.failed), "")
                series = label(OURS, share)
                rows.append(Row(mix, series, ratios[-1], failed=why, panel="mixes"))
            of = Means.of(ratios)
            rows.append(mean_row(label(OURS, share), of, said, panel="mixes"))
            blocks = f"right guesses of data, 16 cores, {share} % of blocks"
            text += [
                V2_ACCURACY.row(
                    blocks, "of the misses", mean(misses), "%", average=True, panel="text"
                ),
                Row(
                    blocks, "of the guesses", mean(guesses), unit="%", average=True, panel="text"
                ),
            ]  # fmt: skip
        return rows + text
