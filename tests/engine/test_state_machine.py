"""Random publishing, failures, crashes and restarts: each event takes effect once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.batch import run_batch
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.effort import scaled
from tests.engine.support import backlog, query, run_set

T = TypeVar("T")

ENTITIES = ("u1", "u2", "u3", "u4")
MAX_RETRIES = 2

entity_ids = st.sampled_from(ENTITIES)
failures = st.sampled_from((0, 0, 0, 1, MAX_RETRIES, MAX_RETRIES + 1))


class Model:
    """The expected state: waiting events, journals and dead letters."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, int]] = []
        self.journals: dict[str, list[int]] = {entity_id: [] for entity_id in ENTITIES}
        self.failures_left: dict[int, int] = {}
        self.dead: list[int] = []

    def handle(self, entity_id: str, number: int) -> None:
        """Return the expected result of one event after its commit."""
        if self.failures_left[number] > MAX_RETRIES:
            self.dead.append(number)
        else:
            self.journals[entity_id].append(number)


class Engine(RuleBasedStateMachine):
    """A store that is used, fails and is dropped in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(prefix="hw-")
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.model = Model()
        self.published: list[str] = []
        self.crashes = 0
        self.tried: dict[int, int] = {}
        self.store = self.open()

    def open(self) -> FeatureStore:
        chosen = Settings().replace(
            home=self.folder.name,
            partitions=2,
            worker={"batch_size": 3, "max_deliveries": 1_000, "breaker_threshold": 0},
            log={"level": "error"},
        )
        store = FeatureStore(settings=chosen, clock=self.clock)

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="note", max_retries=MAX_RETRIES)
        async def journal(user_id: str, event: ServiceEvent) -> list[int]:
            number = event.payload["number"]
            before = await store.get_feature("journal", user_id) or []
            await store.set_feature("journal", user_id, [*before, -1])
            await asyncio.sleep(0)
            self.tried[number] = self.tried.get(number, 0) + 1
            if self.tried[number] <= self.model.failures_left[number]:
                raise ValueError(number)
            return [*before, number]

        return store

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @rule(entity_id=entity_ids, failures=failures)
    def publish(self, entity_id: str, failures: int) -> None:
        number = len(self.published)
        self.published.append(entity_id)
        self.model.failures_left[number] = failures
        self.run(self.store.publish("note", entity_id, {"number": number}, event_id=f"e{number}"))
        self.model.waiting.append((entity_id, number))

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def publish_again(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.published) - 1))
        entity_id = self.published[number]
        self.run(self.store.publish("note", entity_id, {"number": number}, event_id=f"e{number}"))

    @rule()
    def work(self) -> None:
        self.tried.clear()
        self.run(self.store.drain())
        self.expect(self.model.waiting)
        self.model.waiting = []

    @rule(commits=st.integers(0, 2))
    def crash(self, commits: int) -> None:
        """A worker takes over, commits some of its batches, and dies with the rest in its hands."""
        self.run(self.work_and_die(commits))
        self.store = self.open()

    async def work_and_die(self, commits: int) -> None:
        engine = await runtime_of(self.store).open()
        backends, bus = engine.backends, engine.backends.bus
        self.crashes += 1
        features = await run_set(self.store)
        await backends.leases.register(f"doomed-{self.crashes}", features.declared)
        leases = await backends.leases.claim(f"doomed-{self.crashes}", range(bus.partitions + 1))
        for number, batch in enumerate(await bus.read(leases, 3, features.touches)):
            self.tried.clear()
            outcome = await run_batch(engine, features, batch)
            if number < commits:
                await bus.commit(outcome)
                done = [
                    (each.event.entity_id, each.event.payload["number"])
                    for each in batch.deliveries
                ]
                self.expect(done)
                self.model.waiting = [each for each in self.model.waiting if each not in done]
        # Its leases stay in its name: nothing is released by a process that is dead.
        await engine.backends.lifecycle.close()

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.store = self.open()

    @precondition(lambda self: self.model.dead)
    @rule()
    def redrive(self) -> None:
        """Fix the cause of the failures and redrive the dead letters."""
        waiting = self.run(self.store.dead_letters.list())
        for letter in waiting:
            self.model.failures_left[letter.event.payload["number"]] = 0
            self.run(self.store.dead_letters.redrive(letter.id))
            entry = (letter.event.entity_id, letter.event.payload["number"])
            self.model.waiting.append(entry)
        self.model.dead.clear()

    def expect(self, events: Sequence[tuple[str, int]]) -> None:
        for entity_id, number in events:
            self.model.handle(entity_id, number)

    @invariant()
    def every_acknowledged_event_took_effect_once_in_order_or_waits(self) -> None:
        rows = self.run(self.store.get_features(["journal"], ENTITIES))
        assert {i: row["journal"] or [] for i, row in rows.items()} == self.model.journals
        assert self.run(backlog(self.store)) == len(self.model.waiting)
        dead = self.run(self.store.dead_letters.list())
        assert sorted(letter.event.payload["number"] for letter in dead) == sorted(self.model.dead)

    def teardown(self) -> None:
        applied = sum(map(len, self.model.journals.values()))
        history = query(self.store, "SELECT count(*), count(DISTINCT cause) FROM feature_history")
        assert self.run(history) == [(applied, applied)]
        self.run(self.store.close())
        self.loop.close()
        self.folder.cleanup()


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=scaled(20), stateful_step_count=25)
