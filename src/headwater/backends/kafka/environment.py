"""Opening the topic of a store, in front of its streams."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.backends.kafka.address import TopicAddress, parse_url
from headwater.backends.kafka.bus import KafkaBus, KafkaGroups
from headwater.backends.kafka.client import TopicConsumer, TopicIdentity, TopicProducer, translated
from headwater.backends.kafka.feeder import KafkaFeeder, StoreTopic
from headwater.backends.kafka.records import RecordDecoder
from headwater.core.clock import Clock
from headwater.core.shared_tasks import SharedTasks
from headwater.errors import BackendError, ConfigError
from headwater.model.health import Health
from headwater.ports import Bus, ConsumerGroups, Feed, StoreIdentity
from headwater.settings.schema import Settings

_COPIES = 3
ENVELOPE_BYTES = 65_536
"""The room that ids, headers and the record itself may take beside a payload."""


class KafkaEnvironment:
    """The topic, and the bus and the feeder that use it."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        streams: Bus,
        groups: ConsumerGroups,
        feed: Feed,
        identity: Callable[[], Awaitable[StoreIdentity]],
    ) -> None:
        bus = settings.bus
        address = parse_url(bus.url, bus)
        self._address = address
        self._settings = settings
        self._feed = feed
        self._store = identity
        self._topic = TopicIdentity(address, bus.timeout)
        self._beginning = SharedTasks[None]()
        self._consumer = self._connect()
        self._producer = TopicProducer(
            address, bus.timeout, settings.ingest.max_event_bytes + ENVELOPE_BYTES
        )
        decoder = RecordDecoder(bus.fields, bus.decode)
        self.bus = KafkaBus(streams, feed, self._producer, self._consumer, self.begin)
        self.groups = KafkaGroups(groups, self.bus)
        self.feeder = KafkaFeeder(
            *(self._connect, self.source, feed, self.bus, self.begin, decoder),
            *(settings.ingest, clock),
        )

    def _connect(self, store_id: str = "") -> TopicConsumer:
        """Return a consumer in the group of a store, if one is named."""
        group = group_of(self._address, store_id)
        return TopicConsumer(self._address, group, self._settings.bus.timeout)

    async def check(self) -> None:
        """Raise unless the topic has the partitions of the store; create it in development."""
        found = await self._consumer.partitions()
        if not found and self._settings.env == "development":
            await create_topic(self._settings)
        elif not found:
            raise BackendError(
                f"Kafka has no {self._address}; create it with `headwater migrate`, or with "
                f"{self._settings.partitions} partitions by your own tools"
            )
        elif len(found) != self._settings.partitions:
            raise ConfigError(
                f"{self._address} has {len(found)} partitions, the settings say "
                f"{self._settings.partitions}; both are fixed when a store is made: name another "
                "topic, or set partitions"
            )

    async def source(self) -> StoreTopic:
        """Return which store takes records of which topic at present."""
        return StoreTopic((await self._store()).store_id or "", await self._topic.read())

    async def begin(self) -> None:
        """Begin to append in the partitions that have not begun.

        A store that lost its streams begins again where history has everything before, and a new
        one at the first record. A store that history has not confirmed waits for that. Concurrent
        callers share one task, after which publishers go on in the order of their records.
        """
        await self._beginning.run("begin", self._begin)

    async def _begin(self) -> None:
        states = await self._feed.states()
        new = [partition for partition, state in enumerate(states) if state.offset is None]
        if not new:
            return
        store = await self._store()
        if store.is_confirmed and not store.behind:
            source = await self.source()
            committed = await self._committed(source)
            firsts = await self._consumer.beginnings(new)
            await self._feed.begin(
                {each: max(firsts[each], committed.get(each, (0, ""))[0]) for each in new},
                source.log,
            )

    async def _committed(self, source: StoreTopic) -> dict[int, tuple[int, str]]:
        """Return how far a store has a topic: offsets with the positions before them."""
        consumer = self._connect(source.store_id)
        try:
            notes = await consumer.committed(range(self._settings.partitions))
        finally:
            await consumer.close()
        return {n: (offset, at) for n, (offset, note) in notes.items() if (at := source.read(note))}

    async def hand_over(self, owner: str | None, store_id: str) -> dict[int, str]:
        """Let a store go on where the one before it was, whose history it adopts.

        Return the position, by partition, up to which history has the events with their effects.
        """
        source = StoreTopic(owner or "", await self._topic.read())
        committed = await self._committed(source) if owner else {}
        if committed:
            consumer = self._connect(store_id)
            try:
                await consumer.commit(source.notes(committed))
            finally:
                await consumer.close()
        return {partition: position for partition, (_, position) in committed.items()}

    async def health(self) -> Health:
        """Return whether the topic answers."""
        try:
            await self._consumer.ends(range(self._settings.partitions))
        except BackendError as error:
            return Health("kafka", ok=False, detail=str(error))
        return Health("kafka", ok=True)

    async def close(self) -> None:
        await self._beginning.close()
        await self._producer.close()
        await self._consumer.close()


def group_of(address: TopicAddress, store_id: str = "") -> str:
    """Return the consumer group in which a store commits how far it has the topic."""
    return "-".join(filter(None, ("headwater", address.topic, store_id)))


async def open_kafka(
    settings: Settings,
    clock: Clock,
    streams: Bus,
    groups: ConsumerGroups,
    feed: Feed,
    identity: Callable[[], Awaitable[StoreIdentity]],
) -> KafkaEnvironment:
    """Connect to the topic that the settings name."""
    async with AsyncExitStack() as undo:
        kafka = KafkaEnvironment(settings, clock, streams, groups, feed, identity)
        undo.push_async_callback(kafka.close)
        await kafka.check()
        undo.pop_all()
    return kafka


async def create_topic(settings: Settings) -> None:
    """Create the topic of the store, unless there is one: as durable as the brokers allow."""
    address = parse_url(settings.bus.url, settings.bus)
    consumer = TopicConsumer(address, group_of(address), settings.bus.timeout)
    try:
        if await consumer.partitions():
            return
    finally:
        await consumer.close()
    admin = AdminClient({**address.options, "bootstrap.servers": address.brokers, "log_level": 2})
    largest = settings.ingest.max_event_bytes + ENVELOPE_BYTES

    def create() -> None:
        brokers = admin.list_topics(timeout=settings.bus.timeout).brokers
        copies = min(_COPIES, len(brokers))
        config = {"min.insync.replicas": str(max(1, copies - 1)), "max.message.bytes": str(largest)}
        topic = NewTopic(address.topic, settings.partitions, copies, config=config)
        (created,) = admin.create_topics([topic], request_timeout=settings.bus.timeout).values()
        created.result()

    try:
        await asyncio.to_thread(create)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise translated(error.args[0], address) from error
