"""Programs of one's own: generators of blocks of addresses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pagewalk

AT = 0x10_0000_0000
PAGE = 4096
CODE_FAULT = 1
"""The page of the instructions faults, too, when it is first fetched."""
Array = np.ndarray[Any, Any]


def run(workload: Any, **arguments: Any) -> pagewalk.Result:
    return pagewalk.run("radix", workload=workload, progress=False, **arguments)


def pages(count: int, rounds: int = 1) -> Array:
    return np.tile(AT + PAGE * np.arange(count, dtype=np.uint64), rounds)


def value(result: pagewalk.Result, path: str, name: str) -> int:
    rows = [s for s in result["radix"].statistics if (s.path, s.name) == (path, name)]
    assert len(rows) == 1
    return rows[0].value


def test_every_address_is_a_load_of_a_mapped_page() -> None:
    # 8192 pages, twice: far more than any TLB holds, so each access walks.
    def sweep() -> Iterator[Array]:
        yield pages(8192)
        yield pages(8192)

    mapping = pagewalk.Mapping(AT, 8192 * PAGE, populate=True)
    result = run(sweep(), mappings=[mapping])
    numbers = result["radix"]
    assert result.data["source"]["name"] == "python sweep"
    assert numbers["instructions"] == numbers["memory_operands"] == 2 * 8192
    assert numbers["walks"] >= 2 * 8192
    assert numbers["page_faults"] == CODE_FAULT
    assert not result.partial
    assert not any("mapping information" in w for w in result.warnings)
    assert any("register information" in w for w in result.warnings)


def test_missing_mappings_are_inferred_with_a_warning() -> None:
    result = run(iter([pages(100)]), settings={"os.inferred_pages": "first_touch"})
    assert any("mapping information" in w and "first_touch" in w for w in result.warnings)
    assert result["radix"]["page_faults"] == 100 + CODE_FAULT


def test_the_first_walk_for_an_inferred_page_takes_longer_if_asked() -> None:
    """As ChampSim charges a first touch: cycles of the walk, and no page fault."""

    def look(settings: dict[str, object]) -> pagewalk.Result:
        # So few walks wait for nothing but their own reads.
        return run(iter([pages(4), pages(4)]), settings=settings)

    without, found = look({}), look({"os.inferred_touch_cycles": 200})
    assert found["radix"]["page_faults"] == 0
    assert found["radix"]["walks"] == without["radix"]["walks"]
    cycles = [value(r, "core.0.mmu", "walk_cycles") for r in (without, found)]
    assert cycles[1] - cycles[0] == 200 * (4 + CODE_FAULT)
    assert any("200 cycles longer" in w for w in found.warnings)
    with pytest.raises(pagewalk.UserError, match=r"inferred_touch_cycles.*leave it out"):
        look({"os.inferred_touch_cycles": 200, "os.inferred_pages": "first_touch"})


def test_inferred_pages_were_there_before_unless_they_are_to_fault() -> None:
    def look(rule: str, design: str = "radix") -> pagewalk.Result:
        # More pages than the second-level TLB has entries: all miss in both rounds.
        settings = {"os.inferred_pages": rule}
        return pagewalk.run(
            design, workload=iter([pages(8192), pages(8192)]), settings=settings, progress=False
        )

    before, faults = look("mapped_before"), look("first_touch")
    assert before.data["designs"][0]["config"]["os"]["inferred_pages"] == "mapped_before"
    assert any("mapped_before" in w for w in before.warnings)
    numbers, others = before["radix"], faults["radix"]
    assert (numbers["page_faults"], others["page_faults"]) == (0, 8192 + CODE_FAULT)
    # One walk for each access, and no second one after a fault.
    assert numbers["walks"] == 2 * 8192 + CODE_FAULT
    assert others["walks"] == numbers["walks"] + 8192 + CODE_FAULT
    assert value(before, "os", "fault_cycles") == 0 < value(faults, "os", "fault_cycles")
    # The placement of pages does not depend on it.
    for name in ("mapped_4kb_bytes", "page_table_bytes", "inferred_mappings"):
        assert value(before, "os", name) == value(faults, "os", name)
    # The aligned 2 MB around an address are the area: with thp they are one page from the
    # first use on.
    huge = look("mapped_before", "thp")["thp"]
    assert huge["page_faults"] == 0
    assert huge["walks"] < 8192 / 16


def test_the_default_is_that_they_were_there_before() -> None:
    result = run(iter([pages(100)]))
    assert result["radix"]["page_faults"] == 0
    assert any("mapped_before" in w for w in result.warnings)


def test_untouched_mappings_fault_at_the_first_access() -> None:
    result = run(pages(64, rounds=3), mappings=[(AT, 64 * PAGE)])
    assert result["radix"]["page_faults"] == 64 + CODE_FAULT


def test_blocks_and_structured_arrays_say_the_same() -> None:
    columns = {
        "address": pages(2000),
        "store": np.arange(2000) % 3 == 0,
        "distance": np.minimum(np.arange(2000), 1).astype(np.uint16),
        "pc": np.full(2000, 0x401000, np.uint64),
        "gap": np.full(2000, 4, np.uint16),
        "size": np.full(2000, 16, np.uint8),
    }
    kinds = [(name, column.dtype) for name, column in columns.items()]
    structured = np.empty(2000, dtype=kinds)
    for name, column in columns.items():
        structured[name] = column
    results = [
        run(iter([block]), mappings=[pagewalk.Mapping(AT, 2000 * PAGE, populate=True)])
        for block in (structured, pagewalk.Block(**columns))
    ]
    first, second = (r["radix"] for r in results)
    assert first["instructions"] == 5 * 2000
    assert not any("register information" in w for w in results[0].warnings)
    assert [s.value for s in first.statistics] == [s.value for s in second.statistics]


def test_a_chain_takes_longer_than_independent_loads() -> None:
    rng = np.random.default_rng(1)
    address = AT + 64 * rng.integers(0, 1 << 20, 20_000, dtype=np.uint64)
    mapping = pagewalk.Mapping(AT, 1 << 26, populate=True)
    chain = pagewalk.Block(address, distance=1)
    cycles = [run(iter([b]), mappings=[mapping])["radix"]["cycles"] for b in (address, chain)]
    assert cycles[1] > 2 * cycles[0]


def test_blocks_of_any_length_are_one_stream() -> None:
    address = pages(5000)

    def cut(lengths: list[int]) -> Iterator[Array]:
        at = 0
        for length in lengths:
            yield address[at : at + length]
            at += length

    whole = run(cut([5000]))["radix"]
    pieces = run(cut([0, 1, 4095, 0, 903, 1]))["radix"]
    single = run(int(a) for a in address)["radix"]
    for other in (pieces, single):
        assert [s.value for s in whole.statistics] == [s.value for s in other.statistics]


def test_a_list_of_generators_is_a_list_of_threads() -> None:
    def walk(thread: int) -> Iterator[Array]:
        for _ in range(4):
            yield pages(500) + np.uint64(thread << 30)

    result = run([walk(0), walk(1), walk(2)], machine="mehpt-table3")
    assert result["radix"]["instructions"] == 3 * 4 * 500
    for core in range(3):
        assert value(result, f"core.{core}", "instructions") == 2000


def test_designs_see_the_same_stream() -> None:
    result = pagewalk.compare(
        ["radix", "thp"],
        workload=(pages(1000) for _ in range(5)),
        mappings=[(AT, 1 << 22)],
        progress=False,
    )
    assert [d["instructions"] for d in result.designs] == [5000, 5000]
    assert result["thp"]["walks"] < result["radix"]["walks"]


def test_an_exception_keeps_the_result_so_far() -> None:
    def breaks() -> Iterator[Array]:
        yield pages(300)
        raise ValueError("out of data")

    with pytest.raises(
        pagewalk.WorkloadError, match=r"breaks.*300 operations.*out of data"
    ) as info:
        run(breaks())
    assert isinstance(info.value.__cause__, ValueError)
    assert info.value.result is not None
    assert info.value.result["radix"]["instructions"] == 300


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (np.zeros(3), "float64 values; expected whole numbers"),
        (np.array([1 << 56], np.uint64), "out of range"),
        (np.array([(1 << 56) - 4], np.uint64), "beyond 2\\^56"),
        (np.array([-1]), "out of range"),
        (np.zeros((2, 2), np.uint64), "one dimension"),
        (np.zeros(2, [("adress", "u8")]), "fields adress; expected address"),
        (pagewalk.Block(np.zeros(2, np.uint64), distance=70000), "distance"),
        (pagewalk.Block(np.zeros(2, np.uint64), size=65), "size: 0x41"),
        (pagewalk.Block(np.zeros(2, np.uint64), gap=65535), "gap"),
        (pagewalk.Block(np.zeros(2, np.uint64), store=[2, 0]), "store"),
        (pagewalk.Block(np.zeros(2, np.uint64), pc=[0, 0, 0]), "broadcast"),
        ("text", "values"),
    ],
)
def test_mistakes_in_blocks_are_refused(block: Any, words: str) -> None:
    with pytest.raises(pagewalk.WorkloadError, match=words):
        run(iter([block]))
    # The same in a later block, when the engine is at work.
    with pytest.raises(pagewalk.WorkloadError, match=words) as info:
        run(iter([pages(10), block]))
    assert info.value.result is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workload": 7}, "7 is no program"),
        ({"workload": []}, "empty list"),
        ({"workload": iter([pages(1)]), "size": "1GiB"}, "size"),
        ({"workload": iter([pages(1)]), "trace": "x.pwt"}, "trace"),
        ({"workload": iter([pages(1)]), "mappings": [(1, 4096)]}, "multiple of 4096"),
        ({"workload": iter([pages(1)]), "mappings": [(0, 1 << 57)]}, "2\\^56"),
        ({"workload": "gups", "mappings": [(0, 4096)]}, "mappings"),
    ],
)
def test_mistakes_in_arguments_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(pagewalk.UserError, match=words):
        run(**arguments)


def test_limits_hold_and_stop_an_endless_generator() -> None:
    def endless() -> Iterator[Array]:
        while True:
            yield pages(1000)

    result = run(endless(), warmup="10K", instructions="50K")
    assert 50_000 <= result["radix"]["instructions"] < 60_000


def requests(every: int, count: int) -> Iterator[pagewalk.Block]:
    """Blocks of which every so many operations end a request; none ends with the last block."""
    for first in range(0, count, 1000):
        number = first + np.arange(1000)
        yield pagewalk.Block(AT + 8 * number, request=number % every == every - 1, distance=0)


def test_a_program_says_where_its_requests_end() -> None:
    mapping = pagewalk.Mapping(AT, 64 * PAGE, populate=True)
    whole = run(requests(8, 20_000), mappings=[mapping])["radix"]
    assert whole["requests"] == 2500
    assert whole["instructions_per_request"] == 8
    assert whole["cycles_per_request"] == whole["cycles"] / 2500
    limits = {"skip_requests": 100, "warmup_requests": 200, "requests": 1000}
    part = run(requests(8, 20_000), mappings=[mapping], **limits)["radix"]
    assert part["requests"] == 1000
    assert part["instructions"] == 8000
    silent = run(pages(64), mappings=[mapping])["radix"]
    assert silent.get("requests") is None


def test_threads_end_requests_together() -> None:
    threads = [requests(8, 8000), requests(4, 8000)]
    mapping = pagewalk.Mapping(AT, 64 * PAGE, populate=True)
    result = run(threads, mappings=[mapping], settings={"cores": 2})
    assert result["radix"]["requests"] == 1000 + 2000


def test_prefetches_bring_the_lines_of_later_loads() -> None:
    def chain(prefetch: bool) -> Iterator[pagewalk.Block]:
        lines = AT + 4096 * np.random.default_rng(1).permutation(4096).astype(np.uint64)
        for first in range(0, 4000, 1000):
            at = lines[first : first + 1000]
            ahead = lines[first + 16 : first + 1016]
            both = np.stack([ahead, at], axis=1).ravel()
            marks = np.tile([prefetch, False], 1000)
            # Each load waits for the one before; a load in a prefetch's place for nothing.
            yield pagewalk.Block(
                both if prefetch else at,
                prefetch=marks if prefetch else False,
                distance=np.tile([0, 2], 1000) if prefetch else 1,
            )

    mapping = pagewalk.Mapping(AT, 4096 * PAGE, populate=True)
    without, with_ = (run(chain(p), mappings=[mapping])["radix"] for p in (False, True))
    assert with_["cycles"] * 4 < without["cycles"]
    counts = {s.name: s.value for s in with_.statistics if s.path == "core.0.software_prefetch"}
    assert counts["instructions"] == 4000
    assert counts["dropped_faults"] == counts["dropped_unknown"] == 0

    both = pagewalk.Block(pages(10), prefetch=True, store=True)
    with pytest.raises(pagewalk.WorkloadError, match="prefetch: an operation is a store, too"):
        run(iter([both]), mappings=[mapping])


def test_requests_that_come_late_are_refused() -> None:
    blocks = [pagewalk.Block(pages(10)), pagewalk.Block(pages(10), request=True)]
    with pytest.raises(pagewalk.WorkloadError, match="request: no block before has it"):
        run(iter(blocks))


def test_a_request_is_a_boolean() -> None:
    with pytest.raises(pagewalk.UserError, match="request: 0x2 is out of range; expected 0 to 0x1"):
        run(iter([pagewalk.Block(pages(10), request=2)]))
