"""Samples: determined by a seed, proportional to strata."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from headwater.contexts.evaluation.sampling import Drawn, Sample, shares

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
CONTEXTS = [Drawn(NOON + timedelta(seconds=at), f"context-{at:04}") for at in range(1_000)]


def drawn(contexts: list[Drawn], size: int, seed: int) -> list[Drawn]:
    sample = Sample(seed, size)
    for context in contexts:
        sample.add("", context)
    return sample.contexts()


def test_a_sample_does_not_depend_on_the_order() -> None:
    assert drawn(CONTEXTS, 50, 7) == drawn(CONTEXTS[::-1], 50, 7)
    assert drawn(CONTEXTS, 50, 7) == sorted(drawn(CONTEXTS, 50, 7))
    assert drawn(CONTEXTS, 50, 7) != drawn(CONTEXTS, 50, 8)


def test_a_larger_sample_has_the_smaller_one() -> None:
    assert set(drawn(CONTEXTS, 50, 7)) < set(drawn(CONTEXTS, 60, 7))
    assert drawn(CONTEXTS, 5_000, 7) == CONTEXTS


def test_a_sample_is_spread_over_all_contexts() -> None:
    halves = [context < CONTEXTS[500] for context in drawn(CONTEXTS, 400, 7)]
    assert 160 < sum(halves) < 240


@given(
    st.dictionaries(st.text(max_size=3), st.integers(1, 500), min_size=1, max_size=20),
    st.integers(1, 300),
)
def test_each_stratum_gets_its_share_and_at_least_one(sizes: dict[str, int], sample: int) -> None:
    given = shares(sizes, sample)
    if given is None:
        assert len(sizes) > sample
        return
    total = sum(sizes.values())
    assert sum(given.values()) == min(sample, total)
    for stratum, size in sizes.items():
        exact = size * sample / total
        assert 1 <= given[stratum] <= size
        # Strata that would get less than one take it from the others.
        assert min(size, exact) - len(sizes) <= given[stratum] <= max(1, exact + 1)
