"""Conformance tests of the ``OnlineStore`` port."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from headwater.core.clock import to_micros
from headwater.core.partitioning import partition_of
from headwater.core.values import decode_cells
from headwater.errors import VersionConflictError
from headwater.ports import Backends
from headwater.testing.conformance.suite import (
    START,
    Suite,
    after,
    change,
    history_rows,
    only_batch,
    outcome,
    take_clicks,
    value_at,
    value_online,
)


class OnlineStoreConformance(Suite):
    """The current values of every entity."""

    async def test_a_read_sees_every_write_that_returned_before_it_began(
        self, one: Backends, other: Backends
    ) -> None:
        for number in range(20):
            await one.online.put([change(number)])
            assert await value_online(one) == number
            assert await value_online(other) == number
            assert (await other.online.get_state(("User", "u1"))).cells == {
                "clicks": change(number).cell
            }

    async def test_an_expired_value_is_still_returned_and_its_cell_is_expired(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(7, expires_at=START + timedelta(seconds=5))])
        (cells,) = await backends.online.get("User", ["u1"])
        assert not cells["clicks"].expired(to_micros(after(4.9)))
        assert cells["clicks"].expired(to_micros(after(5)))

    async def test_a_change_with_an_earlier_as_of_than_the_current_value_goes_to_history_only(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(2, as_of=after(10))])
        await backends.online.put([change(1, as_of=after(5), written_at=after(20))])
        assert await value_online(backends) == 2
        assert await value_at(backends, after(7)) == 1
        assert await value_at(backends, after(30)) == 2

    async def test_get_packed_returns_the_same_as_json_texts_of_the_cells(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(7)])
        known, unknown = await backends.online.get_packed("User", ["u1", "unknown"])
        assert decode_cells(known) == {"clicks": change(7).cell}
        assert decode_cells(unknown) == {}

    async def test_get_returns_the_values_of_each_entity_in_the_order_of_the_ids(
        self, backends: Backends
    ) -> None:
        ids = [f"u{number}" for number in range(1_200)]
        await backends.online.put(
            [change(number, entity_id=entity_id) for number, entity_id in enumerate(ids)]
        )
        requested = [*reversed(ids), "u5", "u5"]
        answers = await backends.online.get("User", requested)
        expected = [change(int(entity_id[1:])).cell for entity_id in requested]
        assert [cells["clicks"] for cells in answers] == expected

    async def test_get_returns_nothing_for_an_unknown_id(self, backends: Backends) -> None:
        await backends.online.put([change(1), change(2, entity="Page", entity_id="u2")])
        known, unknown = await backends.online.get("User", ["u1", "u2"])
        assert known.keys() == {"clicks"}
        assert unknown == {}
        assert await backends.online.get("User", []) == []

    async def test_a_state_has_version_0_until_the_entity_has_a_value(
        self, backends: Backends
    ) -> None:
        assert (await backends.online.get_state(("User", "u1"))).version == 0
        await backends.online.put([change()])
        assert (await backends.online.get_state(("User", "u1"))).version > 0

    async def test_put_writes_values_online_and_to_history_atomically(
        self, one: Backends, other: Backends
    ) -> None:
        await one.online.put([change(1), change(2, entity_id="u2")])
        assert [await value_online(other), await value_online(other, entity_id="u2")] == [1, 2]
        assert [await value_at(other, START), await value_at(other, START, entity_id="u2")] == [
            1,
            2,
        ]

    async def test_a_late_value_goes_to_history_only(self, backends: Backends) -> None:
        await backends.online.put([change(2, as_of=after(2))])
        await backends.online.put([change(1, as_of=after(1), online=False)])
        assert await value_online(backends) == 2
        assert await value_at(backends, after(1)) == 1

    async def test_other_values_of_the_entities_stay(self, backends: Backends) -> None:
        await backends.online.put([change(1, feature="first")])
        await backends.online.put([change(2, feature="second"), change(3, feature="third")])
        await backends.online.put([change(4, feature="second")])
        values = [await value_online(backends, name) for name in ("first", "second", "third")]
        assert values == [1, 4, 3]

    async def test_concurrent_puts_do_not_lose_values(self, one: Backends, other: Backends) -> None:
        names = [f"f{number}" for number in range(40)]
        await asyncio.gather(
            *(
                (one, other)[number % 2].online.put([change(number, feature=name)])
                for number, name in enumerate(names)
            )
        )
        assert [await value_online(one, name) for name in names] == list(range(40))
        assert await history_rows(one) == 40

    async def test_a_change_that_is_not_authoritative_does_not_make_running_batches_conflict(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(0)])
        _, batch = await take_clicks(backends, 1)
        await backends.online.put([change(9, feature="cached", authoritative=False)])
        await backends.bus.commit(outcome(batch, [change(1)]))
        assert await value_online(backends) == 1

    async def test_an_authoritative_change_makes_a_running_batch_conflict(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(0)])
        leases, batch = await take_clicks(backends, 1)
        await backends.online.put([change(9, feature="other")])
        with pytest.raises(VersionConflictError):
            await backends.bus.commit(outcome(batch, [change(1)]))
        await backends.bus.commit(outcome(await only_batch(backends, leases), [change(1)]))
        assert [await value_online(backends), await value_online(backends, "other")] == [1, 9]

    async def test_restore_writes_missing_values_and_nothing_to_history(
        self, one: Backends, other: Backends
    ) -> None:
        await one.online.put([change(1, feature="other")])
        before = await history_rows(one)
        mortal = change(6, expires_at=START + timedelta(seconds=5)).cell
        await one.online.restore("User", {"u1": {"clicks": change(5).cell}, "u2": {"x": mortal}})
        known, new = await other.online.get("User", ["u1", "u2"])
        assert known == {"other": change(1).cell, "clicks": change(5).cell}
        assert new == {"x": mortal}
        assert await other.online.entity_ids("User", after="", limit=10) == ["u1", "u2"]
        assert await history_rows(one) == before

    async def test_restore_replaces_an_older_value(self, backends: Backends) -> None:
        await backends.online.put([change(1), change(1, feature="twice", written_at=after(1))])
        await backends.online.restore(
            "User",
            {
                "u1": {
                    "clicks": change(2, as_of=after(1)).cell,
                    "twice": change(2, written_at=after(2)).cell,
                }
            },
        )
        assert [await value_online(backends, name) for name in ("clicks", "twice")] == [2, 2]

    async def test_restore_keeps_a_value_that_is_newer_or_was_written_no_earlier(
        self, backends: Backends
    ) -> None:
        present = [
            change(1, feature="later", as_of=after(2)),
            change(1, feature="rewritten", as_of=after(1), written_at=after(9)),
            change(1, feature="as_old", as_of=after(1)),
        ]
        await backends.online.put(present)
        past = change(0, as_of=after(1)).cell
        await backends.online.restore("User", {"u1": {each.feature: past for each in present}})
        values = [await value_online(backends, each.feature) for each in present]
        assert values == [1, 1, 1]

    async def test_restore_without_a_change_does_not_make_running_batches_conflict(
        self, backends: Backends
    ) -> None:
        await backends.online.put([change(1)])
        _, batch = await take_clicks(backends, 1)
        await backends.online.restore("User", {"u1": {"clicks": change(1).cell}})
        await backends.bus.commit(outcome(batch, [change(2)]))
        assert await value_online(backends) == 2

    async def test_restore_with_a_change_makes_a_running_batch_conflict(
        self, backends: Backends
    ) -> None:
        leases, stale = await take_clicks(backends, 1)
        await backends.online.restore("User", {"u1": {"clicks": change(5).cell}})
        with pytest.raises(VersionConflictError):
            await backends.bus.commit(outcome(stale, [change(1)]))
        assert (await only_batch(backends, leases)).states["User", "u1"].cells == {
            "clicks": change(5).cell
        }

    async def test_restoring_no_values_does_nothing(self, backends: Backends) -> None:
        await backends.online.restore("User", {})
        assert await backends.online.entity_ids("User", after="", limit=10) == []

    async def test_entity_ids_are_returned_in_sorted_order_after_an_id(
        self, backends: Backends
    ) -> None:
        ids = [f"u{number}" for number in range(25)]
        await backends.online.put([change(entity_id=entity_id) for entity_id in ids])
        await backends.online.put([change(entity="Page", entity_id="p1")])
        seen: list[str] = []
        while portion := await backends.online.entity_ids(
            "User", after=seen[-1] if seen else "", limit=10
        ):
            assert len(portion) <= 10
            seen += portion
        assert seen == sorted(ids)

    async def test_entity_ids_of_one_partition_are_those_whose_events_are_in_it(
        self, backends: Backends
    ) -> None:
        count = backends.bus.partitions
        ids = sorted(f"u{number}" for number in range(50))
        await backends.online.put([change(entity_id=entity_id) for entity_id in ids])
        for partition in range(count):
            found = await backends.online.entity_ids(
                "User", after="", limit=100, partition=partition
            )
            assert found == [i for i in ids if partition_of(i, count) == partition]

    async def test_entity_ids_with_one_feature_leave_out_entities_that_have_only_others(
        self, backends: Backends
    ) -> None:
        await backends.online.put(
            [
                change(entity_id="u1"),
                change(entity_id="u2", feature="other"),
                change(entity_id="u3"),
            ]
        )
        having = await backends.online.entity_ids("User", after="", limit=10, having="clicks")
        assert having == ["u1", "u3"]
        assert await backends.online.entity_ids("User", after="", limit=10) == ["u1", "u2", "u3"]
