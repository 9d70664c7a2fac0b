"""The log of events in a topic of Kafka, and its newest events in the streams of Redis.

An event is accepted when the topic has it. Then it is appended to the stream of its partition, by
its publisher or, where others are before it, by the worker that holds the partition; workers read
the streams. The script that appends knows the offset of the next record, so each is appended once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from headwater.backends.kafka.client import TopicConsumer, TopicProducer
from headwater.backends.kafka.records import encode
from headwater.core.logging import Outage
from headwater.core.partitioning import partition_of
from headwater.errors import BackendError, BackendUnavailableError
from headwater.model.admin import ConsumerGroup, ConsumerLag
from headwater.model.events import PublishResult
from headwater.model.values import ServiceEvent
from headwater.ports import (
    Awaited,
    Bus,
    ConsumerGroups,
    FedRange,
    FedRecord,
    Feed,
    FeedRecord,
    FeedState,
    LogRange,
    Subjects,
    event_content,
    no_subjects,
    publish_result,
)

# The publishers of the records before ours append theirs meanwhile.
_PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
_AT_OFFSET = "@"
"""Begins the position of an event whose record was not appended when its publisher asked."""


class KafkaBus:
    """A bus whose events are in a topic before they are in the streams."""

    def __init__(
        self,
        streams: Bus,
        feed: Feed,
        producer: TopicProducer,
        consumer: TopicConsumer,
        begin: Callable[[], Awaitable[None]],
    ) -> None:
        self.partitions = streams.partitions
        self._streams = streams
        self._feed = feed
        self._producer = producer
        self._consumer = consumer
        self._begin = begin
        self._outage = Outage("feed")
        self._left: set[int] = set()
        """Partitions in which records wait for a worker, so that publishers do not wait."""
        self.publish_ticks, self.read = streams.publish_ticks, streams.read
        self.attempt, self.commit, self.wait = streams.attempt, streams.commit, streams.wait
        self.memory = streams.memory

    async def publish(
        self,
        events: Sequence[ServiceEvent],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
        positions: bool = False,
    ) -> list[PublishResult]:
        fed = [FedRecord(erased=True)] * len(events)
        kept: list[tuple[int, int, FeedRecord]] = []
        for place, event in enumerate(events):
            if not self._feed.is_erased(event, subjects):
                content = event_content(event) if dedup_window else b""
                partition = partition_of(event.entity_id, self.partitions)
                kept.append((place, partition, FeedRecord(-1, event, content, positions)))
        offsets = await self._producer.send(
            [(partition, *encode(record)) for _, partition, record in kept]
        )
        places: dict[tuple[int, int], int] = {}
        sent: dict[int, list[FeedRecord]] = {}
        for (place, partition, record), offset in zip(kept, offsets, strict=True):
            fed[place] = FedRecord(position=f"{_AT_OFFSET}{offset}" if positions else "")
            if offset >= 0:
                places[partition, offset] = place
                sent.setdefault(partition, []).append(replace(record, offset=offset))
        ranges = [each for item in sent.items() for each in _ranges(*item)]
        for run, answer in await self._append(ranges, dedup_window, subjects):
            for record, found in zip(run.records, answer.records, strict=True):
                place = places[run.partition, record.offset]
                fed[place] = (
                    found if found.position else found._replace(position=fed[place].position)
                )
        return [_result(*item) for item in zip(events, fed, strict=True)]

    async def _append(
        self, ranges: Sequence[LogRange], dedup_window: timedelta | None, subjects: Subjects
    ) -> list[tuple[LogRange, FedRange]]:
        """Append records that the topic has; where others are before them, wait for a moment.

        What is not appended then is left to the workers: its events are durable.
        """
        done: dict[tuple[int, int], tuple[LogRange, FedRange]] = {}
        rest = list(ranges)
        try:
            for pause in _PAUSES if rest else ():
                await asyncio.sleep(pause)
                answers = await self._feed.append(
                    rest, dedup_window=dedup_window, subjects=subjects
                )
                if any(answer.offset is None for answer in answers):
                    await self._begin()
                found = [*zip(rest, answers, strict=True)]
                done |= {(run.partition, run.first): (run, answer) for run, answer in found}
                rest = [run for run, answer in found if self._is_early(run, answer)]
                self._left -= {run.partition for run, answer in found if _is_appended(run, answer)}
                if not rest:
                    break
            self._left |= {run.partition for run in rest}
        except BackendError as error:
            self._outage.report(
                "warning", "appending events failed; workers append them", error, "publish"
            )
        else:
            self._outage.recovered("publish")
        return [*done.values()]

    def _is_early(self, run: LogRange, answer: FedRange) -> bool:
        """Return whether the records before a range may be appended within a moment."""
        if run.partition in self._left or answer.is_full:
            return False
        return answer.offset is None or answer.offset < run.first

    async def handled(
        self, group: str, awaited: Sequence[Awaited], *, wait: bool = False
    ) -> list[frozenset[str] | None]:
        offsets = {
            (partition_of(entity_id, self.partitions), int(position[1:])): place
            for place, (entity_id, position) in enumerate(awaited)
            if position.startswith(_AT_OFFSET)
        }
        asked = dict(enumerate(awaited))
        if offsets:
            known = [each for each in offsets if each[1] >= 0]
            found = await self._feed.positions(known, wait=wait)
            for each, place in offsets.items():
                # Of an unknown offset, all that the partition has now stand for the event.
                if each in found or each[1] < 0:
                    asked[place] = asked[place]._replace(position=found.get(each, ""))
                else:
                    del asked[place]
        answers = await self._streams.handled(group, [*asked.values()], wait=wait)
        by_place = dict(zip(asked, answers, strict=True))
        return [by_place.get(place) for place in range(len(awaited))]

    async def left_in_topic(self) -> tuple[list[int], list[FeedState]]:
        """Return how many records of each partition are not appended yet, and what the feed knows.

        The ends are read first: what is appended meanwhile counts in the streams alone.
        """
        ends = await self._consumer.ends(range(self.partitions))
        states = await self._feed.states()
        new = [partition for partition, state in enumerate(states) if state.offset is None]
        firsts = await self._consumer.beginnings(new)
        offsets = [
            firsts[n] if each.offset is None else each.offset for n, each in enumerate(states)
        ]
        return [max(0, ends[n] - offset) for n, offset in enumerate(offsets)], states

    async def lag(self) -> list[ConsumerLag]:
        left, states = await self.left_in_topic()
        lags = await self._streams.lag()
        for partition, (more, state) in enumerate(zip(left, states, strict=True)):
            lag = lags[partition]
            lags[partition] = replace(
                lag, waiting=lag.waiting + more, committed=lag.committed + state.left_out
            )
        return lags

    async def backlog(self) -> int:
        return sum(lag.waiting for lag in await self.lag())


class KafkaGroups:
    """The consumer groups: what only the topic has waits for each of them.

    While no broker answers, they have what waits in the streams; workers need their names.
    """

    def __init__(self, groups: ConsumerGroups, bus: KafkaBus) -> None:
        self._groups, self._bus = groups, bus
        self.declared, self.create, self.positions = (
            groups.declared,
            groups.create,
            groups.positions,
        )
        self.waiting, self.drop = groups.waiting, groups.drop

    async def groups(self) -> list[ConsumerGroup]:
        more = 0
        with suppress(BackendUnavailableError):
            left, _ = await self._bus.left_in_topic()
            more = sum(left)
        found = await self._groups.groups()
        return [replace(group, waiting=group.waiting + more) for group in found]


def _is_appended(run: LogRange, answer: FedRange) -> bool:
    return answer.offset is not None and answer.offset >= run.after


def _ranges(partition: int, records: Sequence[FeedRecord]) -> Iterator[LogRange]:
    """Yield the records of a partition in ranges without gaps, in which others may be."""
    run: list[FeedRecord] = []
    for record in sorted(records, key=lambda record: record.offset):
        if run and record.offset != run[-1].offset + 1:
            yield LogRange(partition, run[0].offset, run[-1].offset + 1, run)
            run = []
        run.append(record)
    yield LogRange(partition, run[0].offset, run[-1].offset + 1, run)


def _result(event: ServiceEvent, fed: FedRecord) -> PublishResult:
    if fed.erased:
        return PublishResult(event.event_id, duplicate=False, erased=True)
    result = publish_result(event, fed.known)
    return result if fed.known else replace(result, position=fed.position)
