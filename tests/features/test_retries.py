"""The retry budget of a partition, and the pauses between attempts."""

from __future__ import annotations

import pytest

from headwater.errors import ContextFailedError, FunctionRaisedError, UnknownNameError
from headwater.features.event_handlers import RetryBudget, is_permanent

SECOND = 1_000_000
NOON = 1_768_478_400 * SECOND


def test_a_partition_waits_no_longer_than_its_budget_at_once() -> None:
    budget = RetryBudget(5 * SECOND)
    assert budget.spend(3 * SECOND, NOON) == 3 * SECOND
    assert budget.spend(3 * SECOND, NOON + 3 * SECOND) == 2 * SECOND
    assert budget.spend(3 * SECOND, NOON + 5 * SECOND) == 0


def test_time_without_waiting_refills_the_budget_up_to_its_maximum() -> None:
    budget = RetryBudget(5 * SECOND)
    assert budget.spend(5 * SECOND, NOON) == 5 * SECOND
    assert budget.spend(3 * SECOND, NOON + 6 * SECOND) == 1 * SECOND
    assert budget.spend(9 * SECOND, NOON + 3_600 * SECOND) == 5 * SECOND


def test_entities_that_wait_at_the_same_time_use_the_budget_once() -> None:
    budget = RetryBudget(5 * SECOND)
    for _ in range(64):
        assert budget.spend(4 * SECOND, NOON) == 4 * SECOND
    assert budget.spend(4 * SECOND, NOON + 2 * SECOND) == 3 * SECOND
    assert budget.spend(4 * SECOND, NOON + 4 * SECOND) == 1 * SECOND


def test_a_partition_that_always_retries_waits_at_most_half_of_the_time() -> None:
    budget, now, waited = RetryBudget(5 * SECOND), NOON, 0
    while now < NOON + 1_000 * SECOND:
        pause = budget.spend(SECOND, now)
        waited += pause
        now += pause + SECOND // 100
    assert waited <= (now - NOON) // 2 + 5 * SECOND


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownNameError("feature", "pric", ["price"]), True),
        (FunctionRaisedError("f", "u1", UnknownNameError("feature", "pric", [])), True),
        (ContextFailedError("c", UnknownNameError("feature", "pric", [])), True),
        (FunctionRaisedError("f", "u1", ConnectionError()), False),
        (KeyError("amount"), False),
    ],
)
def test_only_what_the_store_refuses_is_permanent(error: Exception, expected: bool) -> None:
    assert is_permanent(error) is expected
