import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewalk.errors import UserError
from pagewalk.view.quantities import (
    count,
    duration,
    exact_bytes,
    parse_bytes,
    parse_count,
    significant,
    size,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("250000", 250_000),
        ("1_000_000", 1_000_000),
        ("1,000,000", 1_000_000),
        ("100M", 100_000_000),
        ("100m", 100_000_000),
        ("1.5G", 1_500_000_000),
        ("2B", 2_000_000_000),
        (" 3 K ", 3000),
    ],
)
def test_a_count_is_in_powers_of_ten(text: str, value: int) -> None:
    assert parse_count(text, "--instructions") == value


@pytest.mark.parametrize("text", ["", "M", "-1", "1e6", "1.5", "ten", "1Q", "0x10", "1..2", "1G1"])
def test_an_invalid_count_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"--instructions.*expected a count such as 250000"):
        parse_count(text, "--instructions")


def test_a_count_that_no_register_holds_is_refused() -> None:
    with pytest.raises(UserError, match="too large"):
        parse_count("10000000T", "--instructions")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4GiB", 4 << 30),
        ("4G", 4 << 30),
        ("4gib", 4 << 30),
        ("4GB", 4 * 2**30),
        ("1.5MiB", 3 << 19),
        ("100", 100),
        ("100B", 100),
        ("1T", 1 << 40),
    ],
)
def test_a_size_is_in_powers_of_two_unless_it_says_otherwise(text: str, value: int) -> None:
    assert parse_bytes(text, "--size") == value


@pytest.mark.parametrize("text", ["0", "0GiB", "GiB", "4XB", "-4G", "4 G i B"])
def test_an_invalid_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="4GiB"):
        parse_bytes(text, "--size")


@given(st.integers(min_value=1, max_value=2**62))
def test_an_exact_size_reads_back(value: int) -> None:
    assert parse_bytes(exact_bytes(value), "--size") == value


@given(st.floats(min_value=0.001, max_value=1e15))
def test_a_printed_count_is_within_its_last_digit(value: float) -> None:
    number, _, unit = count(value).partition(" ")
    printed = float(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}[unit]
    assert printed == pytest.approx(value, rel=0.006)
    assert len(number) <= (6 if value >= 1 else 8)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (812, "812"), (43_100, "43.1 K"), (999_960, "1.00 M"), (2.5e9, "2.50 G")],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(9.996, "10.0"), (0.0123456, "0.0123"), (0.0, "0"), (1234.5, "1234")]
)
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_sizes_and_times_read_well() -> None:
    assert [size(512), size(2_105_344), size(1 << 40)] == ["512 B", "2.01 MiB", "1.00 TiB"]
    assert [duration(s) for s in (0.44, 12, 185, 3723)] == ["0.4 s", "12 s", "3:05", "1:02:03"]
