"""Worlds that are lived twice: live with edited features, and as a replay of the former ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent
from headwater.contexts.evaluation.replayed_history import ReplayedHistory
from headwater.declarations.runtime import runtime_of
from headwater.engine import engine as engines
from headwater.engine.engine import Engine
from headwater.ports import Point
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
    variant = engines.wire(registry, engine.settings, engine.clock, backends)
    runtime_of(edited)._engines.shared = variant  # noqa: SLF001 - as an evaluation does
    history.bind(variant)
    return Replayed(history, variant)


async def value_at(
    engine: Engine, name: str, entity_id: str, moment: datetime
) -> tuple[Any, datetime, datetime] | None:
    """Return the value that was known at a moment, with its times."""
    feature = engine.registry.features[name]
    [[past]] = await engine.backends.offline.as_of(
        [feature.series], [Point(entity_id, moment)], known=True
    )
    return None if past is None else (msgspec.json.decode(past.value), past.as_of, past.written_at)


class World:
    """Two stores that live through the same: one with the former and one with the edited file."""

    def __init__(
        self, former: FeatureStore, edited: FeatureStore, truth: FeatureStore, clock: ManualClock
    ) -> None:
        self.former, self.edited, self.truth = former, edited, truth
        self.clock = clock
        self.moments: list[datetime] = [clock.now()]

    async def publish(self, *events: tuple[str, str, dict[str, Any]], drain: bool = True) -> None:
        """Publish events to both and let their workers handle them, at the time of the clock."""
        made = [ServiceEvent(kind, of, payload, self.clock.now()) for kind, of, payload in events]
        for store in (self.former, self.truth):
            await store.bus.publish_many(made)
        if drain:
            await self.drain()

    async def drain(self) -> None:
        """Let the workers of both handle the events that wait."""
        for store in (self.former, self.truth):
            await store.drain()
        self.wait(timedelta(seconds=1))

    def wait(self, span: timedelta) -> None:
        """Let time pass; the moments before and after it are compared."""
        self.moments.append(self.clock.now())
        self.clock.advance(span)

    async def assert_same(
        self, names: Sequence[str], ids: Sequence[str], former: Sequence[str] = ()
    ) -> Replayed:
        """Assert that a replay gives the values of the live world at each moment."""
        replay = await replayed(self.former, self.edited, names, former)
        truth = await runtime_of(self.truth).open()
        await replay.history.preload({"User": ids}, self.clock.now())
        for moment in (*self.moments, self.clock.now()):
            for name in names:
                for of in ids:
                    expected = await value_at(truth, name, of, moment)
                    found = await value_at(replay.engine, name, of, moment)
                    assert found == expected, (name, of, moment)
        return replay
