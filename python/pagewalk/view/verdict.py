"""The verdict above every table: what translation costs, and which design recovers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagewalk.view import causes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

_MEASURABLE = 0.0005
"""Least share of cycles, and least difference of a speedup, that a sentence calls one."""
_WORTH = 0.01
"""Least cost of translation from which the shares that designs recover are listed."""
_LISTED = 4
"""Designs or causes that one sentence lists at most."""


def sentences(result: Result, measured_by: str = "translation_cost=True") -> list[str]:
    """The cost of translation, the designs that recover it, and the limits of the rest.

    Shares are of cycles. The cost of translation leaves the kernel's time out on both sides.
    `measured_by` is the option that measures it.
    """
    if result.translation_reference is not None or result.designs[0].programs:
        # A mix has no such cost.
        measured_by = ""
    return [
        text for designs in result.on_each for text in _of_machine(result, designs, measured_by)
    ]


def _of_machine(result: Result, designs: Sequence[DesignResult], measured_by: str) -> list[str]:
    measured = [d for d in designs if d.get("cycles") and d.cycle_stack and not _failed(d)]
    if not measured:
        return []
    built = real(measured) or measured
    first = built[0]
    several = len(result.designs) > 1
    fastest = max(built, key=lambda d: _speed(d, first))
    return [
        _cost(first, measured_by, several=several),
        *_gain(result, first, fastest, measured),
        *_settled(result, first),
        _rest(fastest, several=several),
    ]


def _speed(design: DesignResult, first: DesignResult) -> float:
    """The speedup over the first design that has one; 0 if they cannot be compared."""
    if design.speedup is not None and first.speedup is not None:
        return design.speedup / first.speedup
    return first.cost / design.cost if first.cost and design.cost else 0.0


def _failed(design: DesignResult) -> bool:
    return design.failed and not design.died


def real(designs: Sequence[DesignResult]) -> list[DesignResult]:
    """The designs that could be built: those without perfect TLBs or a perfect speculation."""
    return [
        d
        for d in designs
        if not d.config["mmu"]["perfect"] and "perfect" not in (d.config.get("engine") or {})
    ]


def _cost(first: DesignResult, measured_by: str, *, several: bool) -> str:
    """The sentence on the cost of translation in the first design."""
    head = f"With {first.name}, " if several else ""
    cost = first.translation_cost
    if cost is None:
        stalled = sum(s.share for s in first.cycle_stack if s.cause in causes.TRANSLATION)
        text = f"{_percent(stalled)} of the cycles stall on translations; "
        text += "the saving of perfect TLBs was not measured"
        if measured_by:
            text += f" ({measured_by} measures it)"
        return _sentence(head + text)
    estimated = ", as samples say" if first.sampling else ""
    if cost > _MEASURABLE:
        faster = f"{1 / (1 - cost):.3f} times as fast with perfect TLBs"
        text = f"translation costs {_percent(cost)} of the cycles: {faster}"
    elif cost >= -_MEASURABLE:
        text = "translation costs nothing: perfect TLBs would make no difference"
    else:
        text = f"translation costs nothing: {slower(first)}"
    return _sentence(head + text + estimated)


def slower(design: DesignResult) -> str:
    """The cycles that perfect TLBs need more than a design, in words."""
    text = f"perfect TLBs would take {_percent(-(design.translation_cost or 0.0))} more cycles"
    if design.kernel_share > _WORTH:
        # The difference disappears if the same pages are touched before the measured part.
        return f"{text}, because page faults of their 4 KB pages drain the window more often"
    return f"{text}, because accesses reach caches and DRAM in another order"


def _gain(
    result: Result,
    first: DesignResult,
    fastest: DesignResult,
    measured: Sequence[DesignResult],
) -> list[str]:
    """The sentences on the other designs: the share of the cost that each one recovers."""
    others = [d for d in measured if d is not first]
    cost = first.translation_cost
    if not others:
        if cost is None or cost < _WORTH:
            return []
        return ["'pagewalk compare --designs radix,thp' shows the share that huge pages recover."]
    spoken = []
    base = _translation_cycles(first)
    if base is not None and cost is not None and cost >= _WORTH:
        recovered = [
            (1 - own / base, d.name)
            for d in real(others)
            if (own := _translation_cycles(d)) is not None
        ]
        recovered.sort(key=lambda one: -one[0])
        parts = [_recovers(share, name) for share, name in recovered]
        if len(parts) > _LISTED:
            parts[_LISTED - 1 : -1] = ["…"]
        if parts:
            spoken.append(f"Of that, {', '.join(parts)}.")
    if real([first]) and real(others):
        best = _speed(fastest, first)
        if best > 1 + _MEASURABLE:
            text = f"the fastest design is {fastest.name}: {best:.3f} times as fast as {first.name}"
        else:
            text = f"no design is faster than {first.name}"
        by = "by requests, " if result.speedup_by == "request" else ""
        spoken.append(_sentence(by + text))
    return spoken


def _settled(result: Result, first: DesignResult) -> list[str]:
    """The sentences on huge pages that khugepaged had no time to make."""
    spoken = []
    for settled in result.data.get("settled", []):
        if settled.get("machine") != first.machine:
            continue
        name, speedup, base = settled["name"], settled["speedup"], first.name
        if speedup is None:
            text = f"the gain of settled huge pages is that of the design '{name}' of --designs"
        elif speedup > 1 + _MEASURABLE:
            text = f"settled huge pages would be {speedup:.3f} times as fast as {base} ({name})"
        else:
            text = f"settled huge pages would not be faster than {base} ({name})"
        spoken.append(_sentence(text))
    return spoken


def _recovers(share: float, name: str) -> str:
    if share < -1:
        return f"{name} has {1 - share:.0f} times as much"
    if share < -0.005:
        return f"{name} adds {_percent(-share, 0)}"
    return f"{name} recovers {_percent(max(0.0, share), 0)}"


def _rest(design: DesignResult, *, several: bool) -> str:
    """The sentence on the causes beside translation, the kernel's time apart."""
    others = [s for s in design.cycle_stack if s.cause not in (*causes.TRANSLATION, "kernel")]
    others.sort(key=lambda s: -s.share)
    parts = [f"{causes.words(s.cause)} ({_percent(s.share)})" for s in others[:3] if s.share > 0]
    text = f"Other cycles{f' of {design.name}' if several else ''} go to {', '.join(parts)}"
    kernel = design.kernel_share
    if kernel >= _MEASURABLE:
        text += f"; the kernel takes {_percent(kernel)}"
    return _sentence(text)


def _translation_cycles(design: DesignResult) -> float | None:
    """Cycles an instruction that translation costs; None if not measured."""
    cycles, work = design.get("cycles"), design.get("instructions")
    if not cycles or not work or design.translation_cost is None:
        return None
    return design.translation_cost * cycles / work


def _percent(share: float, digits: int = 1) -> str:
    return f"{share * 100:.{digits}f} %"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
