"""Values of `--vary` and its like: names, lists, ranges, and names that step together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.studies import axes
from pagewalk.studies.point import Value
from pagewalk.view.quantities import exact_bytes

ENTRIES = "mmu.l2.main.entries"
WAYS = "mmu.l2.main.ways"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        (ENTRIES, "1024", [1024]),
        (ENTRIES, "512, 1024,4096", [512, 1024, 4096]),
        (ENTRIES, "512..16384*2", [512, 1024, 2048, 4096, 8192, 16384]),
        (ENTRIES, "512..16383*2", [512, 1024, 2048, 4096, 8192]),
        (ENTRIES, "0..10+2", [0, 2, 4, 6, 8, 10]),
        (ENTRIES, "1..4+1,100..400*2", [1, 2, 3, 4, 100, 200, 400]),
        (ENTRIES, "1..4*1.5", [1, 2, 3]),
        ("frequency_ghz", "0.1..0.4+0.1", [0.1, 0.2, 0.3, 0.4]),
        ("frequency_ghz", "1..4*2", [1.0, 2.0, 4.0]),
        ("mmu.perfect", "true,false", [True, False]),
        ("mmu.l2.main.replacement", '"lru",srrip', ["lru", "srrip"]),
        ("mmu.l2.main.page_sizes", '["4KB"],["4KB","2MB"]', ['["4KB"]', '["4KB","2MB"]']),
        ("placement", "{thp={}},{buddy={}}", ["{thp={}}", "{buddy={}}"]),
        ("size", "1GiB..16GiB*4", [1 << 30, 4 << 30, 16 << 30]),
        ("size", "1GiB..2GiB+512MiB", [1 << 30, 3 << 29, 2 << 30]),
        ("instructions", "1M..100M*10", [10**6, 10**7, 10**8]),
        ("seed", "1..3+1", [1, 2, 3]),
        ("threads", "1,2", [1, 2]),
        ("param.scale", "12..14+1", [12, 13, 14]),
        ("param.operations", "1K..100K*10", [1000, 10_000, 100_000]),
        ("param.arena", "4KiB..64KiB*4", [4096, 16384, 65536]),
        ("param.arena", "2MiB", [2 << 20]),
        ("param.graph", "kronecker,uniform", ["kronecker", "uniform"]),
        ("param.graph", "../a..b+c.el,./d", ["../a..b+c.el", "./d"]),
        ("param.first", "0,o2", ["0", "o2"]),
        ("param.first", f"{2**63 - 1}", [2**63 - 1]),
        ("param.first", f"{2**63}", [f"{2**63}"]),
        ("param.degree", "1,1.5", [1.0, 1.5]),
        ("design", "radix,thp[mmu.walkers=1,cores=2]", ["radix", "thp[mmu.walkers=1,cores=2]"]),
        ("mix", "gups:size=1GiB,bfs", ["gups:size=1GiB,bfs"]),
        ("mix", "[gups,bfs],[gups,gups]", ["gups,bfs", "gups,gups"]),
    ],
)
def test_a_text_is_values(name: str, text: str, found: list[Value]) -> None:
    values = axes.values(name, text, "--vary")
    assert values == found
    assert list(map(type, values)) == list(map(type, found))


@pytest.mark.parametrize(
    ("name", "listed", "found"),
    [
        (ENTRIES, [512, "1024"], [512, 1024]),
        ("frequency_ghz", [1, 2.5], [1.0, 2.5]),
        ("size", ["1GiB", 5], [1 << 30, 5]),
        ("placement", [{"thp": {}}, {"buddy": {}}], ['{ "thp" = {  } }', '{ "buddy" = {  } }']),
        ("mmu.l2.main.page_sizes", [["4KB"], ["4KB", "2MB"]], ['["4KB"]', '["4KB", "2MB"]']),
        ("param.converge", [True, False], ["yes", "no"]),
        ("mix", ["gups,bfs", "gups,gups"], ["gups,bfs", "gups,gups"]),
        (ENTRIES, 512, [512]),
    ],
)
def test_a_list_is_values(name: str, listed: object, found: list[Value]) -> None:
    assert axes.values(name, listed, "vary") == found


def test_a_table_is_read_again_as_it_was() -> None:
    tables: list[object] = [{"thp": {"mode": "always"}}, {"buddy": {}}]
    for value in tables:
        (text,) = axes.values("placement", [value], "vary")
        assert axes.setting(text) == value


@given(
    first=st.integers(1, 10**9), step=st.integers(1, 10**9), count=st.integers(1, 50),
    beyond=st.integers(0, 10**9),
)  # fmt: skip
def test_an_arithmetic_range_holds_its_ends(first: int, step: int, count: int, beyond: int) -> None:
    last = first + step * (count - 1)
    found = axes.values(ENTRIES, f"{first}..{last}+{step}", "--vary")
    assert found == list(range(first, last + 1, step))
    assert found[-1] == last
    longer = axes.values(ENTRIES, f"{first}..{last + beyond % step}+{step}", "--vary")
    assert longer == found


@given(first=st.integers(1, 1000), by=st.integers(2, 10), count=st.integers(1, 15))
def test_a_geometric_range_holds_its_ends(first: int, by: int, count: int) -> None:
    last = first * by ** (count - 1)
    found = axes.values("size", f"{exact_bytes(first)}..{exact_bytes(last)}*{by}", "--vary")
    assert found == [first * by**i for i in range(count)]
    assert axes.values("size", f"{first}..{last * by - 1}*{by}", "--vary") == found


@given(
    first=st.integers(0, 999), step=st.integers(1, 999), count=st.integers(1, 30),
    places=st.integers(1, 6),
)  # fmt: skip
def test_a_range_of_fractions_holds_its_last(
    first: int, step: int, count: int, places: int
) -> None:
    def written(number: int) -> str:
        return f"{number // 10**places}.{number % 10**places:0{places}}"

    text = f"{written(first)}..{written(first + step * (count - 1))}+{written(step)}"
    found = axes.values("frequency_ghz", text, "--vary")
    # Values have the form of the command line, so that conditions can compare with them.
    assert found == [float(written(first + step * i)) for i in range(count)]


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=30, unique=True))
def test_a_list_of_numbers_reads_back(numbers: list[int]) -> None:
    assert axes.values(ENTRIES, ",".join(map(str, numbers)), "--vary") == numbers
    assert axes.values("param.events", ",".join(map(str, numbers)), "--vary") == numbers


def test_names_step_together() -> None:
    axis = axes.written(f"{ENTRIES}=1024..4096*2; {WAYS} = 8,16,32")
    assert axis.names == (ENTRIES, WAYS)
    assert axis.steps == ((1024, 8), (2048, 16), (4096, 32))


def test_an_equals_sign_may_be_in_a_value() -> None:
    assert axes.written("design=radix,thp[mmu.walkers=1]").steps == (
        ("radix",),
        ("thp[mmu.walkers=1]",),
    )


def test_traces_by_their_names(tmp_path: Path) -> None:
    for name in ("b.pwt", "a.pwt", "c.txt", "d[1].pwt"):
        (tmp_path / name).touch()
    found = axes.values("trace", f"{tmp_path}/?.pwt", "--trace")
    assert found == [f"{tmp_path}/a.pwt", f"{tmp_path}/b.pwt"]
    # A file may have such letters in its name.
    assert axes.values("trace", f"{tmp_path}/d[1].pwt", "--trace") == [f"{tmp_path}/d[1].pwt"]
    with pytest.raises(UserError, match=r"^--trace: trace: there is no file '.*x\*'; check"):
        axes.values("trace", f"{tmp_path}/x*", "--trace")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size", "--vary: 'size' is not understood; expected NAME=VALUES, as size=1GiB,4GiB"),
        ("=3", "--vary: '=3' is not understood; expected NAME=VALUES, as size=1GiB,4GiB"),
        ("size=", "--vary: size: has no value; expected one or more, as size=A,B"),
        (
            "mmu.wlkers=1",
            "--vary: mmu.wlkers: is nothing that a study can vary; expected design, machine, "
            "workload, size, threads, param.NAME, instructions and other limits, or a "
            "configuration key; did you mean 'mmu.walkers'?",
        ),
        (
            "param.scal=1",
            "--vary: param.scal: is no parameter of any program; did you mean 'param.scale'?; "
            "'pagewalk explain' with a program's name lists its own",
        ),
        (f"{ENTRIES}=x", f"--vary: {ENTRIES}: 'x' is not possible; expected a whole number"),
        (f"{ENTRIES}=1.5", f"--vary: {ENTRIES}: '1.5' is not possible; expected a whole number"),
        (f"{ENTRIES}=true", f"--vary: {ENTRIES}: 'true' is not possible; expected a whole number"),
        (
            f"{ENTRIES}={2**63}",
            f"--vary: {ENTRIES}: '9223372036854775808' is not possible; expected a whole number",
        ),
        ("mmu.perfect=1", "--vary: mmu.perfect: '1' is not possible; expected true or false"),
        (
            "mmu.l2.main.replacement=lruu",
            "--vary: mmu.l2.main.replacement: 'lruu' is not possible; expected one of "
            '"lru", "lfu", "srrip", "random"; did you mean \'lru\'?',
        ),
        (
            f"{ENTRIES}=1..8",
            f"--vary: {ENTRIES}: '1..8' is no range; expected FIRST..LAST*FACTOR, as "
            "512..16384*2, or FIRST..LAST+STEP, as 0..10+2",
        ),
        *(
            (
                f"{ENTRIES}={text}",
                f"--vary: {ENTRIES}: '{text}' is not possible; expected FIRST..LAST*FACTOR with "
                "0 < FIRST <= LAST and a FACTOR above 1, as 512..16384*2",
            )
            for text in ("8..1*2", "0..8*2", "1..8*1", "1..8*x")
        ),
        *(
            (
                f"{ENTRIES}={text}",
                f"--vary: {ENTRIES}: '{text}' is not possible; expected FIRST..LAST+STEP with "
                "FIRST <= LAST and a STEP above 0, as 0..10+2",
            )
            for text in ("8..1+2", "1..8+0")
        ),
        (
            f"{ENTRIES}=0..1000000000+1",
            f"--vary: {ENTRIES}: '0..1000000000+1' has more than 100000 values; expected fewer",
        ),
        (f"{ENTRIES}=2,1,2", f"--vary: {ENTRIES}: has 2 twice; expected each value once"),
        (
            f"{ENTRIES}=1..3+1,2",
            f"--vary: {ENTRIES}: has 2 twice; expected each value once",
        ),
        ("threads=0", "--vary: threads: 0 is not possible; expected 1 or more"),
        ("instructions=0", "--vary: instructions: 0 is not possible; expected 1 or more"),
        (
            "size=many",
            "--vary: size: 'many' is not understood; expected a size such as 64MiB, 4GiB or 1TiB",
        ),
        (
            f"{ENTRIES}=1,2;{WAYS}=1",
            "--vary: what steps together needs as many values each, and there are 2 of "
            f"{ENTRIES}, 1 of {WAYS}; expected equally many",
        ),
        (
            f"{ENTRIES}=1,2;{ENTRIES}=1,2",
            "--vary: the same name stands there twice; expected each once",
        ),
    ],
)
def test_a_mistake_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        axes.written(text)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("where", "name", "said"),
    [
        ("size", "size", "size: "),
        ("seeds", "seed", "seeds: "),
        ("designs", "design", "designs: "),
        ("vary", ENTRIES, f"vary.{ENTRIES}: "),
        ("params", "param.scale", "params.scale: "),
        ("--set", ENTRIES, f"--set: {ENTRIES}: "),
    ],
)
def test_a_mistake_says_where_it_stands(where: str, name: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        axes.values(name, [], where)
    assert str(error.value).startswith(said)


def test_every_key_can_be_an_axis() -> None:
    for key in native.config_keys():
        name = key["path"].replace("<name>", "main")
        column = axes.column(name)
        assert (column.name, column.unit) == (name, key["unit"])
        expected = {"a whole number": int, "a number": float, "true or false": bool}
        assert column.kind is expected.get(key["expected"], str), name
        assert column.meaning


def test_every_parameter_can_be_an_axis() -> None:
    for program in native.workloads():
        for parameter in program["params"]:
            name = f"param.{parameter['name']}"
            assert axes.column(name).name == name
            assert parameter["name"] in axes.parameters(program["name"])


def test_defaults_of_programs_take_some_of_the_host() -> None:
    for program in native.workloads():
        memory, start = axes.host(program["name"], axes.default_size(program["name"]))
        assert 0 < memory < 64 << 30
        assert 0 < start < 600
        more, later = axes.host(program["name"], 2 * axes.default_size(program["name"]))
        assert more > memory
        assert later >= start


def test_programs_are_sized_by_their_parameters() -> None:
    small, large = (axes.sized("bfs", {"scale": scale}) for scale in ("20", "24"))
    assert large == 16 * small
    assert axes.sized("bfs", {"vertices": str(2**20)}) == small
    assert axes.sized("bfs", {"scale": "20", "degree": "32"}) > small
    assert axes.sized("kv-hash", {"keys": "2000"}) == 2 * axes.sized("kv-hash", {"keys": "1000"})
    # A value that only the engine refuses is accepted here.
    assert axes.sized("bfs", {"scale": "x"}) == axes.default_size("bfs")
    assert axes.sized("gups", {}) == axes.default_size("gups")
