"""Conformance tests of the ``ConsumerGroups`` port."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from conformance.suite import Connect, Opened, Suite, clicks, outcome, until
from headwater.errors import GroupInUseError, UnknownGroupError
from headwater.model.admin import ConsumerGroup

_EVENTS = 8


class ConsumerGroupsConformance(Suite):
    """The consumer groups of the store; the workers of each get every event."""

    async def test_the_workers_of_each_group_get_every_event(self, connect: Connect) -> None:
        groups = [await Opened.by(connect, name) for name in ("a", "b")]
        leases = [await group.hold(f"w{index}") for index, group in enumerate(groups)]
        assert [lease.partition for lease in leases[0]] == [lease.partition for lease in leases[1]]
        await groups[0].publish(clicks(_EVENTS))
        for group, held in zip(groups, leases, strict=True):
            batch = await group.only_batch(held)
            numbers = [delivery.event.payload["number"] for delivery in batch.deliveries]
            assert numbers == list(range(_EVENTS))
            await group.bus.commit(outcome(batch))
            assert await group.bus.backlog() == 0

    async def test_heartbeat_lists_the_workers_of_its_group_alone(self, connect: Connect) -> None:
        one, two = await Opened.by(connect, "a"), await Opened.by(connect, "b")
        await one.hold("w1", [])
        await two.hold("w2", [])
        assert await one.leases.heartbeat("w1", []) == ["w1"]

    async def test_groups_returns_all_groups_by_name_also_those_without_live_workers(
        self, connect: Connect
    ) -> None:
        began = datetime.now(UTC).replace(microsecond=0)
        store = await Opened.by(connect, "done")
        assert await store.groups.groups() == []
        await store.publish(clicks(_EVENTS))
        await store.bus.commit(outcome(await store.only_batch(await store.hold())))
        left = await Opened.by(connect, "left")
        await left.hold("w2")
        await left.leases.deregister("w2")

        async def is_measured() -> bool:
            await store.leases.heartbeat("w1", [])
            return (await _named(store, "done")).workers == ["w1"]

        await until(is_measured)
        done, other = await _named(store, "done"), await _named(store, "left")
        assert (done.waiting, done.oldest_at) == (0, None)
        assert done.committed_at is not None
        assert done.committed_at >= began
        (heartbeat,) = done.heartbeats
        assert heartbeat >= began
        assert (other.workers, other.waiting, other.committed_at) == ([], _EVENTS, None)
        waiting = [await store.groups.waiting(each) for each in range(store.bus.partitions)]
        assert [each for each in waiting if any(each.values())] == [{"done": 0, "left": _EVENTS}]
        assert other.oldest_at is not None
        assert [group.name for group in await store.groups.groups()] == ["done", "left"]

    async def test_an_event_is_kept_until_every_group_has_committed_it(
        self, connect: Connect
    ) -> None:
        store, left = await Opened.by(connect, "a"), await Opened.by(connect, "left")
        # A group that has not begun is at the oldest event that is kept.
        unused = await Opened.by(connect, "unused")
        await left.hold("w2")
        await left.leases.deregister("w2")
        await store.publish(clicks(_EVENTS))
        await store.bus.commit(outcome(await store.only_batch(await store.hold())))
        await store.offline.maintain()
        assert await unused.bus.backlog() == _EVENTS
        await store.groups.drop("left")

        async def are_trimmed() -> bool:
            await store.offline.maintain()
            return await unused.bus.backlog() == 0

        await until(are_trimmed)

    async def test_a_group_that_was_dropped_begins_at_the_oldest_event_that_is_kept(
        self, connect: Connect
    ) -> None:
        store, other = await Opened.by(connect, "a"), await Opened.by(connect, "b")
        await store.publish(clicks(_EVENTS))
        await other.hold("w2")
        await store.bus.commit(outcome(await store.only_batch(await store.hold())))
        await store.leases.deregister("w1")
        await store.groups.drop("a")
        assert [group.name for group in await other.groups.groups()] == ["b"]
        again = await Opened.by(connect, "a")
        batch = await again.only_batch(await again.hold())
        assert len(batch.deliveries) == _EVENTS

    async def test_a_group_with_live_workers_is_not_dropped(self, connect: Connect) -> None:
        store = await Opened.by(connect, "a")
        await store.publish(clicks(1))
        leases = await store.hold()

        async def is_refused() -> bool:
            await store.leases.heartbeat("w1", leases)
            with pytest.raises(GroupInUseError, match="w1"):
                await store.groups.drop("a")
            return True

        await until(is_refused)
        await store.bus.commit(outcome(await store.only_batch(leases)))

    async def test_declared_returns_the_live_workers_and_what_each_of_them_declares(
        self, connect: Connect
    ) -> None:
        store, other = await Opened.by(connect, "a"), await Opened.by(connect, "a")
        assert await store.groups.declared("a") == {}
        await store.leases.register("w1", ["x on click"])
        await other.leases.register("w2", ["y on click", "x on click"])

        async def are_declared() -> bool:
            await store.leases.heartbeat("w1", [])
            await other.leases.heartbeat("w2", [])
            return await store.groups.declared("a") == {
                "w1": {"x on click"},
                "w2": {"x on click", "y on click"},
            }

        await until(are_declared)
        assert await store.groups.declared("b") == {}

    async def test_dropping_an_unknown_group_is_refused(self, connect: Connect) -> None:
        store = await Opened.by(connect, "a")
        await store.hold()
        with pytest.raises(UnknownGroupError, match="did you mean 'a'"):
            await store.groups.drop("aa")

    async def test_a_group_is_created_at_the_positions_of_another(self, connect: Connect) -> None:
        store = await Opened.by(connect, "a")
        await store.publish(clicks(_EVENTS))
        batch = await store.only_batch(await store.hold())
        last = batch.deliveries[-1].position
        await store.bus.commit(outcome(batch))
        created = await store.groups.create("new", like="a")
        partition = batch.lease.partition
        assert created == dict.fromkeys(range(store.bus.partitions), "0") | {partition: last}
        assert created == await store.groups.positions("a")
        await store.publish(clicks(2 * _EVENTS)[_EVENTS:])
        new = await Opened.by(connect, "new")
        first = await new.only_batch(await new.hold("w2"))
        numbers = [delivery.event.payload["number"] for delivery in first.deliveries]
        assert numbers == list(range(_EVENTS, 2 * _EVENTS))

    async def test_a_group_that_exists_keeps_its_positions(self, connect: Connect) -> None:
        store, new = await Opened.by(connect, "a"), await Opened.by(connect, "new")
        before = await store.groups.create("new", like="a")
        assert set(before.values()) == {"0"}
        await store.publish(clicks(_EVENTS))
        leases = await store.hold()
        await store.bus.commit(outcome(await store.only_batch(leases)))
        assert await store.groups.create("new", like="a") == before
        batch = await new.only_batch(await new.hold("w2"))
        await new.bus.commit(outcome(batch))
        after = before | {batch.lease.partition: batch.deliveries[-1].position}
        assert await store.groups.create("new", like="a") == after
        assert await store.groups.positions("new") == after

    async def test_a_created_group_keeps_the_events_that_follow(self, connect: Connect) -> None:
        store, unused = await Opened.by(connect, "a"), await Opened.by(connect, "unused")
        await store.groups.create("new", like="a")
        await store.publish(clicks(_EVENTS))
        await store.bus.commit(outcome(await store.only_batch(await store.hold())))
        await store.offline.maintain()
        assert await unused.bus.backlog() == _EVENTS
        assert [group.waiting for group in await store.groups.groups()] == [0, _EVENTS]
        await store.groups.drop("new")
        assert set((await store.groups.positions("new")).values()) == {"0"}


async def _named(store: Opened, name: str) -> ConsumerGroup:
    """Return the group of this name."""
    (found,) = [group for group in await store.groups.groups() if group.name == name]
    return found
