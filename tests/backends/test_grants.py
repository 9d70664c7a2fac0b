"""The rights that `headwater doctor grants --print` shows are enough, and none is for nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis as peer

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.postgres import grants as in_postgres
from headwater.backends.postgres.migrate import migrate
from headwater.backends.redis import grants as in_redis
from headwater.engine.worker import worker
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.model.values import new_id
from headwater.settings.schema import Settings
from tests.backends.whole_store import use_everything
from tests.kafka import Brokers, on_kafka
from tests.sentinels import ask, watched

pytestmark = pytest.mark.timeout(300)

SCRIPT_CALL = re.compile(r"redis\.p?call\('(\w+)'(?:, '(\w+)')?")
CONTAINERS = ("client", "cluster", "config", "memory", "script", "sentinel", "xgroup", "xinfo")
OPTIONAL = {"config|get"}
NEEDS_NO_RIGHT = {"auth", "hello"}


def word(name: str, second: object) -> str:
    """Return a command as ACL rules write it."""
    name = name.lower()
    return f"{name}|{str(second).lower()}" if name in CONTAINERS else name


def named_in_scripts() -> Iterator[str]:
    for file in Path(str(files("headwater.backends.redis"))).rglob("*.lua"):
        for name, second in SCRIPT_CALL.findall(file.read_text("utf-8")):
            yield word(name, second)


def named_in_code() -> Iterator[str]:
    """Yield the commands in lists of words, and in calls of ``command(key, *words)``."""
    for file in Path(str(files("headwater.backends.redis"))).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            words: list[ast.expr] = []
            if isinstance(node, ast.List):
                words = node.elts
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command":
                words = node.args[1:]
            texts = [each.value for each in words if isinstance(each, ast.Constant)]
            if texts and isinstance(texts[0], str) and re.fullmatch("[A-Z]{3,}", texts[0]):
                yield word(texts[0], (*texts, "")[1])


def test_every_granted_command_is_sent_and_every_sent_one_granted() -> None:
    granted = {*in_redis.COMMANDS, *in_redis.WITH_KAFKA, *in_redis.WITH_A_DATABASE}
    sent = {*named_in_scripts(), *named_in_code()} - NEEDS_NO_RIGHT - OPTIONAL
    assert sent == granted | {*in_redis.SENTINEL}


def rules_of(text: str) -> list[str]:
    """Return the words of the first ACL command in a text, with a password."""
    (line, *_) = [line for line in text.splitlines() if line.startswith("ACL")]
    return line.replace(">PASSWORD", ">secret").split()


def on_all_servers(url: str, *command: str) -> None:
    """Run a command of the operator on the server, or on all masters of its cluster."""
    with ExitStack() as stack:
        servers = [stack.enter_context(peer.Redis.from_url(url))]
        if servers[0].info("cluster")["cluster_enabled"]:
            ranges: Any = servers[0].execute_command("CLUSTER SLOTS")
            servers = [stack.enter_context(peer.Redis(port=node[1])) for _, _, node, *_ in ranges]
        for server in servers:
            server.execute_command(*command)


@pytest.fixture(params=["server", pytest.param("cluster", marks=pytest.mark.cluster)])
def settings(request: pytest.FixtureRequest, production: Settings, tmp_path: Path) -> Settings:
    """Settings of a separate store, on a single Redis and on a cluster of three."""
    chosen = production.replace(home=f"{tmp_path}/store", partitions=4, worker={"lease_ttl": 60})
    if request.param == "cluster":
        return chosen.replace(redis={"url": request.getfixturevalue("cluster_url")})
    return chosen


@pytest.fixture
def limited(settings: Settings) -> Iterator[Settings]:
    """Settings whose URL has a user with the printed rights, named like the prefix."""
    url, name = settings.redis.url, settings.redis.prefix
    chosen = settings.replace(redis={"url": url.replace("redis://", f"redis://{name}:secret@")})
    on_all_servers(url, *rules_of(in_redis.grants(chosen)))
    yield chosen
    on_all_servers(url, "ACL", "DELUSER", name)


async def test_a_user_of_redis_with_the_printed_rights_is_enough(limited: Settings) -> None:
    await use_everything(limited)


async def test_a_prefix_with_characters_of_patterns_gives_no_right_to_other_stores(
    production: Settings,
) -> None:
    url, prefix = production.redis.url, f"{production.redis.prefix}-[a*?]"
    user = url.replace("redis://", "redis://pattern:secret@")
    chosen = production.replace(redis={"url": user, "prefix": prefix})
    on_all_servers(url, *rules_of(in_redis.grants(chosen)))
    try:
        with peer.Redis.from_url(user) as client:
            client.set(f"{prefix}:meta", 1)
            client.publish(f"{prefix}:wake", "0")
            for other in (f"{production.redis.prefix}-a", f"{production.redis.prefix}-[ab?]"):
                with pytest.raises(peer.exceptions.NoPermissionError):
                    client.set(f"{other}:meta", 1)
    finally:
        on_all_servers(url, "ACL", "DELUSER", "pattern")
        on_all_servers(url, "DEL", f"{prefix}:meta")


@pytest.mark.parametrize(
    ("redis", "named"),
    [
        ({"url": "redis://my%20user:pw@h/0"}, "the user of redis.url is 'my user'"),
        ({"prefix": "a b"}, "redis.prefix is 'a b'"),
        ({"prefix": 'a"b'}, "redis.prefix is 'a\"b'"),
    ],
)
def test_names_that_a_rule_cannot_have_are_refused(redis: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        in_redis.grants(Settings().replace(redis={"url": "redis://h/0", **redis}))


async def test_they_are_enough_for_a_store_whose_events_are_in_kafka(
    settings: Settings, kafka: Brokers
) -> None:
    url, name = settings.redis.url, settings.redis.prefix
    user = url.replace("redis://", f"redis://{name}:secret@")
    chosen = on_kafka(settings.replace(redis={"url": user}), kafka.new_topic())
    on_all_servers(url, *rules_of(in_redis.grants(chosen)))
    async with FeatureStore(settings=chosen) as store:
        sent = [ServiceEvent("buy", f"u{number}", {}) for number in range(20)]
        await store.bus.publish_many(sent)
        await store.drain()
        assert sum(lag.waiting for lag in await store.admin.lag()) == 0
        (result,) = await store.bus.publish_many([ServiceEvent("buy", "u1", {})], wait="100ms")
        assert not result.duplicate
    on_all_servers(url, "ACL", "DELUSER", name)


async def test_it_sees_no_other_keys_and_channels(limited: Settings) -> None:
    with peer.Redis.from_url(limited.redis.url) as client:
        for refused in (
            ["GET", "other:meta"],
            ["GET", f"{limited.redis.prefix}-b:meta"],
            ["PUBLISH", "other:wake", "x"],
            ["FLUSHALL"],
            ["KEYS", "*"],
            ["CONFIG", "GET", "*"],
        ):
            with pytest.raises(peer.exceptions.NoPermissionError):
                client.execute_command(*refused)


async def test_a_right_that_is_missing_is_named_with_the_command_that_shows_all(
    settings: Settings, limited: Settings
) -> None:
    on_all_servers(settings.redis.url, "ACL", "SETUSER", settings.redis.prefix, "resetchannels")
    with pytest.raises(BackendUnavailableError, match=r"NOPERM.*`headwater doctor grants --print`"):
        await FeatureStore(settings=limited).open()


@pytest.mark.parametrize("right", ["set", "xrange", "exists"])  # to claim, to read, to commit
async def test_a_drain_ends_with_the_error_of_a_right_that_is_missing(
    settings: Settings, limited: Settings, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    monkeypatch.setattr(worker, "_DRAIN_PATIENCE", 0.1)
    change = partial(on_all_servers, settings.redis.url, "ACL", "SETUSER", settings.redis.prefix)
    async with FeatureStore(settings=limited) as store:

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy")
        def last_bought(user_id: str, event: ServiceEvent) -> str:
            return event.event_id

        bought = await store.publish("buy", "ada", {})
        change(f"-{right}")
        # A cluster's partitions are read together, and the log has the reason of each.
        named = r"`headwater doctor grants --print`|no server of the cluster has answered"
        with pytest.raises(BackendUnavailableError, match=named):
            await store.drain()
        change(f"+{right}")
        await store.drain()
        assert await store.get_feature("last_bought", "ada") == bought.event_id


async def test_users_of_sentinels_and_their_master_with_the_printed_rights_are_enough(
    production: Settings,
) -> None:
    with watched() as servers:
        sentinel = {"username": "guard", "password": "secret"}
        url = servers.url.replace("://", "://headwater:secret@")
        chosen = production.replace(partitions=4, redis={"url": url, "sentinel": sentinel})
        first, second = [
            line.replace(">PASSWORD", ">secret").split()
            for line in in_redis.grants(chosen).splitlines()
            if line.startswith("ACL")
        ]
        for server in servers.servers:
            ask(server, *first)
        for each in servers.sentinels:
            ask(each, *second)
        async with FeatureStore(settings=chosen) as store:
            await store.publish("bought", "u1", {})
            await store.drain()
            assert all(health.ok for health in await store.admin.health())


async def run_as(url: str, sql: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


@pytest.fixture
async def elsewhere(production: Settings, tmp_path: Path) -> AsyncIterator[Settings]:
    """Settings with a new database, whose administrator is no superuser, as managed ones are."""
    name = f"db_{new_id()[-12:]}"
    url = production.postgres.url
    host = urlsplit(url).netloc.rpartition("@")[2]
    await run_as(url, f"CREATE ROLE admin_{name} LOGIN CREATEROLE PASSWORD 'secret'")
    await run_as(url, f"CREATE DATABASE {name} TEMPLATE template0 OWNER admin_{name}")
    # Managed servers let administrators add this one, and others only a superuser.
    await run_as(f"{url.rpartition('/')[0]}/{name}", "CREATE EXTENSION vector")
    chosen = production.replace(
        home=f"{tmp_path}/store",
        partitions=4,
        worker={"lease_ttl": 60},
        postgres={"url": f"postgresql://run_{name}:secret@{host}/{name}", "schema": "shop"},
    )
    script = in_postgres.grants(chosen).replace("'PASSWORD'", "'secret'")
    await run_as(f"postgresql://admin_{name}:secret@{host}/{name}", script)
    yield chosen
    await run_as(url, f"DROP DATABASE {name} WITH (FORCE)")
    await run_as(url, f"DROP ROLE run_{name}, run_{name}_owner; DROP ROLE admin_{name}")


USED = """
SELECT sum(n_tup_ins) > 0, sum(n_tup_upd) > 0, sum(n_tup_del) > 0, sum(seq_scan + idx_scan) > 0
FROM pg_stat_user_tables WHERE schemaname = 'shop'
"""
OF_RUNNING_USER = """
SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
WHERE relnamespace = 'shop'::regnamespace AND pg_get_userbyid(relowner) = current_user
    AND relkind = 'r'
"""


@pytest.mark.parametrize("pooler", ["none", "transaction"])
async def test_roles_of_postgres_with_the_printed_rights_are_enough(
    elsewhere: Settings, pooler: str
) -> None:
    elsewhere = elsewhere.replace(postgres={"pooler": pooler})
    url = elsewhere.postgres.url
    owner = url.replace(":secret@", "_owner:secret@")
    await migrate(elsewhere.replace(postgres={"url": owner}))
    await use_everything(elsewhere)
    connection = await asyncpg.connect(url)
    try:
        [used] = await connection.fetch(USED)
        assert tuple(used) == (True,) * 4
        # CREATE on the schema is for these.
        assert all(
            name.startswith("_chunks_") for name in await connection.fetchval(OF_RUNNING_USER)
        )
        for sql in (
            "DROP TABLE shop._history",
            "TRUNCATE shop._events",
            "ALTER TABLE shop._audit_log DISABLE TRIGGER append_only",
            "CREATE SCHEMA other",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(sql)
    finally:
        await connection.close()
