"""A topic of Kafka: its producer, its consumers and what they answer.

The calls of librdkafka block, so they run in threads: one serves the acknowledgements of the
producer, and each consumer has one of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from headwater.backends.kafka.address import TopicAddress
from headwater.backends.kafka.records import KafkaRecord
from headwater.errors import BackendError, BackendUnavailableError, ClosedError

P = ParamSpec("P")
T = TypeVar("T")
Sent = tuple[int, bytes, bytes, list[tuple[str, str | bytes | None]]]
"""The partition, the key, the value and the headers of a record."""

_MOCK_CLUSTER = "mockCluster"
"""Begins the id of librdkafka's mock cluster, which does not answer what the id of a topic is."""
_IN_NAMES = str.maketrans("+/", "-_", "=")

_POLL_SECONDS = 0.1
_GIVEN_UP_SECONDS = 10.0
_FULL_PAUSE = 0.01
_RETRIES = (0.1, 0.5, None)
# Errors of the client itself; librdkafka's names of them begin with an underscore.
_UNKNOWN_TOPIC, _UNKNOWN_PARTITION = -188, -190
_AUTHENTICATION, _SSL, _AUTO_OFFSET_RESET, _PARTITION_EOF = -169, -181, -140, -191
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, _UNKNOWN_TOPIC, _UNKNOWN_PARTITION})
_REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.INVALID_CONFIG,
        _AUTHENTICATION,
        _SSL,
    }
)


def translated(error: KafkaError, address: TopicAddress) -> BackendError:
    """Return an error of librdkafka as one of ours, with the remedy."""
    code, place = error.code(), f"Kafka, {address}"
    if code in _MISSING:
        return BackendError(f"{place}: {error.str()}; create it with `headwater migrate`")
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        remedy = "raise max.message.bytes of the topic above ingest.max_event_bytes"
        return BackendError(f"{place}: a record is too large; {remedy}")
    if code in _REFUSED:
        return BackendError(f"{place}: {error.str()}; check bus.options, bus.password and the ACLs")
    return BackendUnavailableError(f"{place}: {error.str()}; check that its brokers run")


class _Refusal:
    """Why brokers refuse connections; librdkafka tells that beside the calls, which only wait."""

    _error: KafkaError | None = None
    _noted_at = 0.0

    def note(self, error: KafkaError) -> None:
        if error.code() in _REFUSED:
            self._error, self._noted_at = error, time.monotonic()

    def check(self, address: TopicAddress, since: float) -> None:
        """Raise if connections were refused since a moment; an earlier refusal may have passed."""
        if self._error is not None and self._noted_at >= since:
            raise translated(self._error, address) from None


class TopicIdentity:
    """Tells which topic has the name at present: one that was created again is another.

    Brokers that give topics no ids, such as those of Redpanda, tell only in which cluster it is.
    """

    def __init__(self, address: TopicAddress, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._admin: AdminClient | None = None

    async def read(self) -> str:
        """Return the topic's name with its id, or with the id of its cluster if it has none."""
        try:
            found = await asyncio.to_thread(self._read)
        except KafkaException as error:
            raise translated(error.args[0], self._address) from error
        return f"{self._address.topic}-{found}"

    def _read(self) -> str:
        if self._admin is None:
            self._admin = AdminClient(
                {
                    **self._address.options,
                    "bootstrap.servers": self._address.brokers,
                    "log_level": 2,
                }
            )
        topic = self._address.topic
        cluster = self._admin.list_topics(topic, timeout=self._timeout).cluster_id or ""
        if cluster.startswith(_MOCK_CLUSTER):
            return cluster
        names = TopicCollection([topic])
        (found,) = self._admin.describe_topics(names, request_timeout=self._timeout).values()
        topic_id = str(found.result().topic_id).translate(_IN_NAMES)
        return cluster if set(topic_id) == {"A"} else topic_id


class _Acknowledgements:
    """The offsets of the records that one call has sent, until the last one is acknowledged."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = count
        self._error: KafkaError | None = None
        self.offsets = [-1] * count
        self.done: asyncio.Future[KafkaError | None] = self._loop.create_future()

    def of(self, place: int) -> Callable[[KafkaError | None, Message], None]:
        """Return the function that the thread of the producer calls for a record."""

        def acknowledge(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._error = error
            else:
                # A repetition that the broker recognized may have no offset.
                offset = message.offset()
                self.offsets[place] = -1 if offset is None else offset
            self._left -= 1
            if not self._left:
                with suppress(RuntimeError):  # the loop was closed meanwhile
                    self._loop.call_soon_threadsafe(self._finish)

        return acknowledge

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(self._error)


class TopicProducer:
    """Sends records, and waits until all replicas in sync have them.

    librdkafka may give up a record that waited for too long and send the next one of its partition.
    So it is told to give up none: a call that waits for too long fails with all others that wait,
    and what the brokers have of a partition is its beginning.
    """

    def __init__(self, address: TopicAddress, timeout: float, largest: int) -> None:
        self._address = address
        self._timeout = timeout
        self._refusal = _Refusal()
        self._config: dict[str, Any] = {
            "linger.ms": 1,
            "message.max.bytes": max(largest, 1_000_000),
            **address.options,
            "message.timeout.ms": 0,
            "bootstrap.servers": address.brokers,
            "acks": "all",
            "enable.idempotence": True,
            "error_cb": self._refusal.note,
            "log_level": 2,
        }
        self._producer: Producer | None = None
        self._polling: threading.Thread | None = None
        self._closed = False

    async def send(self, records: Sequence[Sent]) -> list[int]:
        """Return the offsets of records when they are durable; -1 where it is not known.

        Records of one partition are in the order of the calls.
        """
        if not records:
            return []
        producer = self._started()
        acknowledged, begun = _Acknowledgements(len(records)), time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                for place, record in enumerate(records):
                    await self._produce(producer, record, acknowledged.of(place))
                error = await acknowledged.done
        except TimeoutError:
            self._give_up(producer)
            self._refusal.check(self._address, begun)
            raise BackendUnavailableError(
                f"Kafka, {self._address}: no acknowledgement within {self._timeout:g} seconds; "
                "check that its brokers run and that min.insync.replicas of them have the topic"
            ) from None
        if error is not None:
            if error.fatal():
                self._give_up(producer)
            raise translated(error, self._address)
        return acknowledged.offsets

    async def _produce(
        self, producer: Producer, record: Sent, on_delivery: Callable[..., None]
    ) -> None:
        partition, key, value, headers = record
        while producer is self._producer:
            try:
                return producer.produce(
                    *(self._address.topic, value, key, partition),
                    headers=headers,
                    on_delivery=on_delivery,
                )
            except BufferError:
                await asyncio.sleep(_FULL_PAUSE)  # too many records wait for the brokers
            except KafkaException as error:
                raise translated(error.args[0], self._address) from error
        raise TimeoutError

    def _give_up(self, producer: Producer) -> None:
        """Send nothing more by this producer; the next call starts another."""
        if producer is self._producer:
            self._producer = None
            producer.purge(blocking=False)

    def _started(self) -> Producer:
        if self._closed:
            raise ClosedError("the store was closed")
        if self._producer is None:
            self._producer = Producer(self._config)
            self._polling = threading.Thread(
                target=self._poll, args=(self._producer,), name="kafka-producer", daemon=True
            )
            self._polling.start()
        return self._producer

    def _poll(self, producer: Producer) -> None:
        while self._producer is producer and not self._closed:
            producer.poll(_POLL_SECONDS)
        # Calls that wait for records of a producer that was given up are told.
        producer.flush(_POLL_SECONDS if self._closed else _GIVEN_UP_SECONDS)

    async def close(self) -> None:
        self._closed = True
        if self._polling is not None:
            await asyncio.to_thread(self._polling.join)


class Consumed(NamedTuple):
    """What a consumer was given.

    ``lost`` are the partitions whose next offset is not kept. ``ends`` are the offsets at which
    partitions end behind these records; what is before an end, as marks of transactions, is none.
    """

    records: list[KafkaRecord]
    lost: list[int]
    ends: dict[int, int]


class TopicConsumer:
    """Reads the partitions that it is told to; no group coordinator assigns any.

    ``log`` is the identity of the topic in the names of its records.
    """

    log = ""

    def __init__(self, address: TopicAddress, group: str, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._closed = False
        self._refusal = _Refusal()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kafka-consumer")
        self._consumer = Consumer(
            {
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 4_096,
                "fetch.message.max.bytes": 1 << 20,
                **address.options,
                "bootstrap.servers": address.brokers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "error_cb": self._refusal.note,
                "log_level": 2,
            }
        )

    async def _call(self, call: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        run = partial(call, *args, **named)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, run)
        except KafkaException as error:
            raise translated(error.args[0], self._address) from error

    def _parts(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        topic = self._address.topic
        return [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    async def partitions(self) -> dict[int, list[int]]:
        """Return the partitions of the topic, and the brokers that replicate each.

        Empty if there is no topic.
        """
        begun = time.monotonic()
        try:
            found = await self._call(self._consumer.list_topics, self._address.topic, self._timeout)
        except BackendUnavailableError:
            await self._call(self._consumer.poll, 0)  # notes a refusal
            self._refusal.check(self._address, begun)
            raise
        topic = found.topics[self._address.topic]
        if topic.error is not None and topic.error.code() not in _MISSING:
            raise translated(topic.error, self._address)
        return {number: part.replicas for number, part in topic.partitions.items()}

    async def _offsets(self, partitions: Iterable[int], moment: int) -> dict[int, int]:
        parts = self._parts(dict.fromkeys(partitions, moment))
        if not parts:
            return {}
        for pause in _RETRIES:
            try:
                found = await self._call(self._consumer.offsets_for_times, parts, self._timeout)
                return {part.partition: self._checked(part).offset for part in found}
            except BackendUnavailableError:
                # After a change of leaders, the first question goes to the one before.
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def _checked(self, part: TopicPartition) -> TopicPartition:
        if part.error is not None:
            raise translated(part.error, self._address)
        return part

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset after the last record that consumers may read."""
        return await self._offsets(partitions, OFFSET_END)

    async def beginnings(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset of the first record that is kept."""
        return await self._offsets(partitions, OFFSET_BEGINNING)

    async def since(self, partitions: Iterable[int], millis: int) -> dict[int, int]:
        """Return the offset of the first record of a moment or later; the end if there is none."""
        found = await self._offsets(partitions, millis)
        missing = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **await self.ends(missing)}

    async def committed(self, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        """Return the offsets that the group has committed, with the note of each."""
        parts = self._parts(dict.fromkeys(partitions, 0))
        found = await self._call(self._consumer.committed, parts, self._timeout)
        return {
            part.partition: (part.offset, part.metadata or "")
            for part in map(self._checked, found)
            if part.offset >= 0
        }

    async def commit(self, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets with their notes."""
        topic = self._address.topic
        parts = [TopicPartition(topic, each, *offset) for each, offset in offsets.items()]
        await self._call(self._consumer.commit, offsets=parts, asynchronous=False)

    async def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from now on, from these offsets, besides the others."""
        await self._call(self._consumer.incremental_assign, self._parts(offsets))

    async def unassign(self, partitions: Iterable[int]) -> None:
        """Read these partitions no longer."""
        parts = self._parts(dict.fromkeys(partitions, 0))
        await self._call(self._consumer.incremental_unassign, parts)

    async def consume(self, most: int, seconds: float) -> Consumed:
        """Return the next records, and the state of partitions that have none."""
        messages = await self._call(self._consumer.consume, most, seconds)
        records: list[KafkaRecord] = []
        lost: list[int] = []
        ends: dict[int, int] = {}
        for message in messages:
            error = message.error()
            if error is None:
                records.append(self._record(message))
                ends.pop(records[-1].partition, None)
            elif error.code() == _AUTO_OFFSET_RESET:
                lost.append(message.partition() or 0)
            elif error.code() == _PARTITION_EOF:
                ends[message.partition() or 0] = message.offset() or 0
            elif not error.retriable():
                raise translated(error, self._address)
        return Consumed(records, lost, ends)

    def _record(self, message: Message) -> KafkaRecord:
        headers: Mapping[str, bytes] = dict(message.headers() or ())  # type: ignore[arg-type]  # stubs
        kind, millis = message.timestamp()
        return KafkaRecord(
            self.log,
            message.partition() or 0,
            message.offset() or 0,
            message.key(),
            message.value(),
            headers,
            millis if kind else -1,
        )

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._call(self._consumer.close)
            self._thread.shutdown(wait=False)
