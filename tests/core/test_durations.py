"""Durations: text to milliseconds and milliseconds to words."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.durations import format_duration, parse_duration, to_age, to_timedelta
from headwater.errors import DurationError

UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("500 ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1.5h", 5_400_000),
        ("1d", 86_400_000),
        (" 2s ", 2_000),
        ("0.1s", 100),
        ("0.6ms", 1),
        ("1.001s", 1_001),
    ],
)
def test_a_number_and_a_unit_is_a_duration(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "5", "m", "5 minutes", "5M", "1h 30m", "-5m", "+5m", "1e3s", ".5s", "5.s"),
        *("1,5h", "5  m", "5\nm", "\u0665m", "1_000ms", "nan s", "inf d", "9999999999999999d"),
        *("0s", "0.0h", "0.5ms", "0.00000001s"),
        *(5, 5.0, None, True, b"5m", ["5m"]),
    ],
)
def test_anything_else_is_refused_and_the_value_is_named(value: object) -> None:
    with pytest.raises(DurationError) as caught:
        parse_duration(value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)
    assert "'1.5h'" in str(caught.value)
    assert str(caught.value).endswith("the least is 1ms")


@given(st.integers(1, 10**6), st.sampled_from(sorted(UNITS)))
def test_whole_numbers_are_exact_in_every_unit(count: int, unit: str) -> None:
    assert parse_duration(f"{count}{unit}") == count * UNITS[unit]


@given(st.decimals(1, 10**6, places=4), st.sampled_from(sorted(UNITS)))
def test_decimals_are_rounded_to_the_nearest_millisecond(count: Decimal, unit: str) -> None:
    exact = Fraction(count) * UNITS[unit]
    assert abs(parse_duration(f"{count:f}{unit}") - exact) <= Fraction(1, 2)


@given(st.integers(1, 59_999))
def test_below_a_minute_words_read_back_exactly(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.integers(60_000, 10**12))
def test_from_a_minute_on_words_say_the_two_largest_units(milliseconds: int) -> None:
    words = format_duration(milliseconds).split(" ")
    rest = milliseconds - sum(map(parse_duration, words))
    assert 1 <= len(words) <= 2
    assert 0 <= rest < UNITS[words[-1][-1] if len(words) == 2 else "s"]


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (0, "0ms"),
        (40, "40ms"),
        (2_500, "2.5s"),
        (59_999, "59.999s"),
        (60_000, "1m"),
        (5_400_000, "1h 30m"),
        (86_400_000, "1d"),
        (90_061_000, "1d 1h"),
        (-2_500, "-2.5s"),
    ],
)
def test_words_are_short(milliseconds: int, words: str) -> None:
    assert format_duration(milliseconds) == words


def test_a_timedelta_stands_for_itself() -> None:
    assert to_timedelta(timedelta(seconds=3)) == timedelta(seconds=3)
    assert to_timedelta("3s") == timedelta(seconds=3)


def test_the_longest_duration_is_a_timedelta() -> None:
    assert to_timedelta("999999999d") == timedelta(days=999_999_999)


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1), "0s", "0.4ms"])
def test_a_span_of_time_is_positive(span: timedelta | str) -> None:
    with pytest.raises(DurationError):
        to_timedelta(span)


@pytest.mark.parametrize(
    ("text", "days"), [("400d", 400), ("8w", 56), ("2y", 730), ("1.5 y", 547.5), ("36h", 1.5)]
)
def test_an_age_may_also_be_in_weeks_and_years(text: str, days: float) -> None:
    assert to_age(text) == to_age(timedelta(days=days)) == timedelta(days=days)


@pytest.mark.parametrize("value", ["2Y", "1mo", "0d", "-1y", "1001y", timedelta(0)])
def test_an_age_that_is_no_time_ago_is_refused(value: str | timedelta) -> None:
    with pytest.raises(DurationError, match="ms, s, m, h, d, w, y"):
        to_age(value)


def test_other_durations_have_no_weeks_and_years() -> None:
    for text in ("1w", "1y"):
        with pytest.raises(DurationError, match="ms, s, m, h, d, as in"):
            to_timedelta(text)
