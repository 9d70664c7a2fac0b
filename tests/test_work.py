"""`make check` refuses an operation that takes more steps than `counts.toml` says."""

import pytest

from bench.production import new_store
from dev.work.__main__ import compared, differences, kept, text_of

COUNTS = {"read": {"calls": 100.0, "reads": 4.0}}


def with_calls(number: float) -> dict[str, dict[str, float]]:
    return {"read": {**COUNTS["read"], "calls": number}}


def test_counts_that_chance_explains_are_accepted() -> None:
    assert differences(COUNTS, with_calls(108)) == differences(COUNTS, with_calls(75)) == []


def test_an_operation_with_more_steps_is_refused() -> None:
    (line,) = differences(COUNTS, with_calls(110))
    assert line.startswith("read: 110 calls instead of 100.0: take steps away, or make work A")


def test_a_gain_has_to_be_kept() -> None:
    (line,) = differences(COUNTS, with_calls(70))
    assert line == "read: 70 calls instead of 100.0: keep the gain: make work ARGS=--update"


def test_an_operation_that_the_file_lacks_is_refused() -> None:
    lines = differences({}, COUNTS)
    assert [line.split(" are not")[0] for line in lines] == ["read: 100.0 calls", "read: 4.0 reads"]


@pytest.mark.timeout(300)
def test_no_operation_of_the_embedded_store_takes_more_steps() -> None:
    now, differing = compared(kept()["embedded"])
    assert differing == [], text_of({"embedded": now})


@pytest.mark.timeout(300)
def test_no_operation_on_servers_takes_more_steps(redis_url: str, postgres_url: str) -> None:
    now, differing = compared(kept()["servers"], new_store(postgres_url, redis_url))
    assert differing == [], text_of({"servers": now})
