"""Appending the records of a topic to the streams, for the partitions that a worker holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.records import KafkaRecord, RecordDecoder, in_portions
from headwater.core.clock import Clock
from headwater.core.logging import Outage, log
from headwater.core.partitioning import partition_of
from headwater.errors import BackendError
from headwater.model.values import ServiceEvent
from headwater.ports import Bus, FedRange, Feed, FeedRecord, LogRange, Subjects
from headwater.settings.groups import IngestSettings

_MOST = 1_000
_WAIT_SECONDS = 0.1
_RETRY_SECONDS = 1.0
_FULL_SECONDS = 0.25
_COMMIT_SECONDS = 5.0
_REPEAT_SECONDS = 3_600.0
"""How often offsets are committed that have not changed; brokers forget them after some days."""


class StoreTopic(NamedTuple):
    """A store and the topic that it takes records of: which one of that name it is."""

    store_id: str
    log: str

    def notes(self, stored: Mapping[int, tuple[int, str]]) -> dict[int, tuple[int, str]]:
        """Return offsets with the notes to commit, which name the topic and the positions."""
        return {n: (offset, f"{self.log} {at}") for n, (offset, at) in stored.items()}

    def read(self, note: str) -> str:
        """Return the position in a note; "" if it is about another topic."""
        log, _, position = note.partition(" ")
        return position if log == self.log else ""


class KafkaFeeder:
    """Reads the records after the last appended one, and appends them.

    Publishers append as well, so most records are known when they are read. A worker that was
    frozen, or lost a partition, does no harm: the feed takes a record only when it is its turn.
    """

    def __init__(
        self,
        connect: Callable[[str], TopicConsumer],
        source: Callable[[], Awaitable[StoreTopic]],
        feed: Feed,
        bus: Bus,
        begin: Callable[[], Awaitable[None]],
        decoder: RecordDecoder,
        ingest: IngestSettings,
        clock: Clock,
    ) -> None:
        self.partitions = bus.partitions
        self._connect, self.source = connect, source
        self._feed = feed
        self._bus = bus
        self._begin = begin
        self._decoder = decoder
        self._ingest = ingest
        self._clock = clock

    async def run(self, held: Collection[int], subjects: Subjects) -> None:
        outage = Outage("feed")
        while True:
            try:
                source = await self.source()
                await self._note(source)
                consumer = self._connect(source.store_id)
                try:
                    consumer.log = source.log
                    feeding = _Feeding(self, consumer, source, subjects)
                    while await feeding.is_current():
                        await feeding.take_turns(held)
                        outage.recovered("feed")
                finally:
                    await consumer.close()
            except BackendError as error:
                outage.report(
                    "error", "appending events from Kafka failed; retrying", error, "feed"
                )
                await asyncio.sleep(_RETRY_SECONDS)

    async def begin(self) -> dict[int, int]:
        """Return the offset that is next in each partition; those that may begin do."""
        states = await self._feed.states()
        if any(state.offset is None for state in states):
            await self._begin()
            states = await self._feed.states()
        return {
            n: state.offset
            for n, state in enumerate(states)
            if state.offset is not None and not state.is_stopped
        }

    async def _note(self, source: StoreTopic) -> None:
        """Stop the feed if the topic is another one than that of its offsets, and log that."""
        states = [state for state in await self._feed.states() if state.offset is not None]
        if any(state.found != source.log for state in states):
            await self._feed.found(source.log)
        if former := {state.log for state in states} - {source.log, ""}:
            log.error(
                "another topic has the place of the one that events were taken from",
                former=min(former),
                found=source.log,
                remedy="see docs/how-to/kafka.md: a topic that was created again",
            )

    async def stored(self) -> dict[int, tuple[int, str]]:
        """Return the offsets before which all is in history, with the positions before them."""
        states = await self._feed.states()
        return {n: state.stored for n, state in enumerate(states) if state.stored is not None}

    async def append(self, ranges: Sequence[LogRange], subjects: Subjects) -> list[FedRange]:
        window = self._ingest.dedup_window
        return await self._feed.append(ranges, dedup_window=window, subjects=subjects)

    async def records(
        self, partition: int, records: Sequence[KafkaRecord], subjects: Subjects
    ) -> list[FeedRecord]:
        """Return records with their events; those of other partitions are published there."""
        latest: datetime = self._clock.now() + self._ingest.future_tolerance
        decoded: list[FeedRecord] = []
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

    def __init__(
        self, feeder: KafkaFeeder, consumer: TopicConsumer, source: StoreTopic, subjects: Subjects
    ) -> None:
        self._feeder = feeder
        self._consumer = consumer
        self._source = source
        self._subjects = subjects
        self._next: dict[int, int] = {}
        """The offset after the last record that was read, by partition."""
        self._not_before: dict[int, float] = {}
        """When a partition is read again that took no records."""
        self._committed: dict[int, tuple[int, str]] = {}
        self._commit_at = self._checked_at = time.monotonic() + _COMMIT_SECONDS
        self._repeat_at = time.monotonic() + _REPEAT_SECONDS

    async def is_current(self) -> bool:
        """Return whether store and topic are still the same, which is asked at intervals."""
        if time.monotonic() < self._checked_at:
            return True
        self._checked_at = time.monotonic() + _COMMIT_SECONDS
        return await self._feeder.source() == self._source

    async def take_turns(self, held: Collection[int]) -> None:
        """Read the next records of the partitions that are held now, and append them."""
        await self._assign(held)
        consumed = await self._consumer.consume(_MOST, _WAIT_SECONDS)
        for partition in consumed.lost:
            await self._skip_lost(partition)
        for some in in_portions(consumed.records):
            by_partition: dict[int, list[KafkaRecord]] = {}
            for record in some:
                if record.partition in self._next:
                    by_partition.setdefault(record.partition, []).append(record)
            if by_partition:
                fed = await self._feeder.begin()
                ranges = [await self._range(p, group, fed) for p, group in by_partition.items()]
                await self._append([each for each in ranges if each is not None])
        await self._append([*self._passed(consumed.ends)])
        await self._commit()

    def _passed(self, ends: Mapping[int, int]) -> Iterator[LogRange]:
        """Yield what is between the last records of partitions and their ends, and has none."""
        for partition, end in ends.items():
            if (first := self._next.get(partition, end)) < end:
                self._next[partition] = end
                yield LogRange(partition, first, end, ())

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
        self, partition: int, records: Sequence[KafkaRecord], fed: dict[int, int]
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
        answers = await self._feeder.append(ranges, self._subjects) if ranges else []
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
                remedy="if created again, delete the keys <redis.prefix>:{p…}:feed in Redis",
            )
        self._not_before[partition] = time.monotonic() + _RETRY_SECONDS
        if partition in self._next:
            await self._drop([partition])

    async def _commit(self) -> None:
        """Commit how far the events and their effects are in history, at intervals."""
        if time.monotonic() < self._commit_at:
            return
        self._commit_at = time.monotonic() + _COMMIT_SECONDS
        if time.monotonic() >= self._repeat_at:
            self._repeat_at = time.monotonic() + _REPEAT_SECONDS
            self._committed.clear()
        stored = await self._feeder.stored()
        new = {
            partition: stored[partition]
            for partition in self._next.keys() & stored.keys()
            if stored[partition] != self._committed.get(partition)
        }
        if new:
            await self._consumer.commit(self._source.notes(new))
            self._committed |= new
