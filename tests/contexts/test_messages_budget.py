"""The budget of messages: exact, whole groups, required items; by many random contexts."""

from __future__ import annotations

from collections import Counter

from tests.contexts.random_messages import check

CONTEXTS = 800


def test_random_contexts_stay_within_their_budget_with_whole_groups() -> None:
    endings = Counter(check(seed) for seed in range(CONTEXTS))
    assert min(endings[ending] for ending in ("fits", "some", "refused")) > CONTEXTS // 20
