"""Appending the records of a topic to the streams, for the partitions that a worker holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.records import Record, RecordDecoder, in_portions
from headwater.core.clock import Clock
from headwater.core.logging import Outage, log
from headwater.core.partitioning import partition_of
from headwater.errors import BackendError
from headwater.model.values import ServiceEvent
from headwater.ports import Bus, FedRange, Feed, LogRange, LogRecord, Subjects
from headwater.settings.groups import IngestSettings

_MOST = 1_000
_WAIT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_FULL_SECONDS = 0.25
_COMMIT_SECONDS = 5.0


class KafkaFeeder:
    """Reads the records after the last appended one, and appends them.

    Publishers append as well, so most records are known when they are read. A worker that was
    frozen, or lost a partition, does no harm: the feed takes a record only when it is its turn.
    """

    def __init__(
        self,
        connect: Callable[[], TopicConsumer],
        feed: Feed,
        bus: Bus,
        begin: Callable[[], Awaitable[None]],
        decoder: RecordDecoder,
        ingest: IngestSettings,
        clock: Clock,
    ) -> None:
        self.partitions = bus.partitions
        self._connect = connect
        self._feed = feed
        self._bus = bus
        self._begin = begin
        self._decoder = decoder
        self._ingest = ingest
        self._clock = clock

    async def run(self, held: Collection[int], subjects: Subjects) -> None:
        outage = Outage("feed")
        while True:
            consumer = self._connect()
            try:
                feeding = _Feeding(self, consumer, subjects)
                while True:
                    await feeding.take_turns(held)
                    outage.recovered("feed")
            except BackendError as error:
                outage.report(
                    "error", "appending events from Kafka failed; retrying", error, "feed"
                )
            finally:
                await consumer.close()
            await asyncio.sleep(_RETRY_SECONDS)

    async def begin(self) -> dict[int, int]:
        """Return the offset that is next in each partition; those that may begin do."""
        states = await self._feed.states()
        if any(state.offset is None for state in states):
            await self._begin()
            states = await self._feed.states()
        return {n: state.offset for n, state in enumerate(states) if state.offset is not None}

    async def stored(self) -> dict[int, tuple[int, str]]:
        """Return the offsets before which all is in history, with the positions before them."""
        states = await self._feed.states()
        return {n: state.stored for n, state in enumerate(states) if state.stored is not None}

    async def append(self, ranges: Sequence[LogRange], subjects: Subjects) -> list[FedRange]:
        window = self._ingest.dedup_window
        return await self._feed.append(ranges, dedup_window=window, subjects=subjects)

    async def records(
        self, partition: int, records: Sequence[Record], subjects: Subjects
    ) -> list[LogRecord]:
        """Return records with their events; those of other partitions are published there."""
        latest: datetime = self._clock.now() + self._ingest.future_tolerance
        decoded: list[LogRecord] = []
        elsewhere: list[ServiceEvent] = []
        for made in await self._decoder.decode(records, latest):
            event = made.event
            if event is None or partition_of(event.entity_id, self.partitions) == partition:
                decoded.append(made)
            else:
                elsewhere.append(event)
        if elsewhere:
            # Their ids are those of their records, so doing this twice changes nothing.
            window = self._ingest.dedup_window
            await self._bus.publish(elsewhere, dedup_window=window, subjects=subjects)
        return decoded


class _Feeding:
    """The partitions that one consumer reads, and how far."""

    def __init__(self, feeder: KafkaFeeder, consumer: TopicConsumer, subjects: Subjects) -> None:
        self._feeder = feeder
        self._consumer = consumer
        self._subjects = subjects
        self._next: dict[int, int] = {}
        """The offset after the last record that was read, by partition."""
        self._not_before: dict[int, float] = {}
        """When a partition is read again that took no records."""
        self._committed: dict[int, tuple[int, str]] = {}
        self._commit_at = time.monotonic() + _COMMIT_SECONDS

    async def take_turns(self, held: Collection[int]) -> None:
        """Read the next records of the partitions that are held now, and append them."""
        await self._assign(held)
        records, lost = await self._consumer.consume(_MOST, _WAIT_SECONDS)
        for partition in lost:
            await self._skip_lost(partition)
        for some in in_portions(records):
            by_partition: dict[int, list[Record]] = {}
            for record in some:
                if record.partition in self._next:
                    by_partition.setdefault(record.partition, []).append(record)
            if by_partition:
                fed = await self._feeder.begin()
                ranges = [await self._range(p, group, fed) for p, group in by_partition.items()]
                await self._append([each for each in ranges if each is not None])
        await self._commit()

    async def _assign(self, held: Collection[int]) -> None:
        now = time.monotonic()
        wanted = {
            partition
            for partition in held
            if partition < self._feeder.partitions and now >= self._not_before.get(partition, now)
        }
        if gone := self._next.keys() - wanted:
            await self._drop(gone)
        if new := wanted - self._next.keys():
            offsets = await self._feeder.begin()
            begun = {partition: offsets[partition] for partition in new if partition in offsets}
            if begun:
                await self._consumer.assign(begun)
                self._next |= begun
            for partition in new - begun.keys():
                self._not_before[partition] = now + _RETRY_SECONDS

    async def _drop(self, partitions: Collection[int]) -> None:
        await self._consumer.unassign(partitions)
        for partition in partitions:
            del self._next[partition]

    async def _range(
        self, partition: int, records: Sequence[Record], fed: dict[int, int]
    ) -> LogRange | None:
        """Return what was read of a partition, without the records that were appended before."""
        first, after = self._next[partition], records[-1].offset + 1
        self._next[partition] = after
        done = fed.get(partition, first)
        if done >= after:
            return None
        rest = [record for record in records if record.offset >= done]
        return LogRange(
            partition, first, after, await self._feeder.records(partition, rest, self._subjects)
        )

    async def _append(self, ranges: Sequence[LogRange]) -> None:
        answers = await self._feeder.append(ranges, self._subjects)
        for run, answer in zip(ranges, answers, strict=True):
            if answer.offset is None or answer.offset < run.after:
                # It has no room, or was restored from an older copy: begin there a bit later.
                self._not_before[run.partition] = time.monotonic() + _FULL_SECONDS
                await self._drop([run.partition])

    async def _skip_lost(self, partition: int) -> None:
        """Go on with the first record that is kept, or wait if the topic ends before the next."""
        first = (await self._consumer.beginnings([partition]))[partition]
        expected = self._next[partition]
        if expected < first:
            log.error(
                "events lost: Kafka has deleted records that were not taken yet",
                partition=partition,
                records=first - expected,
                remedy="raise the retention of the topic, and add workers",
            )
            await self._append([LogRange(partition, expected, first, ())])
        else:
            log.error(
                "topic ends before the next record; it was truncated or created again",
                partition=partition,
                offset=expected,
                remedy="see docs/how-to/kafka.md: a topic that was created again",
            )
        self._not_before[partition] = time.monotonic() + _RETRY_SECONDS
        if partition in self._next:
            await self._drop([partition])

    async def _commit(self) -> None:
        """Commit how far the events and their effects are in history, at intervals."""
        if time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + _COMMIT_SECONDS
        stored = await self._feeder.stored()
        new = {
            partition: stored[partition]
            for partition in self._next.keys() & stored.keys()
            if stored[partition] != self._committed.get(partition)
        }
        if new:
            await self._consumer.commit(new)
            self._committed |= new
