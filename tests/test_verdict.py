"""The verdict above every table: it says what the numbers below it say."""

from __future__ import annotations

import re
from functools import cache

import pytest

import pagewalk
from pagewalk.measurements.design import DesignResult
from pagewalk.result import Result
from pagewalk.view.page import page


@cache
def compared(populate: str) -> Result:
    """GUPS on five designs, with the first touches of its table before or in the measured part."""
    return pagewalk.compare(
        ["radix", "thp", "ecpt", "l2tlb-128k", "perfect-tlb"],
        workload="gups",
        size="64MiB",
        params={"populate": populate},
        instructions="500K",
        translation_cost=True,
    )


def share_of(design: DesignResult, cause: str) -> float:
    return next(s.share for s in design.cycle_stack if s.cause == cause)


def test_the_verdict_names_cost_recovery_fastest_design_and_limits() -> None:
    result = compared("yes")
    cost, recovered, fastest, rest = result.verdict
    radix = result["radix"]
    assert radix.translation_cost is not None
    assert radix.translation_cost > 0.01
    assert cost.startswith(f"With radix, translation costs {100 * radix.translation_cost:.1f} %")
    base = radix.translation_cost * radix["cycles"]
    for name in ("thp", "ecpt", "l2tlb-128k"):
        own = result[name].translation_cost
        assert own is not None
        share = 100 * (1 - own * result[name]["cycles"] / base)
        verb = "recovers" if share > -0.5 else "adds"
        assert f"{name} {verb} {max(share, -share):.0f} %" in recovered
    assert "perfect-tlb" not in recovered + fastest
    best = max(result.designs[:4], key=lambda d: d.speedup or 0)
    assert f"is {best.name}: {best.speedup:.3f} times" in fastest
    assert f"go to DRAM ({100 * share_of(best, 'dram'):.1f} %)" in rest
    faulting = compared("no")
    fast = max(faulting.designs[:4], key=lambda d: d.speedup or 0)
    assert f"the kernel takes {100 * fast.kernel_share:.1f} %" in faulting.verdict[-1]
    for text in result.verdict:
        assert text.replace(" %", "&nbsp;%") in page(result)


def test_page_faults_do_not_count_as_translation() -> None:
    """Huge pages take fewer faults than the 4 KB pages of perfect TLBs."""
    result = compared("no")
    thp, perfect = result["thp"], result["perfect-tlb"]
    kernel = [d["cycles"] * d.kernel_share for d in (thp, perfect)]
    assert kernel[1] > 1.5 * kernel[0]
    user = [d["cycles"] * (1 - d.kernel_share) for d in (thp, perfect)]
    assert thp.translation_cost is not None
    assert abs(thp.translation_cost - (user[0] - user[1]) / thp["cycles"]) < 1e-9
    assert perfect.translation_cost == 0


def test_a_window_of_page_faults_is_named_with_its_remedy() -> None:
    result = compared("no")
    (text,) = (w for w in result.warnings if "the kernel takes" in w)
    assert [d.name for d in result.designs if d.kernel_share >= 0.3] == re.findall(
        r"[a-z0-9-]+", text.split(":")[0].replace(" and ", " ")
    ) or text.startswith("the kernel")
    assert "--skip N or --warmup N" in text
    populated = pagewalk.run(workload="gups", size="64MiB", instructions="100K")
    assert not any("the kernel takes" in w for w in populated.warnings)


def test_no_design_is_refused() -> None:
    with pytest.raises(pagewalk.UserError, match="names no design"):
        pagewalk.compare([], workload="gups")


def test_several_machines_ties_and_failed_designs_keep_the_sentences_true() -> None:
    two = pagewalk.compare(
        ["radix"],
        machine=["epyc-milan", "emt-reference"],
        workload="gups",
        size="64MiB",
        instructions="50K",
        translation_cost=True,
    )
    assert ["on epyc-milan" in text for text in two.verdict[::3]] == [True, False]
    tied = pagewalk.compare(
        ["radix", "thp", "thp-reservation"], workload="gups", size="64MiB", instructions="50K"
    )
    (fastest,) = re.findall(r"The fastest design is (\S+):", " ".join(tied.verdict))
    assert f"Other cycles of {fastest} go to" in tied.verdict[-1]
    failed = pagewalk.compare(
        ["ecpt", "radix", "thp"],
        workload="gups",
        size="1GiB",
        instructions="50K",
        settings={"ecpt:os.memory_gb": 1},
    )
    assert failed.designs[0].failed
    assert "The fastest design is thp:" in " ".join(failed.verdict)


def test_a_run_of_one_design_points_to_compare_and_names_the_cut() -> None:
    result = pagewalk.run(workload="gups", size="64MiB", instructions="100K", translation_cost=True)
    assert result.verdict[0].startswith("Translation costs ")
    assert "pagewalk compare" in result.verdict[1]
    assert any("--instructions" in fact for fact in result.facts)


def test_a_store_queries_the_shortcut_of_a_design_by_itself() -> None:
    def cycles(**params: str) -> float:
        result = pagewalk.compare(
            ["radix", "stlt"],
            workload="kv-hash",
            size="4MiB",
            params=params,
            requests=1000,
        )
        assert not any("no shortcut query" in w for w in result.warnings)
        return result["stlt"]["cycles"]

    assert cycles() == cycles(shortcut="stlt")
