"""Workers begin to run a new version of a feature: each event counts once, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextvars import Context
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.backends.connect import connect_group
from headwater.core.logging import Outage
from headwater.declarations.run_set import RunSet
from headwater.declarations.runtime import runtime_of
from headwater.declarations.series import shape_of
from headwater.engine.engine import Engine
from headwater.engine.worker.joining import CatchUp, Joiner, catching_up
from headwater.engine.worker.running_versions import RunningVersions
from headwater.history.backfill.steps import cancelled
from headwater.history.versions import change_version, version_of
from headwater.model.catalog import BackfillState, CatalogEntry, CatalogState, FeatureVersion
from headwater.ports import position_order
from tests.engine.support import until

pytestmark = pytest.mark.both_environments

NAME, SERIES, GROUP = "seen", "seen@2", "backfill-1"
USERS = 6
FAILING: set[str] = set()
"""The ids of events that the handler fails for."""
CONFLICTS: list[str] = []
"""The ids of events that the handler changes another value of the entity for, each once."""


class Gate:
    """Where a handler waits: whether it is there, and whether it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()


GATES: dict[str, Gate] = {}
"""The ids of events that the handler waits for, each in front of its gate."""


@pytest.fixture
async def engine(store: FeatureStore, user: type) -> Engine:
    """Return an open store with a feature that keeps the ids of all events that it was given."""

    FAILING.clear()
    CONFLICTS.clear()
    GATES.clear()

    @feature(entity=user, trigger="note")
    async def note(user_id: str, event: ServiceEvent) -> int:
        return 0

    @feature(entity=user, trigger="buy", name=NAME, default=[], max_retries=0)
    async def seen(user_id: str, event: ServiceEvent) -> list[str]:
        if event.event_id in GATES:
            GATES[event.event_id].reached.set()
            await GATES[event.event_id].opened.wait()
        if event.event_id in FAILING:
            raise ValueError(event.event_id)
        before = await store.get_feature(NAME, user_id)
        if event.event_id in CONFLICTS:
            CONFLICTS.remove(event.event_id)
            write = store.set_feature("note", user_id, len(CONFLICTS))
            await asyncio.create_task(write, context=Context())
        return [*before, event.event_id]

    return await runtime_of(store).open()


@pytest.fixture
async def backfill(store: FeatureStore, engine: Engine) -> BackfillState:
    """Return a backfill that has replayed nothing, after a first event of each user."""
    await publish(store, "a")
    await Worker(store).drain()
    main_group = engine.settings.worker.consumer_group
    start = await engine.backends.groups.create(GROUP, like=main_group)
    return BackfillState(id="1", group=GROUP, main_group=main_group, start=start)


async def publish(store: FeatureStore, name: str) -> None:
    """Publish one event of each user."""
    for number in range(USERS):
        await store.publish("buy", f"u{number}", {}, event_id=f"{name}{number}")


async def enter(
    engine: Engine, backfill: BackfillState, state: Literal["building", "joining"] = "joining"
) -> None:
    """Enter the backfill's version in the catalog: workers begin to run it."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    shape = shape_of(engine.registry.feature(NAME))
    old = FeatureVersion(
        number=1,
        series=NAME,
        state="active",
        type=shape.type,
        structure=shape.structure,
        created_at=now,
    )
    new = replace(old, number=2, series=SERIES, state=state, backfill=backfill)
    before = await engine.backends.catalog.load()
    entry = CatalogEntry(feature=NAME, entity="User", versions=[old, new])
    features = {**before.features, NAME: entry}
    assert await engine.backends.catalog.replace(
        CatalogState(revision=before.revision + 1, features=features)
    )
    await engine.catalog.follow()


def joiner_of(engine: Engine) -> Joiner:
    """Return the joiner of a worker that runs the versions of the catalog."""
    joiner = Joiner(engine)
    joiner.follow(engine.registry.run_set(engine.settings.worker.consumer_group))
    return joiner


async def version(engine: Engine) -> FeatureVersion:
    found = version_of(await engine.backends.catalog.load(), SERIES)
    assert found is not None
    return found


async def values(engine: Engine, series: str = SERIES) -> Mapping[str, list[str]]:
    """Return the ids of events that each user's value has."""
    ids = [f"u{number}" for number in range(USERS)]
    codec = engine.registry.feature(NAME).codec
    rows = await engine.backends.online.get("User", ids)
    return {
        entity_id: codec.decode(cells[series].value)
        for entity_id, cells in zip(ids, rows, strict=True)
        if series in cells
    }


def expected(*names: str) -> Mapping[str, list[str]]:
    return {f"u{number}": [f"{name}{number}" for name in names] for number in range(USERS)}


@pytest.fixture
async def member(engine: Engine, backfill: BackfillState) -> AsyncIterator[CatchUp]:
    """Yield a member of the backfill's group."""
    variant = replace(engine.registry.feature(NAME), series=SERIES)
    async with catching_up(engine, variant, backfill) as joined:
        yield joined


async def test_the_group_runs_the_events_after_its_start_for_the_new_version_alone(
    store: FeatureStore, engine: Engine, backfill: BackfillState, member: CatchUp
) -> None:
    await publish(store, "b")
    await Worker(store).drain()
    for partition, upto in (await engine.backends.groups.positions(backfill.main_group)).items():
        assert await member.advance(partition, upto)
    assert await values(engine) == expected("b")
    assert await values(engine, NAME) == expected("a", "b")
    assert member.events == USERS


async def test_the_group_never_passes_the_position_it_is_given(
    store: FeatureStore, engine: Engine, backfill: BackfillState, member: CatchUp
) -> None:
    await publish(store, "b")
    await Worker(store).drain()
    positions = await engine.backends.groups.positions(backfill.main_group)
    await publish(store, "c")
    for partition, upto in positions.items():
        assert await member.advance(partition, upto)
    assert await values(engine) == expected("b")
    assert await engine.backends.groups.positions(GROUP) == positions
    # What it has run is not run again.
    for partition, upto in positions.items():
        assert await member.advance(partition, upto)
    assert await values(engine) == expected("b")


async def test_another_member_has_to_wait_for_the_partition(
    engine: Engine, backfill: BackfillState, store: FeatureStore, member: CatchUp
) -> None:
    await publish(store, "b")
    await Worker(store).drain()
    positions = await engine.backends.groups.positions(backfill.main_group)
    partition = max(positions, key=lambda each: position_order(positions[each]))
    settings = engine.settings.replace(worker={"consumer_group": GROUP})
    async with connect_group(settings, engine.clock) as other:
        await other.leases.register(
            "other", RunSet([replace(engine.registry.feature(NAME), series=SERIES)]).declared
        )
        await other.leases.heartbeat("other", [])
        (lease,) = await other.leases.claim("other", [partition])
        assert not await member.advance(partition, positions[partition])
        await other.leases.release([lease])
        assert await member.advance(partition, positions[partition])
        await other.leases.deregister("other")


async def test_conflicts_of_an_event_that_may_have_killed_its_worker_are_not_deaths(
    store: FeatureStore, engine: Engine, backfill: BackfillState, member: CatchUp
) -> None:
    await publish(store, "b")
    await Worker(store).drain()
    settings = engine.settings.replace(worker={"consumer_group": GROUP})
    async with connect_group(settings, engine.clock) as dead:
        await dead.leases.register("dead", engine.registry.run_set(backfill.main_group).declared)
        await dead.leases.heartbeat("dead", [])
        await dead.leases.claim("dead", range(dead.bus.partitions))
        await dead.leases.deregister("dead")
    CONFLICTS.extend(["b1"] * (settings.worker.max_deliveries + 1))
    await advance(engine, backfill, member)
    assert CONFLICTS == []
    assert await values(engine) == expected("b")
    assert await store.dead_letters.list() == []


async def test_partitions_join_one_by_one_and_the_last_one_makes_the_version_ready(
    store: FeatureStore, engine: Engine, backfill: BackfillState
) -> None:
    await publish(store, "b")
    await Worker(store).drain()
    await enter(engine, backfill)
    joiner, partitions = joiner_of(engine), engine.backends.bus.partitions
    for partition in range(partitions):
        assert (await version(engine)).state == "joining"
        assert joiner.is_due(partition)
        assert await joiner.join(partition)
        assert not joiner.is_due(partition)
    assert joiner.is_done
    assert (await version(engine)).state == "ready"
    assert await values(engine) == expected("b")
    done = (await version(engine)).backfill
    assert done is not None
    assert done.joined == await engine.backends.groups.positions(backfill.main_group)
    await joiner.leave()
    assert GROUP not in [group.name for group in await engine.backends.groups.groups()]


async def test_a_redriven_event_of_the_new_version_is_run_by_the_group_that_runs_it(
    store: FeatureStore, engine: Engine, backfill: BackfillState, member: CatchUp
) -> None:
    await enter(engine, backfill, state="building")
    await publish(store, "b")
    await Worker(store).drain()
    FAILING.add("b0")
    await advance(engine, backfill, member)
    (letter,) = await store.dead_letters.list()
    assert (letter.group, letter.event.event_id) == (backfill.main_group, "b0")
    FAILING.clear()
    await store.dead_letters.redrive(letter.id)
    await Worker(store).drain()
    assert (await values(engine, NAME))["u0"] == ["a0", "b0"]
    await advance(engine, backfill, member)
    (run,) = (await values(engine))["u0"]
    assert run.startswith("redrive:")
    assert await store.dead_letters.list() == []


async def advance(engine: Engine, backfill: BackfillState, member: CatchUp) -> None:
    """Run the events of the group up to the positions of the other one."""
    for partition, upto in (await engine.backends.groups.positions(backfill.main_group)).items():
        await until(partial(member.advance, partition, upto))


async def test_joining_again_changes_nothing(
    store: FeatureStore, engine: Engine, backfill: BackfillState
) -> None:
    await enter(engine, backfill)
    before = joiner_of(engine)
    assert await before.join(0)
    first = await version(engine)
    # The main group has gone on since.
    await publish(store, "b")
    leases = engine.backends.leases
    await leases.register("w1")
    for lease in await leases.claim("w1", [0]):
        await leases.release([lease])
    await leases.deregister("w1")
    late = joiner_of(engine)
    assert await late.join(0)
    assert await version(engine) == first
    assert await values(engine) == {}
    await before.leave()
    await late.leave()


async def test_a_batch_runs_what_its_own_worker_runs_while_another_one_here_begins_to_join(
    store: FeatureStore, engine: Engine, backfill: BackfillState
) -> None:
    await publish(store, "b")
    await publish(store, "c")
    gate = GATES["b0"] = Gate()
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await gate.reached.wait()
    await enter(engine, backfill)
    # Another worker on the same store is about to register with the new version.
    other = RunningVersions(engine, Outage("events"))
    await other.prepare()
    assert SERIES in [each.series for each in other.run_set.triggered]
    gate.opened.set()
    await until(lambda: is_ready(engine))
    worker.stop()
    await running
    assert await values(engine) == expected("b", "c")
    assert await values(engine, NAME) == expected("a", "b", "c")


async def is_ready(engine: Engine) -> bool:
    return (await version(engine)).state == "ready"


async def test_a_cancelled_version_is_not_joined(
    store: FeatureStore, engine: Engine, backfill: BackfillState
) -> None:
    await enter(engine, backfill)
    await publish(store, "b")
    joiner = joiner_of(engine)
    cancel = cancelled(engine.clock.now())
    await engine.catalog.change(lambda state: change_version(state, SERIES, cancel))
    assert await joiner.join(0)
    await joiner.leave()
    assert await values(engine) == {}


async def test_workers_of_another_group_do_not_join(
    engine: Engine, backfill: BackfillState
) -> None:
    await enter(engine, replace(backfill, main_group="others"))
    joiner = joiner_of(engine)
    assert not any(map(joiner.is_due, range(engine.backends.bus.partitions)))
