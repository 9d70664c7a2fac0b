"""Workers die, stall, are cut off and return: each event takes effect once, in order.

Two workers share a real Redis. They read, commit, crash, lose their leases and commit all the
same, and lose their connections before or after a commit has arrived.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import msgspec
import pytest
from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conformance.suite import START, dead_letter
from headwater.backends.redis.client import command
from headwater.backends.redis.environment import RedisEnvironment, open_redis
from headwater.backends.redis.errors import LostError
from headwater.core.clock import SystemClock
from headwater.core.partitioning import partition_of
from headwater.errors import LeaseLostError
from headwater.model.values import Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import Batch, BatchOutcome, Change, DeadLetterQuery, Delivery, Handled, Lease
from headwater.settings.schema import Settings
from tests.backends.redis.confirming import confirm

T = TypeVar("T")

ENTITIES = ("u1", "u2", "u3", "u4", "u5")
PARTITIONS = 2
ENDINGS = ("committed", "committed and cut off", "refused")
TOUCHES = {"note": {"User"}}
DAY = timedelta(days=1)

workers = st.sampled_from((0, 1))
rarely = st.sampled_from((False, False, False, True))


class Worker:
    """One connection to the store, with the leases and batches that it holds."""

    def __init__(self, number: int, opened: RedisEnvironment) -> None:
        self.opened = opened
        self.name = f"w{number}-{uuid4().hex[:6]}"
        self.leases: dict[int, Lease] = {}
        self.batches: dict[int, Batch] = {}


class Engine(RuleBasedStateMachine):
    """Redis as workers use it, and a model of its contents."""

    url: ClassVar[str]
    outcomes: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        prefix = f"machine-{uuid4().hex[:12]}"
        self.settings = Settings().replace(
            redis={"url": self.url, "prefix": prefix, "timeout": 60, "connect_timeout": 60},
            partitions=PARTITIONS,
            worker={"lease_ttl": 600},
        )
        self.published = 0
        self.waiting: list[list[tuple[str, int]]] = [[] for _ in range(PARTITIONS)]
        self.journals: dict[str, list[int]] = {entity_id: [] for entity_id in ENTITIES}
        self.failing: set[int] = set()
        self.dead: list[int] = []
        self.observer = self.run(open_redis(self.settings, SystemClock()))
        self.run(confirm(self.observer))
        self.workers = [self.hire(0), self.hire(1)]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def hire(self, number: int) -> Worker:
        worker = Worker(number, self.run(open_redis(self.settings, SystemClock())))
        self.run(worker.opened.leases.register(worker.name))
        return worker

    @rule(entity_ids=st.lists(st.sampled_from(ENTITIES), min_size=1, max_size=6), data=st.data())
    def publish(self, entity_ids: list[str], data: st.DataObject) -> None:
        for entity_id in entity_ids:
            self.publish_one(entity_id, fails=data.draw(rarely), again=data.draw(rarely))

    def publish_one(self, entity_id: str, *, fails: bool, again: bool) -> None:
        number, self.published = self.published, self.published + 1
        event = ServiceEvent("note", entity_id, {"number": number}, START, f"e{number}")
        answers = [
            self.run(self.observer.bus.publish([event], dedup_window=DAY))[0].duplicate
            for _ in range(1 + again)
        ]
        assert answers == [False, True][: 1 + again]
        self.waiting[partition_of(entity_id, PARTITIONS)].append((entity_id, number))
        if fails:
            self.failing.add(number)

    @rule(number=workers)
    def claim(self, number: int) -> None:
        worker = self.workers[number]
        claimed = self.run(worker.opened.leases.claim(worker.name, range(PARTITIONS)))
        for lease in claimed:
            worker.leases[lease.partition] = lease
            worker.batches.pop(lease.partition, None)

    @rule(number=workers, limit=st.integers(1, 4))
    def read(self, number: int, limit: int) -> None:
        self.claim(number)
        worker = self.workers[number]
        for lease in list(worker.leases.values()):
            await_news = worker.opened.bus.wait(worker.name, 0.0)
            self.run(await_news)
            try:
                batches = self.run(worker.opened.bus.read([lease], limit, TOUCHES))
            except LeaseLostError:
                assert not self.holds(lease)
                del worker.leases[lease.partition]
                continue
            for batch in batches:
                # The page that came with the last commit is read without asking for the lease.
                assert not self.holds(lease) or _numbers(batch) == [
                    n for _, n in self.waiting[lease.partition][: len(batch.deliveries)]
                ]
                worker.batches[lease.partition] = batch

    @rule(number=workers, limit=st.integers(1, 4), arrives=st.none() | st.booleans())
    def work(self, number: int, limit: int, *, arrives: bool | None) -> None:
        """Do in one step what single steps seldom do one after the other."""
        self.read(number, limit)
        if arrives is None:
            self.commit(number)
        else:
            self.commit_and_be_cut_off(number, arrives=arrives)

    @rule(number=workers, limit=st.integers(1, 4), is_slower=st.booleans())
    def stall(self, number: int, limit: int, *, is_slower: bool) -> None:
        """A worker stalls until the other one has its partitions, then commits all the same."""
        self.read(number, limit)
        for partition in range(PARTITIONS):
            self.expire(partition)
        self.read(1 - number, limit)
        for each in (1 - number, number) if is_slower else (number, 1 - number):
            self.commit(each)

    @precondition(lambda self: any(worker.batches for worker in self.workers))
    @rule(number=workers)
    def commit(self, number: int) -> None:
        worker = self.workers[number]
        for partition, batch in list(worker.batches.items()):
            del worker.batches[partition]
            is_next = self.is_next(batch)
            try:
                self.run(worker.opened.bus.commit(self.outcome(batch)))
            except LeaseLostError:
                assert not is_next
                self.outcomes["refused"] += 1
            else:
                assert is_next
                self.took_effect(batch, "committed")

    @precondition(lambda self: any(worker.batches for worker in self.workers))
    @rule(number=workers, arrives=st.booleans())
    def commit_and_be_cut_off(self, number: int, *, arrives: bool) -> None:
        """The connection breaks, and the worker cannot know whether the commit arrived."""
        worker = self.workers[number]
        for partition, batch in list(worker.batches.items()):
            del worker.batches[partition]
            before = self.cursor(partition)
            with pytest.raises((LostError, LeaseLostError)):
                self.run(_cut(worker, self.observer, self.outcome(batch), arrives=arrives))
            if self.cursor(partition) != before:
                self.took_effect(batch, "committed and cut off")

    @rule(number=workers)
    def crash(self, number: int) -> None:
        """A worker dies while it holds leases and batches."""
        self.run(self.workers[number].opened.close())
        self.workers[number] = self.hire(number)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def expire(self, partition: int) -> None:
        """A lease expires, as when its worker was stopped, and the worker does not know."""
        key = self.observer.keys.parts[partition].lease
        self.run(self.observer.redis.call(command(key, "DEL", key)))

    @rule(number=workers)
    def release(self, number: int) -> None:
        worker = self.workers[number]
        self.run(worker.opened.leases.release(list(worker.leases.values())))
        worker.leases.clear()
        worker.batches.clear()

    @rule(number=workers)
    def cut(self, number: int) -> None:
        """All connections of a worker break between two calls."""
        worker = self.workers[number]
        self.run(_break_connections(worker))

    @precondition(lambda self: self.dead)
    @rule()
    def redrive(self) -> None:
        letters = self.run(self.observer.dead_letters.letters(DeadLetterQuery()))
        for letter in letters:
            number = letter.event.payload["number"]
            self.failing.discard(number)
            self.run(self.observer.dead_letters.redrive([letter.id]))
            self.waiting[letter.partition].append((letter.event.entity_id, number))
        self.dead.clear()

    @invariant()
    def every_event_took_effect_once_in_order_or_waits(self) -> None:
        cells = self.run(self.observer.online.get("User", ENTITIES))
        assert [_journal(own) for own in cells] == list(self.journals.values())
        assert self.run(self.observer.bus.backlog()) == sum(map(len, self.waiting))
        letters = self.run(self.observer.dead_letters.letters(DeadLetterQuery()))
        assert sorted(letter.event.payload["number"] for letter in letters) == sorted(self.dead)

    def outcome(self, batch: Batch) -> BatchOutcome:
        """Return the outcome of a batch with a journal handler."""
        cells: dict[EntityKey, Cells] = {key: state.cells for key, state in batch.states.items()}
        changes: list[Change] = []
        dead = []
        for delivery in batch.deliveries:
            number = delivery.event.payload["number"]
            if number in self.failing:
                dead.append(_letter(batch, delivery))
                continue
            key = ("User", delivery.event.entity_id)
            value = msgspec.json.encode([*_journal(cells[key]), number])
            cell = Cell(msgspec.Raw(value), 0, 0)
            cells[key] = {"journal": cell}
            changes.append(Change("journal", *key, "json", cell, delivery.event.event_id))
        return BatchOutcome(
            batch=batch,
            versions={key: state.version for key, state in batch.states.items()},
            states={change.key: cells[change.key] for change in changes},
            changes=changes,
            handled=[Handled(delivery.event, 0.0, (), ()) for delivery in batch.deliveries],
            dead=dead,
        )

    def took_effect(self, batch: Batch, ending: str) -> None:
        self.outcomes[ending] += 1
        for delivery in batch.deliveries:
            entity_id, number = self.waiting[batch.lease.partition].pop(0)
            assert (entity_id, number) == (delivery.event.entity_id, _number(delivery))
            if number in self.failing:
                self.dead.append(number)
            else:
                self.journals[entity_id].append(number)

    def is_next(self, batch: Batch) -> bool:
        """Return whether a batch can be committed: its lease is valid and it is the next."""
        return self.holds(batch.lease) and _numbers(batch) == [
            n for _, n in self.waiting[batch.lease.partition][: len(batch.deliveries)]
        ]

    def holds(self, lease: Lease) -> bool:
        key = self.observer.keys.parts[lease.partition].group
        held = self.run(self.observer.redis.call(command(key, "HGET", key, "lease")))
        return bool(held == f"{lease.owner}:{lease.epoch}".encode())

    def cursor(self, partition: int) -> bytes:
        key = self.observer.keys.parts[partition].group
        cursor: bytes = self.run(self.observer.redis.call(command(key, "HGET", key, "cursor")))
        return cursor

    def teardown(self) -> None:
        rows: list[list[Any]] = []
        for partition in range(PARTITIONS):
            portion = self.run(self.observer.outbox.fetch("history", partition, "", 1_000_000))
            rows += msgspec.json.decode(portion.rows) if portion else []
        applied = sum(map(len, self.journals.values()))
        assert len(rows) == len({row[7] for row in rows}) == applied
        for worker in self.workers:
            self.run(worker.opened.close())
        self.run(self.observer.close())
        self.loop.close()


async def _cut(
    worker: Worker, observer: RedisEnvironment, outcome: BatchOutcome, *, arrives: bool
) -> None:
    """Commit over a connection that breaks before the commit or its reply has arrived."""
    await worker.opened.redis.call(command("k", "PING"))  # there is a connection to break
    (connection,) = worker.opened.redis.connections.values()

    beside: list[asyncio.Future[Any]] = []
    if not arrives:
        # The first of a turn leaves at once, what follows at its end.
        beside.append(asyncio.ensure_future(connection.calls([["PING"]])))
    committing = asyncio.ensure_future(worker.opened.bus.commit(outcome))
    await asyncio.sleep(0)
    if arrives and not committing.done():
        connection.transport.pause_reading()
        mark = uuid4().hex
        beside.append(asyncio.ensure_future(connection.calls([["SET", mark, 1, "EX", 60]])))
        while not await observer.redis.call(command(mark, "GET", mark)):
            pass
    await _break_connections(worker)
    await asyncio.gather(*beside, return_exceptions=True)
    await committing


async def _break_connections(worker: Worker) -> None:
    for connection in [*worker.opened.redis.connections.values()]:
        connection.close()
        await connection.closed


def _number(delivery: Delivery) -> int:
    number: int = delivery.event.payload["number"]
    return number


def _numbers(batch: Batch) -> list[int]:
    return [_number(delivery) for delivery in batch.deliveries]


def _letter(batch: Batch, delivery: Delivery) -> Any:
    letter = dead_letter(batch, "journal")
    return msgspec.structs.replace(letter, event=delivery.event, position=delivery.position)


def _journal(cells: Cells) -> Sequence[int]:
    return msgspec.json.decode(cells["journal"].value, type=list[int]) if cells else []


def test_each_event_takes_effect_once_and_in_order(redis_url: str) -> None:
    Engine.url, Engine.outcomes = redis_url, Counter()
    rounds = settings(max_examples=30, stateful_step_count=40)
    # Steps by chance would do little in the right order, and then this test would prove nothing.
    # How much they do depends on time, too: a lease expires earlier on a busy machine.
    for number in range(12):
        run_state_machine_as_test(seed(number)(Engine), settings=rounds)
        if number and all(Engine.outcomes[each] >= 10 for each in ENDINGS):
            return
    raise AssertionError(f"too few steps that matter: {Engine.outcomes}")
