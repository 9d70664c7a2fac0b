"""A publisher sends events in batches and in order, waits when full, and loses none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, create_app
from headwater.client import AsyncClient, Client, FailedEvent, Publisher, PublishFailedError
from headwater.errors import (
    CallerLimitError,
    ClosedError,
    EventConflictError,
    EventError,
    InvalidInputError,
)
from headwater.settings.schema import Settings
from tests.client.conftest import KEY, URL, MakeClient, shop
from tests.client.unreliable import Answer, Unreliable, lost, refused
from tests.http.key_files import add_key


def purchases(count: int, entity_id: str = "ada") -> list[ServiceEvent]:
    return [ServiceEvent("purchase", entity_id, {"amount": 1.0}) for _ in range(count)]


async def stored(store: FeatureStore) -> set[str]:
    return {each.event.event_id for each in await store.bus.list(limit=10_000)}


async def publish_all(publisher: Publisher, events: Sequence[ServiceEvent]) -> None:
    async with publisher:
        for event in events:
            await publisher.publish(event)


async def test_events_are_sent_in_batches_and_all_at_the_end(
    connect: MakeClient, store: FeatureStore
) -> None:
    network, events = Unreliable(create_app(store)), purchases(250)
    await publish_all(connect(transport=network).publisher(max_batch=100, linger=60), events)
    assert await stored(store) == {each.event_id for each in events}
    assert len(network.requests) == 3


async def test_a_batch_that_is_not_full_is_sent_after_its_linger(
    client: AsyncClient, store: FeatureStore
) -> None:
    async with client.publisher(linger=0.001) as publisher:
        await publisher.publish(purchases(1)[0])
        async with asyncio.timeout(30):
            while not await stored(store):  # noqa: ASYNC110 - the condition is in the store
                await asyncio.sleep(0.005)


async def test_only_events_outside_of_the_limits_of_the_key_fail(
    tmp_path: Path, connect: MakeClient, store: FeatureStore
) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, "tenant", "ingest", tenant="acme-")
    app = create_app(shop(store.settings.replace(keys_file=str(path))))
    client = connect(key=key, transport=httpx.ASGITransport(app))
    mine, others = purchases(3, "acme-1"), purchases(2, "bell-1")
    with pytest.raises(PublishFailedError) as failed:
        await publish_all(
            client.publisher(linger=60), [others[0], mine[0], others[1], mine[1], mine[2]]
        )
    assert [each.event for each in failed.value.failures] == others
    assert {type(each.error) for each in failed.value.failures} == {CallerLimitError}
    assert await stored(store) == {each.event_id for each in mine}
    with pytest.raises(CallerLimitError) as refused:
        await client.bus.publish_many([mine[0], others[0]])
    assert refused.value.index == 1


async def test_flush_waits_until_all_events_are_stored(
    client: AsyncClient, store: FeatureStore
) -> None:
    async with client.publisher(linger=60) as publisher:
        await publisher.publish(purchases(1)[0])
        await publisher.flush()
        assert len(await stored(store)) == 1
        await publisher.flush()


class _Gated(Unreliable):
    """A network that holds its requests until a test opens it."""

    def __init__(self, app: object) -> None:
        super().__init__(app)
        self.is_open = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self.is_open.wait()
        return await super().handle_async_request(request)


async def test_publish_waits_while_as_many_events_wait_as_may(
    connect: MakeClient, store: FeatureStore
) -> None:
    network = _Gated(create_app(store))
    queued = 0
    async with connect(transport=network).publisher(
        max_batch=5, max_waiting=20, linger=0
    ) as publisher:

        async def produce() -> None:
            nonlocal queued
            for event in purchases(50):
                await publisher.publish(event)
                queued += 1

        producer = asyncio.create_task(produce())
        for _ in range(200):
            await asyncio.sleep(0)
        assert queued == 20
        network.is_open.set()
        await producer
    assert len(await stored(store)) == 50


async def test_events_of_one_entity_stay_in_order_after_failures(
    connect: MakeClient, store: FeatureStore
) -> None:
    network = Unreliable(create_app(store), refused, lost)
    events = [ServiceEvent("step", "ada", {"number": number}) for number in range(30)]
    async with connect(transport=network).publisher(max_batch=7) as publisher:
        for event in events:
            await publisher.publish(event)
    logged = await store.bus.list(event_type="step", limit=100)
    assert len(logged) == 30
    times = {each.event.payload["number"]: each.event.timestamp for each in logged}
    assert sorted(times, key=lambda number: (times[number], number)) == list(range(30))


async def test_only_the_events_concerned_fail(client: AsyncClient, store: FeatureStore) -> None:
    events = purchases(10)
    await client.bus.publish(events[2])
    conflicting = ServiceEvent("purchase", "ada", {"amount": 9.0}, event_id=events[2].event_id)
    future = ServiceEvent("purchase", "ada", {}, datetime.now(UTC) + timedelta(days=400))
    large = ServiceEvent("purchase", "ada", {"note": "x" * 1_100_000})
    given = [*events[:2], conflicting, *events[3:6], future, *events[6:], large]
    with pytest.raises(PublishFailedError, match="3 events were not published") as failed:
        await publish_all(client.publisher(max_batch=100, linger=60), given)
    kinds = {id(each.event): type(each.error) for each in failed.value.failures}
    assert kinds.keys() == {id(conflicting), id(future), id(large)}
    assert kinds[id(conflicting)] is EventConflictError
    assert kinds[id(future)] is EventError
    assert await stored(store) == {each.event_id for each in events}


async def test_a_failure_ends_the_loop_that_publishes_and_all_are_reported(
    connect: MakeClient, store: FeatureStore
) -> None:
    denied = connect(key="a key that the server does not have")
    published = 0

    async def produce() -> None:
        nonlocal published
        async with denied.publisher(max_batch=5, max_waiting=50, linger=0) as publisher:
            for event in purchases(1000):
                await publisher.publish(event)
                published += 1
                await asyncio.sleep(0)

    with pytest.raises(PublishFailedError) as failed:
        await produce()
    assert len(failed.value.failures) == published < 1000
    assert not await stored(store)


async def test_failures_go_to_the_callback_if_there_is_one(
    client: AsyncClient, store: FeatureStore
) -> None:
    failures: list[FailedEvent] = []
    bad = ServiceEvent("purchase", "ada", {}, datetime.now(UTC) + timedelta(days=400))
    async with client.publisher(on_error=failures.append) as publisher:
        for event in [bad, *purchases(3)]:
            await publisher.publish(event)
    assert [each.event for each in failures] == [bad]
    assert "future" in str(failures[0].error)
    assert len(await stored(store)) == 3


async def test_queued_events_are_sent_if_the_block_fails(
    client: AsyncClient, store: FeatureStore
) -> None:
    bad = ServiceEvent("purchase", "ada", {}, datetime.now(UTC) + timedelta(days=400))

    async def produce() -> None:
        async with client.publisher(linger=60) as publisher:
            for event in [bad, *purchases(3)]:
                await publisher.publish(event)
            raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller") as raised:
        await produce()
    assert len(await stored(store)) == 3
    assert "1 event was not published" in raised.value.__notes__[0]


async def test_an_event_that_is_not_json_is_refused_at_once(client: AsyncClient) -> None:
    async with client.publisher() as publisher:
        with pytest.raises(EventError, match="is not JSON"):
            await publisher.publish(ServiceEvent("purchase", "ada", {"amount": object()}))


async def test_a_publisher_outside_its_block_refuses_events(client: AsyncClient) -> None:
    publisher = client.publisher()
    with pytest.raises(ClosedError):
        await publisher.publish(purchases(1)[0])
    async with publisher:
        pass
    with pytest.raises(ClosedError):
        await publisher.publish(purchases(1)[0])


async def test_impossible_limits_are_refused(client: AsyncClient) -> None:
    with pytest.raises(InvalidInputError, match="max_waiting"):
        client.publisher(max_batch=10, max_waiting=5)


async def test_a_body_that_is_too_large_is_sent_in_halves(
    connect: MakeClient, store: FeatureStore
) -> None:
    too_large = Answer(
        413,
        {"content-type": "application/problem+json"},
        b'{"type":"urn:headwater:problem:too-large","title":"t","status":413,"detail":"d"}',
    )
    network = Unreliable(create_app(store), too_large, too_large)
    async with connect(transport=network).publisher(max_batch=8, linger=60) as publisher:
        for event in purchases(8):
            await publisher.publish(event)
    assert len(await stored(store)) == 8
    assert len(network.requests) == 5


def test_the_blocking_publisher_stores_all_events(store: FeatureStore) -> None:
    transport = httpx.ASGITransport(create_app(store))
    with Client(URL, key=KEY, settings=Settings(), transport=transport) as client:
        with client.publisher(max_batch=10) as publisher:
            for event in purchases(25):
                publisher.publish(event)
            publisher.flush()
        assert client.bus.publish(event).duplicate
