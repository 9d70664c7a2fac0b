"""Conformance tests of the ``Erasures`` port, and of what other ports promise of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
import pytest

from conformance.records import record
from conformance.suite import (
    Connect,
    Opened,
    Suite,
    after,
    change,
    click,
    outcome,
)
from headwater.core.clock import to_micros
from headwater.errors import ErasedMeanwhileError, VersionConflictError
from headwater.model.values import EntityKey, ServiceEvent
from headwater.ports import Tombstone

_ERASED = to_micros(after(10))
_BEFORE, _AFTER = after(5), after(15)


async def _erase(store: Opened, entity_id: str = "u1", *, may_return: bool = False) -> None:
    await store.erasures.erase("User", entity_id, at=_ERASED, may_return=may_return)


def _users(event: ServiceEvent) -> Iterable[EntityKey]:
    return (("User", event.entity_id),)


def _found(store: Opened, entity_id: str = "u1", entity: str = "User") -> Tombstone | None:
    return store.erasures.ledger.find(entity, entity_id)


class ErasuresConformance(Suite):
    """The ledger of erased entities, and the writes that are compared with it."""

    async def test_every_process_finds_an_erased_entity_and_no_other(
        self, store: Opened, other: Opened
    ) -> None:
        assert (await store.erasures.refresh()).revision == 0
        await _erase(store)
        await other.erasures.refresh()
        for each in (store, other):
            tombstone = _found(each)
            assert tombstone is not None
            assert (tombstone.erased_at, tombstone.may_return) == (_ERASED, False)
            assert _found(each, "u2") is None
            assert _found(each, entity="Page") is None

    async def test_a_later_erasure_of_the_entity_replaces_the_earlier_one(
        self, store: Opened, other: Opened
    ) -> None:
        await _erase(store)
        await _erase(other, "u2")
        await _erase(other, may_return=True)
        await store.erasures.refresh()
        tombstone = _found(store)
        assert tombstone is not None
        assert (tombstone.may_return, tombstone.revision) == (True, 3)
        assert _found(store, "u2") is not None

    async def test_an_erasure_is_durable(self, connect: Connect) -> None:
        first = await Opened.by(connect)
        await _erase(first)
        await first.lifecycle.close()
        second = await Opened.by(connect)
        await second.erasures.refresh()
        assert _found(second) is not None

    async def test_events_of_an_erased_entity_are_left_out(
        self, store: Opened, other: Opened
    ) -> None:
        early, late = click(), msgspec.structs.replace(click(), timestamp=_AFTER)
        await _erase(store)
        await _erase(store, "u3", may_return=True)
        events = [early, late, click("u2"), *(_of(each, "u3") for each in (early, late))]
        results = await other.bus.publish(events, dedup_window=None, subjects=_users)
        assert [result.erased for result in results] == [True, True, False, True, False]
        leases = await store.hold()
        batches = await store.read(leases)
        accepted = [each.event.entity_id for batch in batches for each in batch.deliveries]
        assert sorted(accepted) == ["u2", "u3"]

    async def test_an_erasure_is_after_the_events_that_were_accepted(self, store: Opened) -> None:
        await store.publish([click()])
        await _erase(store, may_return=True)
        await store.publish([click()])
        batch = await store.only_batch(await store.hold())
        tombstone = _found(store)
        assert tombstone is not None
        events = [
            (msgspec.structs.replace(each.event, timestamp=_AFTER), each.position)
            for each in batch.deliveries
        ]
        assert [tombstone.admits_event(*each) for each in events] == [False, True]

    async def test_a_commit_conflicts_if_an_entity_was_erased_since_its_check(
        self, store: Opened, other: Opened
    ) -> None:
        leases, batch = await store.take_clicks(1)
        await _erase(other)
        with pytest.raises(VersionConflictError) as caught:
            await store.bus.commit(outcome(batch, [change()]))
        assert not caught.value.changed
        assert _found(store) is not None
        again = await store.only_batch(leases)
        checked = msgspec.structs.replace(outcome(again), checked=store.erasures.ledger.revision)
        await store.bus.commit(checked)
        assert await store.read(leases) == []
        assert await store.history_rows() == 0

    @pytest.mark.parametrize("may_return", [False, True])
    async def test_values_of_an_erased_entity_are_left_out(
        self, store: Opened, other: Opened, *, may_return: bool
    ) -> None:
        await store.online.put([change(1, as_of=_BEFORE)])
        await _erase(store, may_return=may_return)
        await store.online.forget("User", "u1")
        await store.offline.forget("User", "u1")
        begins = change(4, as_of=_AFTER)
        follows = msgspec.structs.replace(begins, feature="rank", begins=False)
        assert (
            await other.online.put([change(2, as_of=_BEFORE), follows, change(entity_id="u2")]) == 2
        )
        assert await _values(store) == {}
        assert await other.online.put([begins]) == (0 if may_return else 1)
        assert await other.online.put([follows]) == (0 if may_return else 1)
        assert sorted(await _values(store)) == (["clicks", "rank"] if may_return else [])
        assert await store.history_rows() == (3 if may_return else 1)

    @pytest.mark.parametrize("may_return", [False, True])
    async def test_restored_and_appended_values_of_an_erased_entity_are_left_out(
        self, store: Opened, other: Opened, *, may_return: bool
    ) -> None:
        await _erase(store, may_return=may_return)
        old, new = change(1, as_of=_BEFORE), change(2, feature="rank", as_of=_AFTER)
        cells = {each.feature: each.cell for each in (old, new)}
        await other.online.restore("User", {"u1": cells, "u2": cells})
        assert sorted(await _values(store)) == (["rank"] if may_return else [])
        assert sorted(await _values(store, "u2")) == ["clicks", "rank"]
        assert await other.offline.append([old, new]) == int(may_return)

    @pytest.mark.parametrize("may_return", [False, True])
    async def test_replacing_values_of_an_erased_entity_are_left_out(
        self, store: Opened, other: Opened, *, may_return: bool
    ) -> None:
        await _erase(store, may_return=may_return)
        for new in (change(1, as_of=_BEFORE), change(2, feature="rank", as_of=_AFTER)):
            cells = {"u1": (None, new.cell), "u2": (None, new.cell)}
            assert not await other.online.replace("User", new.feature, cells)
        assert sorted(await _values(store)) == (["rank"] if may_return else [])
        assert sorted(await _values(store, "u2")) == ["clicks", "rank"]

    async def test_a_record_is_refused_if_an_entity_was_erased_since_its_check(
        self, store: Opened, other: Opened
    ) -> None:
        await _erase(store)
        kept = record()
        with pytest.raises(ErasedMeanwhileError):
            await other.records.append(kept, [b"key"])
        assert await store.records.get(kept.context_id) is None
        revision = (await other.erasures.refresh()).revision
        await other.records.append(kept, [b"key"], checked=revision)
        assert await store.records.get(kept.context_id) == kept
        assert len(await store.records.find(b"key")) == 1


def _of(event: Any, entity_id: str) -> Any:
    return msgspec.structs.replace(event, entity_id=entity_id)


async def _values(store: Opened, entity_id: str = "u1") -> Collection[str]:
    (cells,) = await store.online.get("User", [entity_id])
    return cells
