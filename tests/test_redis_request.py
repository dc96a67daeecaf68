"""`kv-redis` executes whole GETs of Redis: counts beside those of the real server."""

import json
from pathlib import Path

import pytest

import pagewalk
from invoking import Invoke

ROOT = Path(__file__).parent.parent
KEPT = json.loads((ROOT / "validation" / "redis_request.json").read_text())
SERVER = "5.0.7"
OUTSIDE = ("parsing", "loop")
REQUESTS = 2000


def counts(value: int, request: str) -> dict[str, float]:
    """Instructions, loads and stores a GET."""
    result = pagewalk.run(
        "radix",
        machine="stlt-table3",
        workload="kv-redis",
        params={"keys": 20_000, "value": value, "request": request},
        warmup_requests=100,
        requests=REQUESTS,
        progress=False,
    )
    [design] = result.designs
    stats = {s.name: s.value for s in design.statistics if s.path == "core.0"}
    return {name: stats[name] / REQUESTS for name in ("instructions", "loads", "stores")}


@pytest.mark.parametrize("value", [64, 128, 256])
def test_a_whole_request_costs_what_the_server_s_does(value: int) -> None:
    """Everything from the parsed command to the reply, within 10 %."""
    found = counts(value, "whole")
    parts = KEPT[SERVER][str(value)]
    for name, count in found.items():
        real = sum(part[name] for title, part in parts.items() if title not in OUTSIDE)
        assert count == pytest.approx(real, rel=0.1), name


def test_the_lookup_alone_costs_what_the_server_s_search_does() -> None:
    """Without the request around it, a GET takes the key, searches and copies the value."""
    found = counts(64, "lookup")
    search = KEPT[SERVER]["64"]["search"]
    assert search["instructions"] < found["instructions"] < 1.3 * search["instructions"]


def test_all_parts_are_the_whole_request() -> None:
    """The parts of the recording leave no instruction of it out."""
    parts = "search+key+reply+call+checks+table+reset+arguments"
    assert counts(64, parts) == counts(64, "whole")


@pytest.mark.parametrize(("part", "title"), [("reply", "reply"), ("table", "command table")])
def test_a_part_costs_what_the_server_s_does(part: str, title: str) -> None:
    """A part that is added to the search, within 10 %."""
    without, found = counts(64, "search"), counts(64, f"search+{part}")
    for name, real in KEPT[SERVER]["64"][title].items():
        if name in found:
            assert found[name] - without[name] == pytest.approx(real, rel=0.1), name


def test_an_unknown_part_is_named_with_the_nearest(invoke: Invoke) -> None:
    """A misspelt part is an error before anything runs."""
    run = ("run", "--workload", "kv-redis", "--requests", "100")
    status, _, error = invoke(*run, "--param", "request=search+replies")
    assert status == 2
    assert "did you mean `reply`?" in error


def test_only_redis_has_whole_requests(invoke: Invoke) -> None:
    """A container refuses them, and so does a GET that leaves its value unread."""
    run = ("run", "--requests", "100", "--param", "keys=1000", "--param", "request=whole")
    status, _, container = invoke(*run, "--workload", "kv-map")
    assert status == 2
    assert "only kv-redis is a server; take request=lookup" in container
    status, _, unread = invoke(*run, "--workload", "kv-redis", "--param", "reply=none")
    assert status == 2
    assert "a whole request replies; leave out reply=none" in unread


def test_stlt_replaces_the_search_of_a_whole_request() -> None:
    """The shortcut saves instructions of the search, and none of the rest."""
    params = {"keys": 2000, "distribution": "uniform", "earlier": 20_000}
    spared = []
    for request in ("whole", "lookup"):
        with_table, without = (
            pagewalk.run(
                design,
                machine="stlt-table3",
                workload="kv-redis",
                params={**params, "request": request, "shortcut": shortcut},
                warmup_requests=100,
                requests=1000,
                progress=False,
            ).designs[0]["instructions_per_request"]
            for design, shortcut in (("stlt", "stlt"), ("radix", "none"))
        )
        spared.append(without - with_table)
    assert spared[0] == pytest.approx(spared[1], rel=0.15)
    assert spared[0] > 50
