"""Conformance tests of the ``OnlineStore`` port."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from conformance.suite import (
    START,
    Connect,
    Opened,
    Suite,
    after,
    change,
    click,
    clicks,
    dead_letter,
    outcome,
)
from headwater.core.clock import to_micros
from headwater.core.partitioning import partition_of
from headwater.errors import LeaseLostError, UnknownDeadLetterError, VersionConflictError
from headwater.model.values import decode_cells
from headwater.ports import Lease, Standing

_CLOCK_SKEW_MICROS = 600_000_000


class OnlineStoreConformance(Suite):
    """The current values of every entity."""

    async def test_a_read_sees_every_write_that_returned_before_it_began(
        self, store: Opened, other: Opened
    ) -> None:
        for number in range(20):
            await store.online.put([change(number)])
            assert await store.value_online() == number
            assert await other.value_online() == number
            assert (await other.online.get_state(("User", "u1"))).cells == {
                "clicks": change(number).cell
            }

    async def test_an_expired_value_is_still_returned_and_its_cell_is_expired(
        self, store: Opened
    ) -> None:
        await store.online.put([change(7, expires_at=START + timedelta(seconds=5))])
        (cells,) = await store.online.get("User", ["u1"])
        assert not cells["clicks"].expired(to_micros(after(4.9)))
        assert cells["clicks"].expired(to_micros(after(5)))

    async def test_a_change_with_an_earlier_as_of_than_the_current_value_goes_to_history_only(
        self, store: Opened
    ) -> None:
        await store.online.put([change(2, as_of=after(10))])
        await store.online.put([change(1, as_of=after(5), written_at=after(20))])
        assert await store.value_online() == 2
        assert await store.value_at(after(7)) == 1
        assert await store.value_at(after(30)) == 2

    async def test_of_two_changes_with_one_as_of_the_one_written_last_counts(
        self, store: Opened
    ) -> None:
        await store.online.put([change(2, as_of=START, written_at=after(2))])
        await store.online.put([change(1, as_of=START, written_at=after(1))])
        assert (await store.value_online(), await store.value_at(after(30))) == (2, 2)
        await store.online.put([change(3, as_of=START, written_at=after(2))])
        assert (await store.value_online(), await store.value_at(after(30))) == (3, 3)

    async def test_get_packed_returns_the_same_as_json_texts_of_the_cells(
        self, store: Opened
    ) -> None:
        await store.online.put([change(7)])
        known, unknown = await store.online.get_packed("User", ["u1", "unknown"])
        assert decode_cells(known) == {"clicks": change(7).cell}
        assert decode_cells(unknown) == {}

    async def test_get_returns_the_values_of_each_entity_in_the_order_of_the_ids(
        self, store: Opened
    ) -> None:
        ids = [f"u{number}" for number in range(1_200)]
        await store.online.put(
            [change(number, entity_id=entity_id) for number, entity_id in enumerate(ids)]
        )
        requested = [*reversed(ids), "u5", "u5"]
        answers = await store.online.get("User", requested)
        expected = [change(int(entity_id[1:])).cell for entity_id in requested]
        assert [cells["clicks"] for cells in answers] == expected

    async def test_get_returns_nothing_for_an_unknown_id(self, store: Opened) -> None:
        await store.online.put([change(1), change(2, entity="Page", entity_id="u2")])
        known, unknown = await store.online.get("User", ["u1", "u2"])
        assert known.keys() == {"clicks"}
        assert unknown == {}
        assert await store.online.get("User", []) == []

    async def test_get_with_waiting_returns_when_the_oldest_waiting_event_was_accepted(
        self, store: Opened, other: Opened
    ) -> None:
        ids = ["u1", "unknown", *(f"u{number}" for number in range(2, 50))]
        assert await other.online.get_with_waiting("User", ids) == [Standing({})] * len(ids)
        began = to_micros(datetime.now(UTC))
        leases, batch = await store.take_clicks(2)
        await store.publish(clicks(1))
        found = dict(zip(ids, await other.online.get_with_waiting("User", ids), strict=True))
        since = found["u1"].waiting_since
        assert since is not None
        # A server has its own clock, and may count in milliseconds.
        assert abs(since - began) < _CLOCK_SKEW_MICROS
        partition = partition_of("u1", store.bus.partitions)
        for entity_id, each in found.items():
            is_there = partition_of(entity_id, store.bus.partitions) == partition
            assert each.waiting_since == (since if is_there else None)
        await store.bus.commit(outcome(batch, [change(7)]))
        (later,) = await other.online.get_with_waiting("User", ["u1"])
        assert later.cells == {"clicks": change(7).cell}
        assert later.waiting_since is not None
        assert later.waiting_since >= since
        await store.bus.commit(outcome(await store.only_batch(leases), []))
        expected = [Standing({"clicks": change(7).cell}), Standing({})]
        assert await other.online.get_with_waiting("User", ["u1", "unknown"]) == expected
        assert await other.online.get_with_waiting("User", []) == []

    async def test_a_series_has_not_handled_an_event_while_there_is_a_dead_letter_of_both(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await self._with_letters(store)
        assert await self._unhandled(other) == [{"clicks", "visits"}, {"clicks"}, set()]
        (first, again, second) = await store.letters(feature="clicks")
        assert (first.event.entity_id, second.event.entity_id) == ("u1", "u10")
        await other.dead_letters.discard([first.id])
        assert await self._unhandled(store) == [{"clicks", "visits"}, {"clicks"}, set()]
        await other.dead_letters.discard([again.id])
        assert await self._unhandled(store) == [{"visits"}, {"clicks"}, set()]
        with pytest.raises(UnknownDeadLetterError):
            await other.dead_letters.discard([second.id, first.id])
        assert await self._unhandled(store) == [{"visits"}, {"clicks"}, set()]
        assert await store.read(leases) == []

    async def test_a_series_has_not_handled_a_redriven_event_until_that_is_committed(
        self, store: Opened, other: Opened
    ) -> None:
        leases = await self._with_letters(store)
        for is_handled in (False, True):
            (letter,) = await store.letters(entity_id="u10")
            await other.dead_letters.redrive([letter.id])
            assert await self._unhandled(other) == [{"clicks", "visits"}, {"clicks"}, set()]
            batch = await store.only_batch(leases)
            dead = [] if is_handled else [dead_letter(batch)]
            await store.bus.commit(outcome(batch, dead=dead))
            left = set() if is_handled else {"clicks"}
            assert await self._unhandled(other) == [{"clicks", "visits"}, left, set()]

    async def test_a_dead_letter_of_another_consumer_group_is_not_unhandled(
        self, connect: Connect
    ) -> None:
        one, two = [await Opened.by(connect, name) for name in ("one", "two")]
        held = {each: await each.hold(f"w{n}") for n, each in enumerate((one, two))}
        await one.publish(clicks(1))
        batch = await one.only_batch(held[one])
        await one.bus.commit(outcome(batch, dead=[dead_letter(batch)]))
        await two.bus.commit(outcome(await two.only_batch(held[two])))
        (letter,) = await one.letters()

        async def unhandled() -> list[frozenset[str]]:
            found = [await each.online.get_with_waiting("User", ["u1"]) for each in (one, two)]
            return [each.unhandled for (each,) in found]

        assert await unhandled() == [{"clicks"}, set()]
        await two.dead_letters.redrive([letter.id])
        assert await unhandled() == [{"clicks"}, set()]
        await two.bus.commit(outcome(await two.only_batch(held[two])))
        assert await unhandled() == [{"clicks"}, set()]
        await one.bus.commit(outcome(await one.only_batch(held[one])))
        assert await unhandled() == [set(), set()]

    async def _with_letters(self, store: Opened) -> list[Lease]:
        """Commit dead letters of two entities and two series; two are of one of each."""
        leases = await store.hold()
        failures = (("u1", "clicks"), ("u1", "clicks"), ("u1", "visits"), ("u10", "clicks"))
        for number, (entity_id, series) in enumerate(failures):
            await store.publish([click(entity_id, number)])
            batch = await store.only_batch(leases)
            await store.bus.commit(outcome(batch, dead=[dead_letter(batch, series)]))
        return leases

    async def _unhandled(self, store: Opened) -> list[frozenset[str]]:
        found = await store.online.get_with_waiting("User", ["u1", "u10", "u"])
        return [each.unhandled for each in found]

    async def test_a_state_has_version_0_until_the_entity_has_a_value(self, store: Opened) -> None:
        assert (await store.online.get_state(("User", "u1"))).version == 0
        await store.online.put([change()])
        assert (await store.online.get_state(("User", "u1"))).version > 0

    async def test_put_writes_values_online_and_to_history_atomically(
        self, store: Opened, other: Opened
    ) -> None:
        await store.online.put([change(1), change(2, entity_id="u2")])
        assert [await other.value_online(), await other.value_online(entity_id="u2")] == [1, 2]
        assert [await other.value_at(START), await other.value_at(START, entity_id="u2")] == [
            1,
            2,
        ]

    async def test_a_late_value_goes_to_history_only(self, store: Opened) -> None:
        await store.online.put([change(2, as_of=after(2))])
        await store.online.put([change(1, as_of=after(1), online=False)])
        assert await store.value_online() == 2
        assert await store.value_at(after(1)) == 1

    async def test_other_values_of_the_entities_stay(self, store: Opened) -> None:
        await store.online.put([change(1, feature="first")])
        await store.online.put([change(2, feature="second"), change(3, feature="third")])
        await store.online.put([change(4, feature="second")])
        values = [await store.value_online(name) for name in ("first", "second", "third")]
        assert values == [1, 4, 3]

    async def test_concurrent_puts_do_not_lose_values(self, store: Opened, other: Opened) -> None:
        names = [f"f{number}" for number in range(40)]
        await asyncio.gather(
            *(
                (store, other)[number % 2].online.put([change(number, feature=name)])
                for number, name in enumerate(names)
            )
        )
        assert [await store.value_online(name) for name in names] == list(range(40))
        assert await store.history_rows() == 40

    async def test_a_change_that_is_not_authoritative_does_not_make_running_batches_conflict(
        self, store: Opened
    ) -> None:
        await store.online.put([change(0)])
        _, batch = await store.take_clicks(1)
        await store.online.put([change(9, feature="cached", authoritative=False)])
        await store.bus.commit(outcome(batch, [change(1)]))
        assert await store.value_online() == 1

    async def test_an_authoritative_change_makes_a_running_batch_conflict(
        self, store: Opened
    ) -> None:
        await store.online.put([change(0)])
        leases, batch = await store.take_clicks(1)
        await store.online.put([change(9, feature="other")])
        with pytest.raises(VersionConflictError):
            await store.bus.commit(outcome(batch, [change(1)]))
        await store.bus.commit(outcome(await store.only_batch(leases), [change(1)]))
        assert [await store.value_online(), await store.value_online("other")] == [1, 9]

    async def test_restore_writes_missing_values_and_nothing_to_history(
        self, store: Opened, other: Opened
    ) -> None:
        await store.online.put([change(1, feature="other")])
        before = await store.history_rows()
        mortal = change(6, expires_at=START + timedelta(seconds=5)).cell
        await store.online.restore("User", {"u1": {"clicks": change(5).cell}, "u2": {"x": mortal}})
        known, new = await other.online.get("User", ["u1", "u2"])
        assert known == {"other": change(1).cell, "clicks": change(5).cell}
        assert new == {"x": mortal}
        assert await other.online.entity_ids("User", after="", limit=10) == ["u1", "u2"]
        assert await store.history_rows() == before

    async def test_restore_replaces_an_older_value(self, store: Opened) -> None:
        await store.online.put([change(1), change(1, feature="twice", written_at=after(1))])
        await store.online.restore(
            "User",
            {
                "u1": {
                    "clicks": change(2, as_of=after(1)).cell,
                    "twice": change(2, written_at=after(2)).cell,
                }
            },
        )
        assert [await store.value_online(name) for name in ("clicks", "twice")] == [2, 2]

    async def test_restore_keeps_a_value_that_is_newer_or_was_written_no_earlier(
        self, store: Opened
    ) -> None:
        present = [
            change(1, feature="later", as_of=after(2)),
            change(1, feature="rewritten", as_of=after(1), written_at=after(9)),
            change(1, feature="as_old", as_of=after(1)),
        ]
        await store.online.put(present)
        past = change(0, as_of=after(1)).cell
        await store.online.restore("User", {"u1": {each.feature: past for each in present}})
        values = [await store.value_online(each.feature) for each in present]
        assert values == [1, 1, 1]

    async def test_restore_without_a_change_does_not_make_running_batches_conflict(
        self, store: Opened
    ) -> None:
        await store.online.put([change(1)])
        _, batch = await store.take_clicks(1)
        await store.online.restore("User", {"u1": {"clicks": change(1).cell}})
        await store.bus.commit(outcome(batch, [change(2)]))
        assert await store.value_online() == 2

    async def test_restore_with_a_change_makes_a_running_batch_conflict(
        self, store: Opened
    ) -> None:
        leases, stale = await store.take_clicks(1)
        await store.online.restore("User", {"u1": {"clicks": change(5).cell}})
        with pytest.raises(VersionConflictError):
            await store.bus.commit(outcome(stale, [change(1)]))
        assert (await store.only_batch(leases)).states["User", "u1"].cells == {
            "clicks": change(5).cell
        }

    async def test_replace_writes_where_the_value_is_the_expected_one_and_returns_the_others(
        self, store: Opened, other: Opened
    ) -> None:
        old, new = change(1).cell, change(2, as_of=after(-5), written_at=after(-5)).cell
        await store.online.put([change(1), change(1, feature="other"), change(1, entity_id="u2")])
        before = await store.history_rows()
        cells = {"u1": (old, new), "u2": (None, new), "u3": (None, new), "u4": (old, new)}
        assert list(await other.online.replace("User", "clicks", cells)) == ["u2", "u4"]
        assert await store.online.get("User", ["u1", "u2", "u3", "u4"]) == [
            {"other": old, "clicks": new},
            {"clicks": old},
            {"clicks": new},
            {},
        ]
        assert await store.history_rows() == before

    async def test_replace_removes_a_value(self, store: Opened) -> None:
        await store.online.put([change(1), change(1, feature="other")])
        cells = {"u1": (change(1).cell, None), "u2": (None, None)}
        assert not await store.online.replace("User", "clicks", cells)
        assert await store.online.get("User", ["u1", "u2"]) == [{"other": change(1).cell}, {}]

    async def test_replace_compares_values_of_the_same_times(self, store: Opened) -> None:
        await store.online.put([change(1)])
        cells = {"u1": (change(2).cell, change(3).cell)}
        assert list(await store.online.replace("User", "clicks", cells)) == ["u1"]
        assert await store.value_online() == 1

    async def test_of_two_replacements_of_one_value_only_one_is_written(
        self, store: Opened, other: Opened
    ) -> None:
        await store.online.put([change(0)])
        answers = await asyncio.gather(
            *(
                writer.online.replace(
                    "User", "clicks", {"u1": (change(0).cell, change(number).cell)}
                )
                for number, writer in enumerate([store, other] * 5, start=1)
            )
        )
        written = [number for number, changed in enumerate(answers, start=1) if not changed]
        assert written == [await store.value_online()]

    async def test_replace_makes_a_running_batch_conflict_if_it_writes(self, store: Opened) -> None:
        leases, stale = await store.take_clicks(1)
        await store.online.replace("User", "clicks", {"u1": (None, change(5).cell)})
        with pytest.raises(VersionConflictError):
            await store.bus.commit(outcome(stale, [change(1)]))
        batch = await store.only_batch(leases)
        assert list(await store.online.replace("User", "clicks", {"u1": (None, None)})) == ["u1"]
        await store.bus.commit(outcome(batch, [change(6, as_of=after(9))]))
        assert await store.value_online() == 6

    async def test_restoring_no_values_does_nothing(self, store: Opened) -> None:
        await store.online.restore("User", {})
        assert await store.online.entity_ids("User", after="", limit=10) == []

    async def test_entity_ids_are_returned_in_sorted_order_after_an_id(self, store: Opened) -> None:
        ids = [f"u{number}" for number in range(25)]
        await store.online.put([change(entity_id=entity_id) for entity_id in ids])
        await store.online.put([change(entity="Page", entity_id="p1")])
        seen: list[str] = []
        while portion := await store.online.entity_ids(
            "User", after=seen[-1] if seen else "", limit=10
        ):
            assert len(portion) <= 10
            seen += portion
        assert seen == sorted(ids)

    async def test_entity_ids_of_one_partition_are_those_whose_events_are_in_it(
        self, store: Opened
    ) -> None:
        count = store.bus.partitions
        ids = sorted(f"u{number}" for number in range(50))
        await store.online.put([change(entity_id=entity_id) for entity_id in ids])
        for partition in range(count):
            found = await store.online.entity_ids("User", after="", limit=100, partition=partition)
            assert found == [i for i in ids if partition_of(i, count) == partition]

    async def test_entity_ids_with_one_feature_leave_out_entities_that_have_only_others(
        self, store: Opened
    ) -> None:
        await store.online.put(
            [
                change(entity_id="u1"),
                change(entity_id="u2", feature="other"),
                change(entity_id="u3"),
            ]
        )
        having = await store.online.entity_ids("User", after="", limit=10, having="clicks")
        assert having == ["u1", "u3"]
        assert await store.online.entity_ids("User", after="", limit=10) == ["u1", "u2", "u3"]

    async def test_the_entities_that_have_a_value_of_each_series_are_counted(
        self, store: Opened
    ) -> None:
        await store.online.put([change(entity_id=f"u{number}") for number in range(30)])
        await store.online.put([change(entity_id="u1", feature="other")])
        assert await store.online.count("User", ["other", "clicks", "none"]) == [1, 30, 0]
        assert await store.online.count("Item", ["clicks"]) == [0]

    async def test_drop_removes_the_values_of_a_series_and_returns_their_number(
        self, store: Opened
    ) -> None:
        await store.online.put(
            [
                *(change(feature="clicks@2", entity_id=f"u{number}") for number in range(3)),
                *(change(number, entity_id=f"u{number}") for number in range(3)),
                change(feature="clicks@2", entity="Page", entity_id="u1"),
            ]
        )
        assert await store.online.drop("User", "clicks@2") == 3
        assert await store.online.drop("User", "clicks@2") == 0
        found = await store.online.get("User", ["u0", "u1", "u2"])
        assert [list(cells) for cells in found] == [["clicks"]] * 3
        (page,) = await store.online.get("Page", ["u1"])
        assert list(page) == ["clicks@2"]

    async def test_drop_makes_a_batch_conflict_that_would_write_the_value_again(
        self, store: Opened
    ) -> None:
        await store.online.put([change(feature="old"), change(feature="kept")])
        _, batch = await store.take_clicks(1)
        await store.online.drop("User", "old")
        with pytest.raises(VersionConflictError):
            await store.bus.commit(outcome(batch, [change(5)]))

    async def test_a_forgotten_entity_has_no_values_and_is_in_no_list(
        self, store: Opened, other: Opened
    ) -> None:
        await store.online.put(
            [
                *(change(feature=feature, entity_id="u1") for feature in ("clicks", "other")),
                change(entity_id="u2"),
                change(entity="Page", entity_id="u1"),
            ]
        )
        assert await other.online.forget("User", "u1") == 2
        assert await other.online.forget("User", "u1") == 0
        assert await store.online.get("User", ["u1"]) == [{}]
        assert await store.online.entity_ids("User", after="", limit=10) == ["u2"]
        assert await store.online.entity_ids("Page", after="", limit=10) == ["u1"]
        await store.online.put([change(3, entity_id="u1")])
        assert await store.online.entity_ids("User", after="", limit=10) == ["u1", "u2"]

    async def test_a_running_batch_of_a_forgotten_entity_cannot_be_committed(
        self, store: Opened
    ) -> None:
        await store.online.put([change(feature="old")])
        _, batch = await store.take_clicks(1)
        await store.online.forget("User", "u1")
        with pytest.raises((VersionConflictError, LeaseLostError)):
            await store.bus.commit(outcome(batch, [change(5)]))

    async def test_entities_that_are_written_to_while_a_series_is_dropped_keep_their_other_values(
        self, store: Opened, other: Opened
    ) -> None:
        ids = [f"u{number:02d}" for number in range(20)]
        await store.online.put([change(feature="old", entity_id=each) for each in ids])
        dropped, *_ = await asyncio.gather(
            store.online.drop("User", "old"),
            *(other.online.put([change(7, entity_id=each)]) for each in ids),
        )
        assert dropped == len(ids)
        found = await store.online.get("User", ids)
        assert [list(cells) for cells in found] == [["clicks"]] * len(ids)
