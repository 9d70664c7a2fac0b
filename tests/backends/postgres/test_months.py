"""Calendar months, the ranges of the partitions in Postgres."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from headwater.backends.postgres.partition_tables import Month, month_of


def test_a_month_has_a_name_and_a_first_moment() -> None:
    month = month_of(datetime(2026, 3, 31, 23, 59, tzinfo=UTC))
    assert (month.name, month.start) == ("2026_03", "'2026-03-01 00:00:00+00'")


def test_months_go_on_after_december() -> None:
    assert [Month(2026, 11).later(n).name for n in range(4)] == [
        "2026_11",
        "2026_12",
        "2027_01",
        "2027_02",
    ]


@given(st.integers(1, 9000), st.integers(1, 12), st.integers(0, 500), st.integers(0, 500))
def test_later_adds_up_and_keeps_the_order(year: int, number: int, a: int, b: int) -> None:
    month = Month(year, number)
    assert month.later(a).later(b) == month.later(a + b)
    assert (month.later(a) < month.later(b)) == (a < b)
    assert (month.later(a).name < month.later(b).name) == (a < b)
