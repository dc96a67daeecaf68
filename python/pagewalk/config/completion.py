"""Shell completion of partly written words of the command line.

Each function gets the word so far and gives words that begin like it, with a line on each. They run
at a press of a key, so nothing heavy is loaded here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from typer import Context

from pagewalk import native
from pagewalk.config import machines as users_machines
from pagewalk.config import options, source
from pagewalk.config.config import listed, variant
from pagewalk.errors import PagewalkError

if TYPE_CHECKING:
    from pagewalk.engine_types import Shipped

Words = list[tuple[str, str]]


def design(incomplete: str) -> Words:
    """A shipped design, or a file."""
    return _named(native.designs(), incomplete)


def designs(incomplete: str) -> Words:
    """Shipped designs with commas between them, each once."""
    return _each_once(native.designs(), incomplete)


def machine(incomplete: str) -> Words:
    """Shipped and the user's machines with commas between them, each once, or a file."""
    return _each_once([*native.machines(), *users_machines.listed()], incomplete)


def workload(incomplete: str) -> Words:
    """A built-in program."""
    return _begun(((p["name"], p["description"]) for p in native.workloads()), incomplete)


def paper(incomplete: str) -> Words:
    """A shipped paper."""
    return _begun(((name, "") for name in native.topics().get("paper", [])), incomplete)


def mix(incomplete: str) -> Words:
    """Built-in programs with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    return [(f"{before}{comma}{name}", about) for name, about in workload(last)]


def param(ctx: Context, incomplete: str) -> Words:
    """A parameter of the built-in program that stands on the command line; of any, without one."""
    chosen = ctx.params.get("workload")
    return _begun(
        (
            (f"{parameter['name']}=", parameter["meaning"])
            for program in native.workloads()
            if chosen in (None, program["name"])
            for parameter in program["params"]
        ),
        incomplete,
    )


def setting(ctx: Context, incomplete: str) -> Words:
    """A configuration key, for one design or machine with its name before it.

    Names in a key are the machine's own, of several the first one's.
    """
    given = ctx.params
    of_one, colon, _ = incomplete.rpartition(":")
    machines = listed(str(given.get("machine") or "")) or [options.DEFAULT_MACHINE]
    designs = listed(str(given.get("design") or given.get("designs") or "")) or [
        source.DEFAULT_DESIGN
    ]
    if of_one in (*machines, *(entry["name"] for entry in native.machines())):
        machines = [of_one]
    elif of_one:
        designs = [of_one]
    try:
        config = native.resolve(users_machines.found(machines[0]), variant(designs[0])[0])["config"]
    except PagewalkError:
        # The command reports a misspelt name when it runs; completion prints no errors.
        return []
    there = set(_paths(config))
    found: dict[str, str] = {}
    for known in native.config_keys():
        if known["expected"] == "a table" or known["expected"].startswith("one of ["):
            continue
        if "<name>" not in known["path"]:
            found[known["path"]] = known["text"]
            continue
        pattern = re.escape(known["path"]).replace("<name>", "[^.]+")
        found.update((path, known["text"]) for path in there if re.fullmatch(pattern, path))
    return _begun(((f"{of_one}{colon}{path}=", text) for path, text in found.items()), incomplete)


def explained(incomplete: str) -> Words:
    """A word that can be explained; counters by the name that results have of them."""
    # A shell breaks words at blanks, and none matters to `explain`.
    words = {
        name.replace(" ", "_"): kind for kind, names in native.topics().items() for name in names
    }
    if not any(word.startswith(incomplete) for word in words):
        # Counters take a machine to find.
        words |= {s["name"]: s["text"] for s in native.statistics()["statistics"]}
    return _begun(words.items(), incomplete)


def _paths(config: Mapping[str, Any], path: str = "") -> Iterable[str]:
    for key, value in config.items():
        here = f"{path}.{key}" if path else key
        yield here
        if isinstance(value, dict):
            yield from _paths(value, here)


def _each_once(entries: Iterable[Shipped], incomplete: str) -> Words:
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    offered = [entry for entry in entries if entry["name"] not in given]
    return [(f"{before}{comma}{name}", about) for name, about in _named(offered, last)]


def _named(entries: Iterable[Shipped], incomplete: str) -> Words:
    return _begun(((e["name"], e["description"]) for e in entries), incomplete)


def _begun(words: Iterable[tuple[str, str]], incomplete: str) -> Words:
    return [(word, about) for word, about in words if word.startswith(incomplete)]
