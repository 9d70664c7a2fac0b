"""Conformance tests of retention: ``OfflineStore.prune`` and ``drop``, ``RecordLog.prune``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from conformance.records import record
from conformance.suite import (
    Connect,
    Opened,
    Suite,
    after,
    change,
    clicks,
    outcome,
)
from headwater.core.clock import to_micros
from headwater.ports import Change, Point, Pruned

_SECONDS = 6
_FEATURES = ["clicks", "views", "taps"]
_IDS = ["u1", "u2", "u3", "u4"]
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)
_SOON = timedelta(days=1)


class RetentionConformance(Suite):
    """Old rows can be removed, and no read of the rest notices it."""

    @pytest.mark.parametrize("seed", [1, 2])
    async def test_reads_at_or_after_the_moment_give_the_same_answers_as_before(
        self, store: Opened, other: Opened, seed: int
    ) -> None:
        random = Random(seed)
        moment = after(random.randint(1, _SECONDS))
        appended, put = _random_changes(random), _random_changes(random)
        await store.offline.append(appended)
        await store.online.put(put)
        await store.offline.maintain()
        before = await _answers(store, moment)
        rows = await store.history_rows()
        counted = await other.offline.prune(history=moment, events=None, dry_run=True)
        assert await store.history_rows() == rows
        assert await other.offline.prune(history=moment, events=None) == counted
        assert await _answers(store, moment) == before
        left = await _values(store)
        assert left == _needed([*appended, *put], moment)
        assert len(left) == rows - counted.history

    async def test_the_last_value_of_every_entity_stays(self, store: Opened) -> None:
        ids = [f"u{number}" for number in range(20)]
        for second in range(3):
            await store.online.put([change(second, entity_id=i, as_of=after(second)) for i in ids])
        assert await store.offline.prune(history=_END_OF_TIME, events=None) == Pruned(history=40)
        latest = dict(await store.offline.latest("User", after="", limit=100))
        assert {i: past["clicks"].value for i, past in latest.items()} == dict.fromkeys(ids, b"2")

    async def test_pruning_again_removes_nothing(self, store: Opened) -> None:
        await store.online.put([change(n, as_of=after(n)) for n in range(10)])
        assert (await store.offline.prune(history=after(5), events=None)).history == 5
        assert (await store.offline.prune(history=after(5), events=None)).history == 0

    async def test_values_appended_after_pruning_are_found(self, store: Opened) -> None:
        await store.online.put([change(n, as_of=after(n)) for n in range(10)])
        await store.offline.prune(history=after(5), events=None)
        await store.offline.append([change(70, as_of=after(7.5))])
        assert [await store.value_at(after(second)) for second in (5, 7, 8, 9)] == [5, 7, 8, 9]
        assert await store.value_at(after(7.5)) == 70

    async def test_dropping_a_series_removes_all_of_its_values_and_no_others(
        self, store: Opened, other: Opened
    ) -> None:
        for feature in ("clicks", "clicks@2"):
            await store.online.put([change(n, feature=feature, as_of=after(n)) for n in range(6)])
        await store.offline.maintain()
        await store.online.put([change(7, feature="clicks@2", as_of=after(7))])
        assert await other.offline.drop("clicks@2") == 7
        assert await other.offline.drop("clicks@2") == 0
        assert await store.value_at(after(9), feature="clicks@2") is None
        assert await _values(store, "clicks") == list(range(6))

    async def test_forgetting_an_entity_removes_its_past_values_and_no_others(
        self, store: Opened, other: Opened
    ) -> None:
        for entity, entity_id in (("User", "u1"), ("User", "u2"), ("Page", "u1")):
            await store.online.put(
                [change(n, entity=entity, entity_id=entity_id, as_of=after(n)) for n in range(6)]
            )
        await store.offline.maintain()
        await store.online.put([change(7, feature="other", as_of=after(7))])
        counted = await other.offline.forget("User", "u1", dry_run=True)
        assert counted == await other.offline.forget("User", "u1") == Pruned(history=7)
        assert await other.offline.forget("User", "u1") == Pruned()
        latest = await store.offline.latest("User", after="", limit=5)
        assert [entity_id for entity_id, _ in latest] == ["u2"]
        assert len(await store.offline.latest("Page", after="", limit=5)) == 1

    async def test_forgetting_an_entity_removes_the_events_with_its_id_except_kept_types(
        self, store: Opened, other: Opened
    ) -> None:
        leases, batch = await store.take_clicks(5)
        await store.bus.commit(outcome(batch))
        await store.offline.maintain()
        await store.publish(clicks(2))
        await store.bus.commit(outcome(await store.only_batch(leases)))
        assert await other.offline.forget("User", "u1", keep=["click"]) == Pruned()
        assert await other.offline.forget("User", "u2") == Pruned()
        assert await other.offline.forget("User", "u1", dry_run=True) == Pruned(events=7)
        assert await other.offline.forget("User", "u1") == Pruned(events=7)
        assert await _events(store) == 0

    async def test_events_stay_until_every_consumer_group_has_committed_them(
        self, store: Opened, connect: Connect
    ) -> None:
        late = await Opened.by(connect, group="late")
        tomorrow = datetime.now(UTC) + _SOON
        leases, batch = await store.take_clicks(5)
        behind = await late.hold("w2")
        assert await _prune_events(store, tomorrow) == 0
        await store.bus.commit(outcome(batch))
        assert await _prune_events(store, tomorrow) == 0
        slow = await late.only_batch(behind)
        assert len(slow.deliveries) == 5
        await late.bus.commit(outcome(slow))
        assert await _prune_events(store, datetime.now(UTC) - _SOON) == 0
        assert await _prune_events(store, tomorrow, dry_run=True) == 5
        assert await _prune_events(store, tomorrow) == 5
        assert await _events(store) == 0
        await store.publish(clicks(2))
        await store.bus.commit(outcome(await store.only_batch(leases)))
        assert await _events(store) == 2

    async def test_pruned_records_are_gone_with_their_keys_and_younger_ones_stay(
        self, store: Opened, other: Opened
    ) -> None:
        records = [record(at=after(second)) for second in range(6)]
        for each in records:
            await store.records.append(each, [b"all", each.context_id.encode()])
        assert await store.records.prune(after(3), dry_run=True) == 3
        assert len(await store.summaries()) == 6
        assert await store.records.prune(after(3)) == 3
        assert await store.records.prune(after(3)) == 0
        kept = [each.context_id for each in records[:2:-1]]
        assert [each.context_id for each in await other.summaries()] == kept
        assert [each.context_id for each in await other.records.find(b"all")] == kept
        for gone in records[:3]:
            assert await other.records.find(gone.context_id.encode()) == []
            assert await other.records.get(gone.context_id) is None


def _random_changes(random: Random) -> list[Change]:
    """Return values of many entities, many of the same moment, some late and some ahead."""
    return [
        change(
            random.getrandbits(50),
            feature=random.choice(_FEATURES),
            entity_id=random.choice(_IDS),
            as_of=after(random.randint(0, _SECONDS)),
            written_at=after(random.randint(0, _SECONDS)),
        )
        for _ in range(60)
    ]


async def _answers(store: Opened, start: datetime) -> list[object]:
    moments = [start + timedelta(seconds=second / 2) for second in range(2 * _SECONDS)]
    points = [Point(i, moment) for i in _IDS for moment in [*moments, _END_OF_TIME]]
    return [await store.offline.as_of(_FEATURES, points, known=known) for known in (False, True)]


async def _values(store: Opened, feature: str = "%") -> list[int]:
    rows = await store.offline.query(
        f"SELECT value_int FROM feature_history WHERE feature LIKE '{feature}' ORDER BY value_int",
        {},
    )
    return [value for (value,) in rows.rows]


def _needed(changes: Sequence[Change], moment: datetime) -> list[int]:
    """Return the values that reads at or after a moment can find."""
    at = to_micros(moment)
    needed: set[int] = set()
    for key in {(each.feature, each.entity_id) for each in changes}:
        rows = [
            (each.cell.as_of, each.cell.written_at, number, int(bytes(each.cell.value)))
            for number, each in enumerate(changes)
            if (each.feature, each.entity_id) == key
        ]
        recent = [row for row in rows if row[0] >= at or row[1] >= at]
        true = sorted(row for row in rows if row[0] <= at)[-1:]
        known = sorted(row for row in rows if row[1] <= at)[-1:]
        needed.update(row[3] for row in [*recent, *true, *known])
    return sorted(needed)


async def _prune_events(store: Opened, before: datetime, *, dry_run: bool = False) -> int:
    await store.offline.maintain()
    return (await store.offline.prune(history=None, events=before, dry_run=dry_run)).events


async def _events(store: Opened) -> int:
    rows = await store.offline.query("SELECT count(*) FROM events", {})
    count: int = rows.rows[0][0]
    return count
