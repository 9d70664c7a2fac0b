"""Recorded contexts are counted over time, by the same filters that lists have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from headwater.contexts.recorded import histogram as module
from headwater.contexts.recorded.histogram import edges_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.contexts import ContextHistogram
from headwater.ports import RecordLog
from tests.contexts.recorded.shop import Shop
from tests.stored import record

START = datetime(2026, 1, 15, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def log_of(shop: Shop) -> RecordLog:
    return (await runtime_of(shop.store).open()).backends.records


async def stored(shop: Shop) -> None:
    """Store ten contexts, one each hour; the third ones are degraded."""
    log = await log_of(shop)
    for number in range(10):
        status = "degraded" if number % 3 == 2 else "guaranteed"
        kept = record(
            at=START + number * HOUR,
            name=("support", "sales")[number % 2],
            freshness_status=status,
        )
        await log.append(kept, [])


def counts(found: ContextHistogram) -> list[int]:
    return [bucket.contexts for bucket in found.buckets]


@pytest.mark.both_environments
async def test_contexts_are_counted_by_freshness_in_round_intervals(shop: Shop) -> None:
    await stored(shop)
    found = await shop.store.records.histogram(buckets=5)
    assert (found.start, found.end) == (START, START + 10 * HOUR)
    assert (found.seconds, found.contexts, found.counted_from) == (7_200.0, 10, None)
    assert counts(found) == [2] * 5
    assert [each.start for each in found.buckets] == [START + 2 * n * HOUR for n in range(5)]
    assert found.buckets[1].freshness == {"guaranteed": 1, "degraded": 1, "refused": 0}

    async def hours(**filters: str) -> list[int]:
        span = {"start": START, "end": START + 4 * HOUR}
        return counts(await shop.store.records.histogram(buckets=4, **span, **filters))  # type: ignore[arg-type]

    assert await hours() == [1, 1, 1, 1]
    assert await hours(name="sales") == [0, 1, 0, 1]
    assert await hours(name="support", freshness_status="degraded") == [0, 0, 1, 0]
    assert await hours(caller="web") == [0] * 4
    assert repr(found) == "<ContextHistogram contexts=10, buckets=5>"


@pytest.mark.both_environments
async def test_contexts_with_a_provenance_are_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.spends("u1", 5)
    for _ in range(3):
        await shop.asks()
    verbs = shop.store.records
    found = await verbs.histogram(feature="total", entity_id="u1")
    assert found.contexts == 3
    assert sum(sum((each.freshness or {}).values()) for each in found.buckets) == 3
    assert (await verbs.histogram(entity_id="u2")).contexts == 0
    assert (await verbs.histogram(feature="total", name="other")).contexts == 0
    both = await verbs.histogram(feature="total", entity="User", entity_id="u1", name="support")
    assert both.contexts == 3
    monkeypatch.setattr(module, "_MOST_READ", 2)
    many = await verbs.histogram(feature="total")
    assert many.contexts == 3
    assert all(each.freshness is None for each in many.buckets)


@pytest.mark.both_environments
async def test_the_newest_are_counted_if_there_are_too_many(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(shop)
    monkeypatch.setattr(module, "_MOST_COUNTED", 3)
    monkeypatch.setattr(module, "_INTERVALS_AT_ONCE", 2)
    found = await shop.store.records.histogram(buckets=10)
    assert found.start == START
    assert found.counted_from == found.buckets[0].start == START + 6 * HOUR
    assert counts(found) == [1, 1, 1, 1]


async def test_contexts_with_a_prefix_are_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(shop)
    listed = (await shop.store.list_contexts()).contexts
    one = await shop.store.records.histogram(prefix=listed[4].record_hash[:20])
    assert (one.contexts, counts(one)) == (1, [1])
    same = listed[0].context_id[:4]
    assert (await shop.store.records.histogram(prefix=same)).contexts == 10
    monkeypatch.setattr(module, "_MOST_READ", 4)
    cut = await shop.store.records.histogram(prefix=same, start=START, end=START + 10 * HOUR)
    assert cut.contexts <= 4
    assert cut.counted_from is not None


@pytest.mark.both_environments
async def test_the_newest_bucket_may_have_more_contexts_than_are_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored(shop)
    prefix = (await shop.store.list_contexts()).contexts[0].context_id[:4]
    span = {"start": START - 10 * HOUR, "end": START + 10 * HOUR}
    monkeypatch.setattr(module, "_MOST_READ", 4)
    for buckets, expected in ((1, [4]), (2, [4])):
        read = await shop.store.records.histogram(buckets=buckets, prefix=prefix, **span)  # type: ignore[arg-type]
        assert counts(read) == expected
        assert read.counted_from is not None
        assert START + 5 * HOUR < read.counted_from <= START + 6 * HOUR
    monkeypatch.setattr(module, "_MOST_COUNTED", 3)
    counted = await shop.store.records.histogram(buckets=1, **span)  # type: ignore[arg-type]
    assert counted.contexts < 10
    assert counted.counted_from == counted.end


async def test_without_contexts_there_are_no_buckets(shop: Shop) -> None:
    found = await shop.store.records.histogram()
    assert (found.start, found.contexts, found.buckets) == (None, 0, [])
    found = await shop.store.records.histogram(start=START, end=START + HOUR, buckets=4)
    assert counts(found) == [0] * 4
    found = await shop.store.records.histogram(start=START, end=START)
    assert found.buckets == []


@pytest.mark.parametrize("buckets", [0, 501, True, 1.5])
async def test_the_number_of_buckets_is_checked(shop: Shop, buckets: int) -> None:
    with pytest.raises(InvalidInputError, match="give a number from 1 to 500"):
        await shop.store.records.histogram(buckets=buckets)


@pytest.mark.parametrize("days", [0, 0.00001, 0.3, 1, 29, 400, 90_000, 3_000_000])
@pytest.mark.parametrize("buckets", [1, 7, 60, 500])
def test_there_are_never_more_buckets_than_wanted(days: float, buckets: int) -> None:
    first = datetime(2, 1, 1, 3, 4, 5, tzinfo=UTC) if days > 400 else START
    last = first + timedelta(days=days)
    edges = edges_of((first, last), buckets)
    assert 2 <= len(edges) <= buckets + 1
    assert edges[0] <= first <= last < edges[-1]
    assert len({b - a for a, b in pairwise(edges)}) == 1
