"""The durable log of events in Redis Streams.

A script can write only to its own shard of a cluster, so a commit puts the writes of handlers to
entities on other shards into a stream of its partition. They are applied from there, once and in
order: right after the commit, or by the next owner of the partition. On a single server there are
none, because the commit writes everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headwater.backends.redis.client import Call, Redis, command, script_call
from headwater.backends.redis.commit_waits import CommitWaits
from headwater.backends.redis.dead_letters import RedisDeadLetters
from headwater.backends.redis.erasures import RedisErasures
from headwater.backends.redis.keys import Keys, unhandled
from headwater.backends.redis.memory import store_bytes
from headwater.backends.redis.notifications import Notifications, Token
from headwater.backends.redis.online import RedisOnlineStore, Sender
from headwater.backends.redis.streams import (
    StreamPage,
    StreamPublisher,
    Touches,
    changes_json,
    documents_json,
    encode_state,
    event_fields,
    lease_text,
    next_entries,
    received_at,
    state_names,
    to_batch,
)
from headwater.core.clock import from_micros, to_micros
from headwater.core.logging import Outage, log
from headwater.core.partitioning import partition_of
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    LeaseLostError,
    VersionConflictError,
)
from headwater.model.admin import ConsumerLag
from headwater.model.events import PublishResult
from headwater.model.values import Cells, EntityKey, ServiceEvent, encode_cells
from headwater.ports import (
    Batch,
    BatchOutcome,
    Change,
    Lease,
    Ledger,
    Subjects,
    Tick,
    no_subjects,
    publish_result,
)

_encode = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(list[Change]).decode
_ERASED: bytes | None = b"erased"
"""Stands for the content of an event that is not accepted; no content is this object."""
# A connection transfers this well within its timeout, even if every partition is full.
_MAX_BYTES = 32 << 20
_MAX_PAGE_BYTES = 4 << 20
_FORWARDED = 100
"""How many commits are forwarded to other shards together."""
_TIMEOUT, _INSIST_TIMEOUT = 0.2, 1.0
_RETRY_PAUSE = 1.0
_Work = Callable[[], Awaitable[None]]


class RedisBus:
    """The log of events; a batch's effects and position are committed in one script."""

    def __init__(
        self,
        redis: Redis,
        keys: Keys,
        notifications: Notifications,
        publisher: StreamPublisher,
        dead_letters: RedisDeadLetters,
        online: RedisOnlineStore,
        erasures: RedisErasures,
    ) -> None:
        self.partitions = keys.partitions
        self._redis = redis
        self._keys = keys
        self._notifications = notifications
        self._prefetcher = Prefetcher(redis, keys, notifications)
        self._publisher = publisher
        self._dead_letters = dead_letters
        self._cross_shard = CrossShardWrites(redis, keys, online, notifications)
        self._erasures = erasures
        self.commits = CommitWaits(redis, keys)
        self.handled = self.commits.handled
        self.wait = notifications.wait
        self._last_read: dict[int, tuple[str, bytes]] = {}
        """The first position and the cursor of the last batch read from each partition."""

    async def publish(
        self,
        events: Sequence[ServiceEvent],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
        positions: bool = False,
    ) -> list[PublishResult]:
        indexes: dict[int, list[int]] = {}
        for index, event in enumerate(events):
            indexes.setdefault(partition_of(event.entity_id, self.partitions), []).append(index)
        accepted: list[bytes | None] = [_ERASED] * len(events)
        appended: dict[int, str] = {}
        while indexes:
            ledger = self._erasures.ledger
            checked = ledger.revision
            if checked:
                indexes = _without_erased(indexes, events, ledger, subjects)
            calls = [
                self._publisher.call(
                    partition,
                    [events[index] for index in group],
                    dedup_window,
                    checked=checked,
                    positions=positions,
                )
                for partition, group in indexes.items()
            ]
            answers = await self._redis.calls(calls, as_one=True)
            refused: dict[int, list[int]] = {}
            for (partition, group), answer in zip(indexes.items(), answers, strict=True):
                if answer is None:
                    refused[partition] = group
                    continue
                for index, content in zip(group, answer, strict=True):
                    # The content is a JSON array, and a position begins with a digit.
                    if positions and content[:1] != b"[":
                        appended[index], content = content.decode(), None
                    accepted[index] = content or None
            if refused:
                await self._erasures.refresh()
            indexes = refused
        results = [
            PublishResult(event.event_id, duplicate=False, erased=True)
            if content is _ERASED
            else publish_result(event, content)
            for event, content in zip(events, accepted, strict=True)
        ]
        for index, position in appended.items():
            results[index] = msgspec.structs.replace(results[index], position=position)
        return results

    async def publish_ticks(self, ticks: Sequence[Tick]) -> list[datetime | None]:
        # Each partition remembers its ticks, so a repeated call publishes only the missing ones.
        calls: list[Call] = []
        firsts: list[int] = []
        for tick in ticks:
            firsts.append(len(calls))
            targets = range(self.partitions) if tick.everywhere else [self.partitions]
            calls += [self._tick_call(tick, target) for target in targets]
        answers = await self._redis.calls(calls)
        befores = [answers[first] for first in firsts]
        return [None if before is None else from_micros(int(before)) for before in befores]

    def _tick_call(self, tick: Tick, partition: int) -> Call:
        keys = self._keys.parts[partition]
        event_type, entity_id, event, _ = event_fields(tick.event)
        return script_call(
            "tick",
            [keys.ticks, keys.events, keys.idle],
            *(self._keys.wake, partition, tick.feature, to_micros(tick.due)),
            *(event_type, entity_id, event),
        )

    async def read(
        self, leases: Sequence[Lease], limit: int, touches: Mapping[str, Collection[str]]
    ) -> list[Batch]:
        self._prefetcher.configure(limit, touches)
        await self._cross_shard.send_pending(leases)
        await self._prefetcher.fetch(leases)
        batches: list[Batch] = []
        for lease in leases:
            page = self._prefetcher.take(lease) if limit > 0 else None
            if page is not None:
                batches.append(to_batch(page, limit))
                first = batches[-1].deliveries[0].position
                self._last_read[lease.partition] = (first, page.cursor)
                limit -= len(batches[-1].deliveries)
        return batches

    async def attempt(self, lease: Lease, position: str) -> int:
        keys = self._keys.parts[lease.partition]
        arguments = (lease_text(lease), position, lease.owner, int(lease.suspect))
        call = script_call("attempt", [keys.group], *arguments)
        count: int | None = await self._redis.call(call)
        if count is None:
            raise LeaseLostError(lease.partition, lease.owner)
        return count

    async def commit(self, outcome: BatchOutcome) -> None:
        deliveries, lease = outcome.batch.deliveries, outcome.batch.lease
        first, cursor = self._last_read.pop(lease.partition, ("", b""))
        if first != deliveries[0].position:
            raise LeaseLostError(lease.partition, lease.owner)
        # The next page is read in the same round trip, and dropped if the commit is refused.
        written = self._cross_shard.split(outcome)
        read, keep = self._prefetcher.request(lease)
        verdict, page = await self._redis.calls([self._commit_call(outcome, written, cursor), read])
        if verdict == b"lease":
            raise LeaseLostError(lease.partition, lease.owner)
        if verdict == b"erased":
            await self._erasures.refresh()
            raise VersionConflictError(lease.partition)
        if verdict:
            keys = list(written.states)
            raise VersionConflictError(lease.partition, (keys[place] for place in verdict))
        # Of a server that had to be sent the script of the commit again, it is the page before.
        if page is not None and page[0] == deliveries[-1].position.encode():
            keep(page)
        await self._forward(lease.partition, writes=bool(written.remote), dead=bool(outcome.dead))

    async def _forward(self, partition: int, *, writes: bool, dead: bool) -> None:
        """Forward a commit's writes to other shards and its dead letters, or leave it for later."""
        try:
            if writes:
                await self._cross_shard.send(partition)
            if dead:
                await self._dead_letters.move(partition)
        except BackendError as error:
            log.warning("forwarding delayed", partition=partition, error=str(error))

    def _commit_call(self, outcome: BatchOutcome, written: SplitOutcome, cursor: bytes) -> Call:
        lease, deliveries = outcome.batch.lease, outcome.batch.deliveries
        keys = self._keys.parts[lease.partition]
        names: list[str] = []
        states: list[bytes] = []
        types: list[str] = []
        new: list[str] = []
        for key, cells in written.states.items():
            part, version = self._keys.of(key[1]), outcome.versions[key]
            names += (part.state(key),)
            states += (encode_state(version + 1, encode_cells(cells)),)
            if not version:
                types += (f"{part.ids}{key[0]}",)
                new += (key[1],)
        documents = documents_json(outcome.documents)
        redriven = [
            unhandled(delivery.event.entity_id, delivery.only, delivery.position)
            for delivery in deliveries
            if delivery.only is not None and delivery.group == self._keys.group
        ]
        names += types
        letters: list[bytes | str] = []
        for letter in outcome.dead:
            group = letter.group or self._keys.group
            names += (keys.unhandled(group),)
            letters += (
                _encode(msgspec.structs.replace(letter, group=group)),
                unhandled(letter.event.entity_id, letter.feature, letter.position),
            )
        follow_ups = [field for event in outcome.follow_ups for field in event_fields(event)[:3]]
        return script_call(
            "commit",
            [
                *(keys.group, keys.events, keys.changes),
                *(keys.dead, keys.cross_shard, keys.outbox, keys.erasures),
                *(keys.unhandled(self._keys.group), *names),
            ],
            *(lease_text(lease), cursor, deliveries[-1].position, len(deliveries)),
            *(self._keys.group, changes_json(written.changes), written.remote),
            *(len(states), len(new), len(outcome.dead), len(outcome.follow_ups)),
            *(len(documents), outcome.checked, len(redriven), *states, *new),
            *(*redriven, *letters, *follow_ups, *documents),
        )

    async def lag(self) -> list[ConsumerLag]:
        answers = await self._redis.calls(
            [script_call("lag", [keys.group, keys.events]) for keys in self._keys.parts]
        )
        return [
            ConsumerLag(
                partition,
                None if owner is None else owner.decode(),
                waiting,
                None if oldest is None else from_micros(received_at(oldest.decode())),
                int(committed),
            )
            for partition, (owner, waiting, oldest, committed) in enumerate(answers)
        ]

    async def backlog(self) -> int:
        return sum(lag.waiting for lag in await self.lag())

    async def memory(self) -> int | None:
        return await store_bytes(self._redis, self._keys)

    async def close(self) -> None:
        """Stop reading ahead and forwarding."""
        await self._prefetcher.close()
        await self._cross_shard.close()
        await self.commits.close()


def _without_erased(
    indexes: Mapping[int, Sequence[int]],
    events: Sequence[ServiceEvent],
    ledger: Ledger,
    subjects: Subjects,
) -> dict[int, list[int]]:
    """Return the places of the events that may be accepted, by partition."""
    kept = {
        partition: [index for index in group if not ledger.voiding(events[index], subjects)]
        for partition, group in indexes.items()
    }
    return {partition: group for partition, group in kept.items() if group}


class Prefetcher:
    """The state of each partition: its next page, known to be empty, or unknown."""

    def __init__(self, redis: Redis, keys: Keys, notifications: Notifications) -> None:
        self._redis = redis
        self._keys = keys
        self._notifications = notifications
        self._limit = 0
        self._touches: Touches = {}
        self._touches_json = b"{}"
        self._page_bytes = min(_MAX_PAGE_BYTES, _MAX_BYTES // len(keys.parts))
        self._pages: dict[int, StreamPage] = {}
        self._void: dict[int, Lease] = {}
        self._tasks = PartitionTasks(
            "prefetch", "reading events failed; retrying", notifications.wake_all
        )
        self.close = self._tasks.close

    def configure(self, limit: int, touches: Mapping[str, Collection[str]]) -> None:
        """Set the maximum number of events per page, and the entities whose states it includes."""
        self._limit = limit
        ordered = {event_type: sorted(entities) for event_type, entities in touches.items()}
        self._touches = {event_type.encode(): entities for event_type, entities in ordered.items()}
        self._touches_json = _encode(ordered)

    async def fetch(self, leases: Sequence[Lease]) -> None:
        """Read the next pages of the partitions whose state is unknown."""
        unknown = [lease for lease in leases if self._is_unknown(lease)]
        if self._redis.clustered:
            await self._read_concurrently(unknown, insist=len(unknown) == len(leases))
        else:
            await self._read(unknown)
        for lease in leases:
            if self._void.get(lease.partition) == lease:
                del self._void[lease.partition]
                raise LeaseLostError(lease.partition, lease.owner)

    def _is_unknown(self, lease: Lease) -> bool:
        page = self._page(lease)
        if page is None:
            return not self._notifications.is_empty(lease.partition)
        return page.states is None

    def _page(self, lease: Lease) -> StreamPage | None:
        page = self._pages.get(lease.partition)
        return page if page is not None and page.lease == lease else None

    async def _read_concurrently(self, leases: Sequence[Lease], *, insist: bool) -> None:
        reads = {lease.partition: partial(self._read, [lease]) for lease in leases}
        is_answered = await self._tasks.run(reads, insist=insist)
        # An empty result would mean that the partitions are empty.
        if reads and insist and not is_answered:
            raise BackendUnavailableError(
                f"no server of the cluster has answered for the partitions {sorted(reads)} yet"
            )

    async def _read(self, leases: Sequence[Lease]) -> None:
        # A commit with declared keys leaves a page without its states.
        requests = [self.request(lease) for lease in leases if self._page(lease) is None]
        answers = await self._redis.calls([call for call, _ in requests])
        for (_, keep), answer in zip(requests, answers, strict=True):
            keep(answer)
        if self._redis.declares_keys:
            await self._read_states([page for lease in leases if (page := self._page(lease))])

    async def _read_states(self, pages: Sequence[StreamPage]) -> None:
        """Read the states of pages; if that fails, they stay without them."""
        reads: list[tuple[StreamPage, Call]] = []
        for page in pages:
            keys = self._keys.parts[page.lease.partition]
            if names := state_names(page, keys.entity.encode()):
                reads.append((page, command(keys.entity, "MGET", *names)))
            else:
                self._pages[page.lease.partition] = page._replace(states=())
        answers = await self._redis.calls([call for _, call in reads])
        for (page, _), states in zip(reads, answers, strict=True):
            self._pages[page.lease.partition] = page._replace(states=states)

    def request(self, lease: Lease) -> tuple[Call, Callable[[list[Any] | None], None]]:
        """Return the call that reads a partition's next page, and what keeps its answer."""
        keys = self._keys.parts[lease.partition]
        touches = b"{}" if self._redis.declares_keys else self._touches_json
        call = script_call(
            "read",
            [keys.group, keys.events, keys.idle],
            *(lease_text(lease), self._limit, keys.entity, touches, self._page_bytes),
        )
        token = self._notifications.token(lease.partition)
        return call, partial(self._keep, lease, token, self._touches)

    def _keep(self, lease: Lease, token: Token, touches: Touches, answer: list[Any] | None) -> None:
        self._pages.pop(lease.partition, None)
        if answer is None:
            self._void[lease.partition] = lease
        elif answer[1]:
            if self._redis.declares_keys:
                answer[2] = None
            self._pages[lease.partition] = StreamPage(lease, touches, *answer)
        else:
            self._notifications.mark_empty(lease.partition, token)

    def take(self, lease: Lease) -> StreamPage | None:
        """Remove and return a partition's page, or return None; its state is then unknown."""
        page = self._page(lease)
        if page is None or page.states is None:
            return None
        return self._pages.pop(lease.partition)


class SplitOutcome(NamedTuple):
    """The writes of an outcome: to its own shard, and encoded changes for other shards."""

    states: Mapping[EntityKey, Cells]
    changes: Sequence[Change]
    remote: bytes


class CrossShardWrites:
    """Changes on their way from the partition that made them to those of their entities."""

    def __init__(
        self, redis: Redis, keys: Keys, online: RedisOnlineStore, notifications: Notifications
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._online = online
        self._tasks = PartitionTasks(
            "cross-shard writes",
            "forwarding to other shards failed; retrying",
            notifications.wake_all,
        )
        self.close = self._tasks.close
        self._epochs: dict[int, int] = {}
        """The epoch in which each partition was last known to have no pending changes."""

    def split(self, outcome: BatchOutcome) -> SplitOutcome:
        """Split an outcome's changes by shard."""
        if not self._redis.clustered:
            return SplitOutcome(outcome.states, outcome.changes, b"")
        home, count = outcome.batch.lease.partition, self._keys.partitions
        local: list[Change] = []
        remote: list[Change] = []
        for change in outcome.changes:
            is_local = partition_of(change.entity_id, count) == home
            (local if is_local else remote).append(change)
        states = {
            key: cells
            for key, cells in outcome.states.items()
            if partition_of(key[1], count) == home
        }
        return SplitOutcome(states, local, _encode(remote) if remote else b"")

    async def send_pending(self, leases: Sequence[Lease]) -> None:
        """Send the pending changes of newly claimed partitions, and of failed sends."""
        if self._redis.clustered:
            pending = [
                lease for lease in leases if self._epochs.get(lease.partition) != lease.epoch
            ]
            await self._tasks.run(
                {lease.partition: partial(self._send_pending, lease) for lease in pending}
            )

    async def _send_pending(self, lease: Lease) -> None:
        await self.send(lease.partition)
        self._epochs[lease.partition] = lease.epoch

    async def send(self, partition: int) -> None:
        """Apply a partition's pending changes to other shards, each once."""
        try:
            await self._send_all(partition)
        except BackendError:
            self._epochs.pop(partition, None)
            raise

    async def _send_all(self, partition: int) -> None:
        stream, more = self._keys.parts[partition].cross_shard, True
        while more:
            entries, more = await next_entries(self._redis, stream, "", _FORWARDED)
            for position, (_, changes) in entries:
                sender = Sender(str(partition), position.decode())
                await self._online.apply(_decode_changes(changes), sender)
            if entries:
                await self._redis.call(command(stream, "XDEL", stream, *(p for p, _ in entries)))


class PartitionTasks:
    """At most one task per partition; a failed task can start again after a pause."""

    def __init__(self, part: str, problem: str, on_late: Callable[[], None]) -> None:
        self._outage = Outage(part)
        self._problem = problem
        self._on_late = on_late
        self._running: dict[int, asyncio.Task[bool]] = {}

    async def run(self, works: Mapping[int, _Work], *, insist: bool = False) -> bool:
        """Start tasks for partitions without one; return True if one succeeds before a timeout.

        ``insist`` waits longer, and for tasks that were already running. Use it if there is
        nothing else to do.
        """
        started = [self._start(*item) for item in works.items() if item[0] not in self._running]
        awaited = [self._running[partition] for partition in works] if insist else started
        if not awaited:
            return False
        timeout = _INSIST_TIMEOUT if insist else _TIMEOUT
        done, _ = await asyncio.wait(awaited, timeout=timeout)
        for task in started:
            if task not in done:
                task.add_done_callback(lambda _: self._on_late())
        return any(not task.cancelled() and task.result() for task in done)

    def _start(self, partition: int, work: _Work) -> asyncio.Task[bool]:
        task = asyncio.get_running_loop().create_task(self._attempt(partition, work))
        self._running[partition] = task
        return task

    async def _attempt(self, partition: int, work: _Work) -> bool:
        try:
            await work()
        except BackendError as error:
            self._outage.report("warning", self._problem, error, partition, partition=partition)
            await asyncio.sleep(_RETRY_PAUSE)
            return False
        else:
            self._outage.recovered(partition)
            return True
        finally:
            del self._running[partition]

    async def close(self) -> None:
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
