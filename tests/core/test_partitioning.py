"""Assignment of partitions to workers: each has one owner, and shares are equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.core.partitioning import assigned_partitions

workers = st.sets(st.text("abcdef0123456789", min_size=1, max_size=8), min_size=1, max_size=9)


@given(workers.map(sorted), st.integers(1, 70))
def test_partitions_are_shared_evenly_and_each_has_one_owner(
    living: list[str], partitions: int
) -> None:
    shares = [assigned_partitions(worker, living, partitions) for worker in living]
    assert sorted(p for share in shares for p in share) == list(range(partitions))
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_most_partitions_stay_where_they_are_when_a_worker_joins() -> None:
    living = [f"host-{number}" for number in range(4)]
    before = {p: worker for worker in living for p in assigned_partitions(worker, living, 1_000)}
    more = sorted([*living, "host-9"])
    after = {p: worker for worker in more for p in assigned_partitions(worker, more, 1_000)}
    moved = sum(before[p] != after[p] for p in range(1_000))
    assert 200 <= moved < 300


def test_a_worker_that_is_not_live_gets_no_partitions() -> None:
    assert assigned_partitions("a", ["b"], 5) == frozenset()
    assert assigned_partitions("a", [], 5) == frozenset()
