"""Worlds that are lived twice: live with edited features, and as a replay of the former ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent
from headwater.contexts.evaluation.replayed_history import ReplayedHistory
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine, wire
from headwater.features.call_scope import at_moment
from headwater.testing import ManualClock


class Replayed(NamedTuple):
    """A replay of what happened to a store, with other features."""

    history: ReplayedHistory
    engine: Engine


async def replayed(
    real: FeatureStore, edited: FeatureStore, names: Sequence[str], former: Sequence[str]
) -> Replayed:
    """Replay the events of a store through some features of another one."""
    engine, registry = await runtime_of(real).open(), runtime_of(edited).registry
    for name, feature in list(registry.features.items()):
        if name in names or (feature.window is not None and feature.window.family in names):
            of = name if feature.window is None else feature.window.family
            registry.features[name] = replace(feature, series=f"{of}~eval")
    chosen = [feature for name, feature in registry.features.items() if name in names]
    history = ReplayedHistory(
        engine, chosen, {name: engine.registry.features[name] for name in former}
    )
    backends = replace(engine.backends, offline=history)
    variant = wire(registry, engine.settings, engine.clock, backends)
    runtime_of(edited).lend(variant)
    history.bind(variant)
    return Replayed(history, variant)


async def values_at(
    engine: Engine, names: Sequence[str], entity_id: str, moment: datetime
) -> dict[str, Any]:
    """Return the values that were known at a moment."""
    with at_moment(moment):
        (row,) = await engine.reader.read(names, [entity_id])
    return {name: value.value for name, value in row.items()}


async def publish_to(store: FeatureStore, kind: str, entity_id: str) -> None:
    """Publish an event at the time of the store's clock."""
    await store.bus.publish(ServiceEvent(kind, entity_id, {}, store.clock.now()))


class World:
    """Two stores that live through the same: one with the former and one with the edited file."""

    def __init__(
        self, former: FeatureStore, edited: FeatureStore, truth: FeatureStore, clock: ManualClock
    ) -> None:
        self.former, self.edited, self.truth = former, edited, truth
        self.clock = clock
        self.seen: dict[tuple[datetime, str], dict[str, Any]] = {}
        """What the one with the edited file had, by moment and entity id."""

    @property
    def live(self) -> tuple[FeatureStore, FeatureStore]:
        """The stores whose workers run."""
        return self.former, self.truth

    async def publish(
        self,
        *events: tuple[str, str, dict[str, Any]],
        late: timedelta = timedelta(),
    ) -> None:
        """Publish events to both, at the time of the clock or of an earlier time."""
        at = self.clock.now() - late
        made = [ServiceEvent(kind, of, payload, at) for kind, of, payload in events]
        for store in self.live:
            await store.bus.publish_many(made)

    async def set(self, name: str, entity_id: str, value: Any) -> None:
        """Set a feature in both."""
        for store in self.live:
            await store.set_feature(name, entity_id, value)

    async def drain(self, names: Sequence[str], ids: Sequence[str]) -> None:
        """Let the workers of both handle the events that wait; see what the values are then."""
        for store in self.live:
            await store.drain()
        await self.see(names, ids)

    async def see(self, names: Sequence[str], ids: Sequence[str]) -> None:
        """Note the values of the present, a millisecond later."""
        self.wait(timedelta(milliseconds=1))
        seen = await self.truth.get_features(names, ids)
        self.seen |= {(self.clock.now(), of): values for of, values in seen.items()}
        self.wait(timedelta(milliseconds=1))

    def wait(self, span: timedelta) -> None:
        """Let time pass."""
        if span:
            self.clock.advance(span)

    async def assert_same(
        self, replay: Sequence[str], former: Sequence[str], names: Sequence[str], ids: Sequence[str]
    ) -> Replayed:
        """Assert that a replay of some features gives all values of the live world."""
        started = await replayed(self.former, self.edited, replay, former)
        await started.history.preload({"User": ids[:1]}, self.clock.now())
        for (moment, of), expected in self.seen.items():
            found = await values_at(started.engine, names, of, moment)
            differing = [(n, found[n], expected[n]) for n in names if found[n] != expected[n]]
            assert differing == [], (of, moment, differing)
        return started

    async def former_events(self, ids: Sequence[str], types: Sequence[str]) -> Any:
        """Return the stored events of some ids."""
        offline = (await runtime_of(self.former).open()).backends.offline
        return await offline.events_of(ids, types, [])
