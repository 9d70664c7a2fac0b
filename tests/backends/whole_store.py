"""A program that uses everything a store can do on servers, to learn which rights that needs."""

from __future__ import annotations

from headwater.declarations.runtime import runtime_of
from headwater.doctor.examination import examine
from headwater.settings.schema import Settings
from tests.crossing.steps import (
    Assemble,
    Backfill,
    Convert,
    Enter,
    Export,
    Forget,
    Function,
    Index,
    Note,
    Prune,
    Publish,
    Redrive,
    Rename,
    Restart,
    Set,
    Step,
    Wait,
)
from tests.crossing.world import World

PROGRAM: list[Step] = [
    Publish("u1", 3, 0, bad=False, drain=True),
    Publish("u2", 4, 300, bad=True, drain=True),
    Note("u1", 2, 0),
    Index(1, 3),
    Set("u1", 1.0, 0),
    Assemble("u1"),
    Restart(),
    Redrive(),
    Function(10),
    Backfill(switch=True),
    Publish("u2", 5, 0, bad=False, drain=True),
    Convert(),
    Rename(),
    Enter("u1", 4),
    Assemble("u2"),
    Export(),
    Wait(300),
    Prune("history", 5),
    Prune("events", 5),
    Prune("records", 5),
    Forget("u2", may_return=False),
    Publish("u1", 6, 0, bad=False, drain=True),
]


async def use_everything(settings: Settings) -> None:
    """Use every capability of a store."""
    world = World(settings)
    try:
        for step in PROGRAM:
            await step.take(world)
            await world.observe()
        await world.check("everything")
        await _operate(world)
    finally:
        await world.store.close()


async def _operate(world: World) -> None:
    store = world.store
    await store.publish("bought", "u1", {"amount": 1}, event_id="same")
    await store.publish("bought", "u1", {"amount": 1}, event_id="same")
    await store.drain()
    await store.admin.rebuild()
    await store.admin.lag()
    groups = await store.admin.groups()
    assert [group.waiting for group in groups if group.name == "headwater"] in ([], [0])
    assert all(health.ok for health in await store.admin.health())
    for letter in await store.dead_letters.list():
        await store.dead_letters.discard(letter.id)
    for index in await store.indexes.list():
        await store.indexes.reindex(index.name)
    engine = await runtime_of(store).open()
    await engine.backends.offline.maintain()
    errors = {
        f"{finding.area}: {finding.check}"
        for finding in (await examine(store)).findings
        if finding.severity == "error"
    }
    assert errors <= {"message bus: fsync", "relational store: fsync"}, errors
