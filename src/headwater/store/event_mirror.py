"""Copying a topic of Kafka into the log of a store, each record once."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence

from msgspec.structs import replace

from headwater.core.clock import Clock, to_micros
from headwater.core.logging import log
from headwater.errors import (
    EventConflictError,
    EventError,
    FieldError,
    InvalidInputError,
    MissingExtraError,
)
from headwater.model.events import MIRRORED, MirrorOptions, MirrorReport, new_event
from headwater.ports import FeedRecord
from headwater.settings.schema import Settings
from headwater.store.verbs.events import EventVerbs

try:
    from headwater.backends.kafka.address import parse_url
    from headwater.backends.kafka.client import TopicConsumer, TopicIdentity
    from headwater.backends.kafka.records import KafkaRecord, RecordDecoder, in_portions
except ModuleNotFoundError as error:
    raise MissingExtraError("a mirror of Kafka", "kafka") from error

_MOST = 500
_WAIT_SECONDS = 0.5


class EventMirror:
    """One copy of a topic, which continues where the last one of that topic ended.

    How far it is, is an event of the same batch. So a batch is in the log with it, or neither is;
    where the log cannot do that, the ids of the events keep a batch from counting twice.
    """

    def __init__(
        self, bus: EventVerbs, clock: Clock, settings: Settings, url: str, options: MirrorOptions
    ) -> None:
        self._bus, self._clock, self._options = bus, clock, options
        address, timeout = parse_url(url, settings.bus, "the topic"), settings.bus.timeout
        self._tolerance = settings.ingest.future_tolerance
        self._decoder = RecordDecoder(options.fields, options.decode)
        self._identity = TopicIdentity(address, timeout)
        # It joins no group and commits nothing, so any group that may be described will do.
        self._consumer = TopicConsumer(address, f"headwater-mirror-{address.topic}", timeout)
        self._mirror_id = ""
        self._offsets: dict[int, int] = {}
        self.report = MirrorReport()

    async def run(self) -> MirrorReport:
        """Copy records until the end, or until cancelled; the batch that is sent is finished."""
        try:
            partitions = [*await self._consumer.partitions()]
            if not partitions:
                raise InvalidInputError("there is no such topic; check its name and your rights")
            self._consumer.log = await self._identity.read()
            self._mirror_id = f"mirror-{self._consumer.log}"
            ends = await self._consumer.ends(partitions)
            self._offsets = await self._begin(partitions)
            await self._consumer.assign(self._offsets)
            while not (self._options.once and self._has_all(ends)):
                records, lost, passed = await self._consumer.consume(_MOST, _WAIT_SECONDS)
                if lost:
                    raise EventError(
                        f"the topic no longer has the next records of partition {lost[0]}: its "
                        "retention is too short for this mirror; remove the events "
                        f"{MIRRORED!r} of {self._mirror_id!r} to begin anew"
                    )
                for portion in in_portions(records):
                    await self._finished(self._publish(portion))
                self._offsets |= passed
        finally:
            await self._consumer.close()
        return self.report

    def _has_all(self, ends: Mapping[int, int]) -> bool:
        return all(self._offsets[partition] >= end for partition, end in ends.items())

    async def _begin(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the next offset of each partition; one that is new begins at its beginning."""
        known: dict[int, int] = {}
        # The last may be an earlier one that was kept from being pruned.
        for mark in await self._bus.list(event_type=MIRRORED, entity_id=self._mirror_id, limit=2):
            offsets = {int(n): at for n, at in mark.event.payload["offsets"].items()}
            known |= {n: max(at, known.get(n, 0)) for n, at in offsets.items()}
        new = [partition for partition in partitions if partition not in known]
        begin = self._options.begin
        if begin is None or known:
            return {**known, **await self._consumer.beginnings(new)}
        return await self._consumer.since(new, to_micros(begin) // 1_000)

    @staticmethod
    async def _finished(publishing: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(publishing)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await task
            raise

    async def _publish(self, records: Sequence[KafkaRecord]) -> None:
        latest = self._clock.now() + self._tolerance
        made = await self._decoder.decode(records, latest)
        events = [each.event for each in made if each.event is not None]
        for each in made:
            if each.event is None:
                self._reject(each)
        offsets = self._offsets | {record.partition: record.offset + 1 for record in records}
        payload = {"offsets": {str(partition): at for partition, at in offsets.items()}}
        mark = new_event(self._clock, MIRRORED, self._mirror_id, payload, None, None)
        before = self.report
        duplicates = erased = 0
        while True:
            try:
                results = await self._bus.publish_many([*events, mark])
                duplicates = sum(result.duplicate for result in results)
            except EventConflictError as error:
                # All other events are in the log.
                duplicates = len(error.conflicts)
                erased = sum(conflict.is_erased for conflict in error.conflicts)
            except (EventError, FieldError) as error:
                event = events.pop(error.index or 0)
                self._reject(FeedRecord(0, event, problem=f"{event.event_id}: {error.problem}"))
                continue
            break
        self._offsets = offsets
        self.report = replace(
            self.report,
            records=before.records + len(records),
            published=before.published + len(events) - duplicates,
            duplicates=before.duplicates + duplicates - erased,
            erased=before.erased + erased,
        )
        self._options.progress(self.report)

    def _reject(self, record: FeedRecord) -> None:
        log.warning("record is no event", problem=record.problem)
        self.report = replace(self.report, rejected=self.report.rejected + 1)
