"""Servers that lack commands, or do not tell under which name they are reached."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
import redis as peer

from conformance.suite import Opened, clicks, outcome
from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.connect import connect
from headwater.backends.redis.address import Address
from headwater.backends.redis.client import Redis, _endpoint, _script, command
from headwater.core.clock import SystemClock
from headwater.core.logging import log
from headwater.doctor.examination import examine
from headwater.errors import BackendError
from headwater.http.routes import ingest
from headwater.settings.schema import Settings
from tests.backends.whole_store import use_everything
from tests.cluster import cluster_machines
from tests.servers import valkey_node

pytestmark = pytest.mark.timeout(300)

ASKED = Address("asked", 1, username="me")
MISSING = ("CONFIG", "SCRIPT", "CLIENT", "INFO", "FUNCTION", "FCALL", "DEBUG", "KEYS", "MONITOR")


def renamed(*names: str) -> list[str]:
    """Return the options of a server without some commands."""
    return [word for name in names for word in ("--rename-command", name, "")]


@pytest.mark.parametrize(
    ("node", "host"),
    [
        ([b"10.0.0.7", 7, b"id", []], "10.0.0.7"),
        ([b"node.example", 7, b"id", [b"ip", b"10.0.0.7"]], "node.example"),
        ([None, 7, b"id", []], "asked"),
        ([None, 7], "asked"),
        ([b"", 7, b"id", []], "asked"),
        # Its name is not known, and so the address counts.
        ([b"?", 7, b"id", [b"ip", b"10.0.0.7"]], "10.0.0.7"),
        ([b"?", 7, b"id", []], "asked"),
        ([b"?", 7], "asked"),
    ],
)
def test_a_node_without_a_name_is_at_the_host_that_was_asked(node: list[object], host: str) -> None:
    assert _endpoint(ASKED, node) == Address(host, 7, username="me")


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["unknown-endpoint", "hostname", "ip"])
async def test_a_cluster_is_used_however_it_names_its_nodes(
    production: Settings, kind: str
) -> None:
    # Without a hostname, nodes of the second kind call themselves "?".
    options = ("--cluster-node-timeout", "60000", "--cluster-preferred-endpoint-type", kind)
    with cluster_machines(*options) as (first, *_):
        store = shop(production, f"redis://127.0.0.1:{first.port}/0")
        async with store:
            for number in range(20):
                await store.publish("buy", f"u{number}", {})
            await store.drain()
            rows = await store.get_features(["count"], [f"u{n}" for n in range(20)])
            assert [row["count"] for row in rows.values()] == [1] * 20


def shop(settings: Settings, url: str) -> FeatureStore:
    store = FeatureStore(settings=settings.replace(partitions=8, redis={"url": url}))

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def count(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("count", user_id) or 0) + 1

    return store


@pytest.mark.parametrize("how", ["renamed", "denied"])
async def test_a_server_without_optional_commands_is_enough(
    production: Settings, tmp_path: Path, how: str
) -> None:
    with valkey_node(*renamed(*MISSING if how == "renamed" else ())) as port:
        url = f"redis://127.0.0.1:{port}/0"
        if how == "denied":
            with peer.Redis.from_url(url) as client:
                rules = ("on", ">s", "~*", "&*", "+@all", *(f"-{name}" for name in MISSING))
                client.execute_command("ACL", "SETUSER", "few", *rules)
            url = url.replace("://", "://few:s@")
        chosen = production.replace(home=f"{tmp_path}/store", partitions=4, redis={"url": url})
        await use_everything(chosen)
        async with FeatureStore(settings=chosen) as store:
            findings = {
                finding.check: finding
                for finding in (await examine(store)).findings
                if finding.area == "message bus"
            }
        assert findings["connection"].severity == "ok"
        assert findings["memory"].severity == "unknown"
        assert "INFO" in findings["memory"].found.upper()


async def use(settings: Settings, url: str) -> None:
    async with shop(settings, url) as store:
        await store.publish("buy", "u1", {})


@pytest.mark.parametrize("lacking", ["EVAL", "PUBLISH", "HELLO"])
async def test_a_command_that_is_needed_is_named(production: Settings, lacking: str) -> None:
    needs = pytest.raises(BackendError, match=f"(?i){lacking}.*neither renamed nor disabled")
    with valkey_node(*renamed(lacking, "SCRIPT")) as port, needs:
        await use(production, f"redis://127.0.0.1:{port}/0")


@pytest.mark.parametrize("lacking", ["MEMORY", "SCAN", "DBSIZE"])
async def test_without_the_sizes_of_keys_a_limit_of_memory_refuses_nothing_and_says_so(
    production: Settings, lacking: str, caplog: pytest.LogCaptureFixture
) -> None:
    with valkey_node(*renamed(lacking)) as port:
        chosen = production.replace(partitions=4, redis={"max_memory": 1})
        async with shop(chosen, f"redis://127.0.0.1:{port}/0") as store:
            limit = ingest.MemoryLimit(store)
            log.use_logging()
            await limit.admit()
            await store.publish("buy", "u1", {})
            findings = {each.check: each for each in (await examine(store)).findings}
    assert caplog.text.count("memory limit has no effect") == 1
    assert findings["connection"].severity == "ok"
    assert findings["store memory"].severity == "unknown"
    assert lacking in findings["store memory"].found


async def test_scripts_that_a_server_forgets_at_any_time_are_sent_again(
    production: Settings,
) -> None:
    with valkey_node() as port:
        url = f"redis://127.0.0.1:{port}/0"
        operator = Redis(url, timeout=60, connect_timeout=60)
        await operator.open()

        async def flush() -> None:
            while True:
                await operator.call(command("k", "SCRIPT", "FLUSH"))
                await asyncio.sleep(0)

        flushing = asyncio.create_task(flush())
        async with shop(production, url) as store:
            for _ in range(5):
                events = [ServiceEvent("buy", f"u{n % 10}", {}) for n in range(100)]
                await store.bus.publish_many(events)
                await store.drain()
            rows = await store.get_features(["count"], [f"u{n}" for n in range(10)])
            assert [row["count"] for row in rows.values()] == [50] * 10
        flushing.cancel()
        await asyncio.wait([flushing])
        await operator.close()


async def test_a_page_that_was_read_before_its_commit_is_read_again(production: Settings) -> None:
    with valkey_node() as port:
        chosen = production.replace(redis={"url": f"redis://127.0.0.1:{port}/0"})
        opened = await connect(chosen, SystemClock())
        store = Opened(**msgspec.structs.asdict(opened))
        await store.publish(clicks(4))
        leases = await store.hold()
        (batch,) = await store.read(leases, limit=2)
        # The server still knows how to read, and has forgotten how to commit.
        with peer.Redis(port=port) as client:
            client.script_flush()
            client.script_load(_script("read").source)
        await store.bus.commit(outcome(batch))
        (following,) = await store.read(leases, limit=2)
        numbers = [each.event.payload["number"] for each in following.deliveries]
        assert numbers == [2, 3]
        await opened.lifecycle.close()
