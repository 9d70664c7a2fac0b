"""Several stores on one Redis and Postgres: none sees another, and each keeps to its limits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import redis as peer

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.memory import store_bytes
from headwater.client import AsyncClient
from headwater.declarations.runtime import runtime_of
from headwater.doctor.examination import examine
from headwater.errors import OverloadedError
from headwater.http.app import create_app
from headwater.http.routes import ingest
from headwater.model.health import Finding
from headwater.settings.schema import Settings
from headwater.store import event_loading
from tests.backends.whole_store import use_everything
from tests.schemas import Schemas
from tests.servers import valkey_node

pytestmark = pytest.mark.timeout(300)

TABLES = """
SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY tablename
"""


def masters(url: str) -> Iterator[peer.Redis]:
    """Yield a client of the server, or of each master of its cluster."""
    with peer.Redis.from_url(url) as client:
        if not client.info("cluster")["cluster_enabled"]:
            yield client
            return
        ranges: Any = client.execute_command("CLUSTER SLOTS")
    for _, _, (_, port, *_), *_ in ranges:
        with peer.Redis(port=port) as master:
            yield master


def keys_of(url: str, prefix: str) -> dict[bytes, bytes]:
    """Return all keys of a store that stay, with their contents."""
    found: dict[bytes, bytes] = {}
    for server in masters(url):
        for pattern in (f"{prefix}:*", f"{{{prefix}:*"):
            names = [key for key in server.scan_iter(pattern) if server.pttl(key) == -1]
            found |= {key: server.dump(key) for key in names}
    return found


async def rows_of(settings: Settings) -> dict[str, list[str]]:
    """Return all rows of a schema."""
    connection = await asyncpg.connect(settings.postgres.url)
    try:
        schema = settings.postgres.schema
        return {
            table: [
                row["text"]
                for row in await connection.fetch(
                    f'SELECT t::text AS text FROM "{schema}"."{table}" AS t ORDER BY 1'
                )
            ]
            for (table,) in await connection.fetch(TABLES, schema)
        }
    finally:
        await connection.close()


@pytest.fixture
def neighbour(settings: Settings, schemas: Schemas) -> Iterator[Settings]:
    """A store on the same servers, whose prefix begins like that of the other one."""
    with schemas.lent() as schema:
        yield settings.replace(
            redis={"prefix": f"{settings.redis.prefix}-b"}, postgres={"schema": schema}
        )


async def test_stores_side_by_side_never_see_each_other(
    settings: Settings, neighbour: Settings, tmp_path: Path
) -> None:
    await use_everything(neighbour.replace(home=f"{tmp_path}/b/store"))
    keys = keys_of(settings.redis.url, neighbour.redis.prefix)
    rows = await rows_of(neighbour)
    assert len(keys) > 10
    assert sum(map(len, rows.values())) > 10
    # It has a model of its own, which another store's values, events or documents would contradict.
    await use_everything(settings.replace(home=f"{tmp_path}/a/store"))
    assert keys_of(settings.redis.url, neighbour.redis.prefix) == keys
    assert await rows_of(neighbour) == rows


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def last(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["text"])

    return store


async def test_the_memory_of_a_store_is_about_what_its_keys_take(settings: Settings) -> None:
    url, prefix = settings.redis.url, settings.redis.prefix
    async with shop(settings) as store:
        events = [ServiceEvent("buy", f"u{n}", {"text": "y" * 900}) for n in range(2_000)]
        await store.bus.publish_many(events)
        for _ in range(2):
            taken = await (await runtime_of(store).open()).backends.bus.memory()
            exact = sum(
                server.memory_usage(key, samples=0) or 0
                for server in masters(url)
                for pattern in (f"{prefix}:*", f"{{{prefix}:*")
                for key in server.scan_iter(pattern)
            )
            assert taken is not None
            assert 0.5 * exact < taken < 1.5 * exact
            await store.drain()


async def test_the_sets_of_ids_count_once_and_are_not_taken_for_usual_keys(
    production: Settings,
) -> None:
    keys = Keys(production.redis.prefix, 16, "headwater")
    with valkey_node() as port:
        redis = Redis(f"redis://127.0.0.1:{port}/0", timeout=60, connect_timeout=60)
        await redis.open()
        for part in keys.entity_parts:
            ids = [f"{part.events}-{number}" for number in range(1_000)]
            states = [(part.state(("user", each)), "y" * 50) for each in ids]
            members = [word for each in ids for word in (0, each)]
            await redis.call(command(part.ids, "ZADD", f"{part.ids}user", *members))
            await redis.call(command(part.ids, "MSET", *(word for pair in states for word in pair)))
        with peer.Redis(port=port) as client:
            exact = sum(client.memory_usage(key, samples=0) or 0 for key in client.scan_iter())
        taken = await store_bytes(redis, keys)
        await redis.close()
    assert taken == pytest.approx(exact, rel=0.1)


@pytest.fixture
async def api(
    production: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """A server of a store that may take two million bytes."""
    monkeypatch.setattr(ingest, "_MEMORY_SECONDS", 0.0)
    monkeypatch.setattr(ingest, "_PAUSES_PER_COUNT", 0)
    store = shop(production.replace(partitions=4, redis={"max_memory": 2_000_000}))
    async with store:
        transport = httpx.ASGITransport(create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


async def test_a_store_that_takes_too_much_memory_refuses_events(
    api: httpx.AsyncClient,
) -> None:
    batch = [
        {"event_type": "buy", "entity_id": f"u{n}", "payload": {"text": "y" * 900}}
        for n in range(500)
    ]
    answers = [await api.post("/ingest", json=batch) for _ in range(8)]
    assert answers[0].status_code == 202
    refused = answers[-1]
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["type"].endswith("store-full")
    assert "2,000,000 are its maximum" in refused.json()["detail"]
    assert "raise redis.max_memory" in refused.json()["detail"]
    (single,) = [await api.post("/ingest/buy", json={"entity_id": "u1", "payload": {"text": "y"}})]
    assert single.status_code == 503


async def test_a_load_into_a_full_store_ends_with_its_reason(
    production: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loading, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(event_loading, "_PATIENCE", {"store-full": 0.1})
    file = tmp_path / "past.csv"
    file.write_text("user,text\nada,y\n")
    store = shop(production.replace(partitions=4, redis={"max_memory": 1}))
    transport = httpx.ASGITransport(create_app(store))
    async with (
        store,
        AsyncClient("http://localhost", retries=0, transport=transport) as client,
    ):
        await store.publish("buy", "ada", {"text": "y"})
        with pytest.raises(OverloadedError, match=r"raise redis\.max_memory"):
            await client.bus.load(file, type="buy", entity_id="user", timestamp=None)


async def findings_of(store: FeatureStore) -> dict[str, Finding]:
    return {f"{each.area}: {each.check}": each for each in (await examine(store)).findings}


async def test_the_doctor_names_a_neighbour_that_takes_the_server(production: Settings) -> None:
    with valkey_node() as port:
        url = f"redis://127.0.0.1:{port}/0"
        chosen = production.replace(partitions=4, redis={"url": url, "max_memory": 100_000})
        async with shop(chosen) as store:
            events = [ServiceEvent("buy", f"u{n}", {"text": "y" * 900}) for n in range(200)]
            await store.bus.publish_many(events)
            found = await findings_of(store)
            assert "message bus: neighbours" not in found
            assert found["message bus: store memory"].severity == "error"
            assert "events are refused" in found["message bus: store memory"].found
            with peer.Redis.from_url(url) as client:
                for number in range(2_000):
                    client.set(f"session:{number}", b"x" * 2_000)
                client.xadd("other:{p00}:events", {"e": b"x" * 500_000})
                client.config_set("maxmemory", client.info("memory")["used_memory"] + 100_000)
            found = await findings_of(store)
            neighbours = found["message bus: neighbours"]
            assert neighbours.severity == "warning"
            assert "keys that begin with 'session:'" in neighbours.found
            assert "the store with the prefix 'other'" in neighbours.found
            assert "this store" in neighbours.found
            assert neighbours.remedy.startswith("keys that begin with 'session:' takes most")
            # A user that may not see the sizes of other keys.
            with peer.Redis.from_url(url) as client:
                rules = ("on", ">s", "+@all", f"~{chosen.redis.prefix}:*", "~{*", "&*")
                client.execute_command("ACL", "SETUSER", "few", *rules)
            few = chosen.replace(redis={"url": url.replace("://", "://few:s@")})
            async with shop(few) as other:
                neighbours = (await findings_of(other))["message bus: neighbours"]
            assert "of the keys" in neighbours.found
            assert "keys that begin with 'session:'" in neighbours.found


async def test_the_doctor_names_the_sizes_of_schemas(production: Settings) -> None:
    async with shop(production) as store:
        found = (await findings_of(store))["relational store: size"]
    assert f"in schema {production.postgres.schema!r}" in found.found
