"""Conformance tests of the lists and searches of the ``RecordLog`` port."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

from conformance.records import (
    UNSTORABLE,
    append,
    context_id,
    newest_first,
    record,
    summary,
)
from conformance.suite import START, Opened, Suite, after
from headwater.errors import InvalidInputError
from headwater.model.contexts import RecordSummary
from headwater.ports import RecordQuery

_MICROSECOND = timedelta(microseconds=1)


class RecordListsConformance(Suite):
    """The records of all contexts, listed by time, filtered, found by key and counted."""

    async def test_records_are_listed_from_newest_to_oldest(self, store: Opened) -> None:
        kept = [record(at=after(number // 3 / 1_000_000)) for number in range(12)]
        # After the clock was set back, an id can be later than its record.
        kept.append(record(new_id=context_id(after(1_000)), at=after(-1)))
        await append(store, *kept)
        assert await store.summaries() == newest_first(kept)
        assert await store.summaries(limit=5) == newest_first(kept)[:5]
        assert await store.summaries(oldest_first=True) == newest_first(kept)[::-1]

    async def test_records_appended_meanwhile_do_not_shift_the_pages(
        self, store: Opened, other: Opened
    ) -> None:
        kept = [record(b"%d" % number, at=after(number // 4)) for number in range(23)]
        await asyncio.gather(*(store.records.append(each, [b"key"]) for each in kept))
        listed: list[RecordSummary] = []
        found: list[RecordSummary] = []
        while len(listed) < len(kept):
            last = listed[-1].context_id if listed else None
            listed += await other.summaries(end=after(100), before=last, limit=4)
            found += await other.records.find(b"key", before=last, limit=4)
            await store.records.append(record(at=after(50 + len(listed))), [b"key"])
        assert listed == found == newest_first(kept)
        last = listed[-1].context_id
        assert await store.summaries(before=last) == []
        assert await store.records.find(b"key", before=last) == []

    @pytest.mark.parametrize("unknown_id", ["", "unknown", "\0", "ü", "\ud800"])
    async def test_an_unknown_before_is_refused(self, store: Opened, unknown_id: str) -> None:
        await append(store, record())
        with pytest.raises(InvalidInputError, match="no record has the id"):
            await store.summaries(before=unknown_id)
        with pytest.raises(InvalidInputError, match="no record has the id"):
            await store.records.find(b"key", before=unknown_id)

    async def test_records_are_listed_from_start_inclusive_to_end_exclusive(
        self, store: Opened
    ) -> None:
        kept = [record(at=START + number * _MICROSECOND) for number in range(6)]
        await append(store, *kept)
        moments = [each.created_at for each in kept]
        assert await store.summaries(start=moments[2], end=moments[5]) == newest_first(kept[2:5])
        assert await store.summaries(start=moments[4]) == newest_first(kept[4:])
        assert await store.summaries(end=moments[1]) == newest_first(kept[:1])
        assert await store.summaries(start=moments[3], end=moments[3]) == []
        middle = kept[3].context_id
        assert await store.summaries(start=moments[1], before=middle) == newest_first(kept[1:3])
        assert await store.summaries(end=moments[2], before=middle) == newest_first(kept[:2])
        rising = {"oldest_first": True, "limit": 2}
        found = await store.summaries(start=moments[1], end=moments[5], **rising)
        assert found == newest_first(kept[1:3])[::-1]
        found = await store.summaries(end=moments[5], before=middle, **rising)
        assert found == newest_first(kept[4:5])

    async def test_records_with_a_key_are_listed_from_start_inclusive_to_end_exclusive(
        self, store: Opened
    ) -> None:
        kept = [record(at=START + number * _MICROSECOND) for number in range(600)]
        await asyncio.gather(*(store.records.append(each, [b"key"]) for each in kept))
        await append(store, record(at=START + 3 * _MICROSECOND))
        moments = [each.created_at for each in kept]
        find = partial(store.records.find, b"key")
        assert await find(start=moments[2], end=moments[5]) == newest_first(kept[2:5])
        assert await find(start=moments[595]) == newest_first(kept[595:])
        assert await find(end=moments[2]) == newest_first(kept[:2])
        assert await find(start=moments[3], end=moments[3]) == []
        second = await find(start=moments[1], oldest_first=True, limit=2)
        assert second == newest_first(kept[1:3])[::-1]
        third = await find(end=moments[5], oldest_first=True, limit=9, before=kept[2].context_id)
        assert third == newest_first(kept[3:5])[::-1]
        edges = [moments[0], moments[200], moments[-1]]
        assert await store.records.count_found(b"key", edges, 1_000) == [200, 399]

    async def test_records_are_counted_between_each_edge_and_the_next(self, store: Opened) -> None:
        kept = [
            record(
                at=after(number),
                name=f"n{number % 2}",
                freshness_status=f"f{number % 3}",
                caller=f"c{number % 2}",
            )
            for number in range(12)
        ]
        for each in kept:
            await store.records.append(each, [b"key", each.name.encode()])
        edges = [after(number) for number in (-5, 0, 4, 4, 10, 50)]

        async def count(most: int = 100, **filters: Any) -> list[int]:
            return await store.records.count(RecordQuery(**filters), edges, most)

        assert await count() == [0, 4, 0, 6, 2]
        assert await count(5) == [0, 4, 0, 5, 2]
        assert await count(name="n0") == [0, 2, 0, 3, 1]
        assert await count(name="n0", freshness_status="f0") == [0, 1, 0, 1, 0]
        assert await count(caller="c1", freshness_status="f1") == [0, 1, 0, 1, 0]
        assert await count(name="n0", caller="c1") == [0] * 5
        assert await count(name="\ud800") == [0] * 5
        assert await store.records.count_found(b"key", edges, 100) == [0, 4, 0, 6, 2]
        assert await store.records.count_found(b"n0", edges, 100) == [0, 2, 0, 3, 1]
        assert await store.records.count_found(b"none", edges, 100) == [0] * 5

    @pytest.mark.parametrize("hours", [0, 10, -10])
    async def test_start_and_end_may_be_at_the_limits_of_the_calendar(
        self, store: Opened, hours: int
    ) -> None:
        kept = record()
        await append(store, kept)
        zone = timezone(timedelta(hours=hours))
        first, last = datetime.min.replace(tzinfo=zone), datetime.max.replace(tzinfo=zone)
        assert await store.summaries(start=first, end=last) == [summary(kept)]
        assert await store.summaries(start=last) == []
        assert await store.summaries(end=first) == []

    async def test_records_that_match_all_filters_are_listed(self, store: Opened) -> None:
        kept = [
            record(
                at=after(number),
                name=f"n{number % 2}",
                freshness_status=f"f{number % 3}",
                caller=(None, "ada", "ci")[number // 4],
            )
            for number in range(12)
        ]
        await append(store, *kept)
        assert await store.summaries(name="n1") == newest_first(kept[1::2])
        assert await store.summaries(freshness_status="f2") == newest_first(kept[2::3])
        both = [each for each in kept if (each.name, each.freshness_status) == ("n1", "f2")]
        assert await store.summaries(name="n1", freshness_status="f2") == newest_first(both)
        assert await store.summaries(caller="ada") == newest_first(kept[4:8])
        assert await store.summaries(caller="ci", name="n1") == newest_first(kept[9::2])
        page = await store.summaries(name="n1", start=after(2), before=kept[9].context_id, limit=2)
        assert page == newest_first([kept[7], kept[5]])
        for unknown in ("unknown", *UNSTORABLE):
            assert await store.summaries(name=unknown) == []
            assert await store.summaries(freshness_status=unknown) == []
            assert await store.summaries(caller=unknown) == []

    async def test_records_are_found_by_each_key_they_were_appended_with(
        self, store: Opened
    ) -> None:
        kept = [record(at=after(number)) for number in range(3)]
        keys = [[b"a", b"b"], [b"b", b"c", b"b"], [b"c"]]
        await asyncio.gather(
            *(store.records.append(r, own_keys) for r, own_keys in zip(kept, keys, strict=True))
        )
        assert await store.records.find(b"a") == newest_first(kept[:1])
        assert await store.records.find(b"b") == newest_first(kept[:2])
        assert await store.records.find(b"c") == newest_first(kept[1:])
        assert await store.records.find(b"c", limit=1) == newest_first(kept[2:])
        assert await store.records.find(b"ab") == []
