"""Users and passwords that change on the servers while a store is in use."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import replica_pools
from headwater.backends.redis.client import Redis, command
from headwater.core import credentials
from headwater.core.credentials import Login
from headwater.core.masking import FileText
from headwater.engine.worker.worker import Worker
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.settings.loading import load
from headwater.settings.schema import SETTINGS, Settings
from headwater.settings.servers import PostgresSettings, RedisSettings
from tests.engine.support import until
from tests.sentinels import ask
from tests.servers import Machine, valkey_machine

RIGHTS = ("allkeys", "allchannels", "+@all", "-@dangerous")


@pytest.fixture
def machine() -> Iterator[Machine]:
    with valkey_machine() as machine:
        yield machine


class Issuer:
    """A function of users that issues credentials, as a cloud does."""

    def __init__(self) -> None:
        self.login = ("", "")
        self.lifetime: timedelta | None = None
        self.calls = 0
        self.is_down = False
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self) -> tuple[str, str, datetime | None]:
        self.calls += 1
        self.may_answer.wait(60)
        if self.is_down:
            raise ConnectionError("the issuer does not answer")
        ends = datetime.now(UTC) + self.lifetime if self.lifetime else None
        return (*self.login, ends)


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Issuer:
    module, issuer = ModuleType("cloud"), Issuer()
    module.token = issuer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cloud", module)
    return issuer


def users(machine: Machine) -> set[str]:
    """Return the users of our connections."""
    clients = ask(machine, "CLIENT LIST")
    return {client["user"] for client in clients if client["name"] == "headwater"}


@asynccontextmanager
async def client(machine: Machine, **settings: Any) -> AsyncIterator[Redis]:
    url = settings.pop("url", f"redis://127.0.0.1:{machine.port}/0")
    redis = Redis.of(RedisSettings(url=url, timeout=30, connect_timeout=30, **settings))
    try:
        await redis.open()
        yield redis
    finally:
        await redis.close()


async def test_credentials_are_renewed_before_they_expire_on_the_same_connection(
    machine: Machine, issuer: Issuer
) -> None:
    for user in ("first", "second"):
        ask(machine, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
    issuer.login, issuer.lifetime = ("first", "first"), timedelta(seconds=5)
    async with client(machine, credentials="cloud:token") as redis:
        received: list[Any] = []
        subscriber = await redis.subscribe("news", received.append)
        (connection,) = redis.connections.values()
        assert users(machine) == {"first"}
        issuer.login = ("second", "second")
        began = time.monotonic()
        errors: list[Exception] = []

        async def use() -> None:
            while users(machine) != {"second"}:
                try:
                    await redis.call(command("k", "INCR", "k"))
                except BackendUnavailableError as error:
                    errors.append(error)

        async with asyncio.timeout(60):
            await use()
        assert time.monotonic() - began < 5
        assert [*redis.connections.values()] == [connection]
        assert subscriber.is_retired
        assert errors == []
        # The user of before can go.
        ask(machine, "ACL DELUSER", "first")
        assert await redis.call(command("k", "PING")) == b"PONG"


async def test_a_refused_password_is_asked_for_again(machine: Machine, issuer: Issuer) -> None:
    ask(machine, "ACL SETUSER", "app", "on", ">old", *RIGHTS)
    issuer.login = ("app", "old")
    async with client(machine, credentials="cloud:token") as redis:
        ask(machine, "ACL SETUSER", "app", "resetpass", ">new")
        issuer.login = ("app", "new")
        ask(machine, "CLIENT KILL", "USER", "app")
        (connection,) = redis.connections.values()
        await connection.closed
        assert await redis.call(command("k", "PING")) == b"PONG"
        assert issuer.calls == 2


async def test_a_server_that_learns_of_a_login_late_is_tried_again_and_delays_no_other(
    machine: Machine, issuer: Issuer
) -> None:
    with valkey_machine() as other:
        ask(machine, "ACL SETUSER", "first", "on", ">first", *RIGHTS)
        for user in ("first", "second"):
            ask(other, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
        issuer.login, issuer.lifetime = ("first", "first"), timedelta(seconds=2)
        async with client(machine, credentials="cloud:token") as redis:
            (seed,) = redis.connections
            await redis._connection(seed.at("127.0.0.1", other.port))  # noqa: SLF001
            issuer.login, issuer.lifetime = ("second", "second"), timedelta(hours=1)
            await until(lambda: users(other) == {"second"})
            await until(lambda: bool(ask(machine, "ACL LOG")))
            assert users(machine) == {"first"}
            assert await redis.call(command("k", "PING")) == b"PONG"
            ask(machine, "ACL SETUSER", "second", "on", ">second", *RIGHTS)
            await until(lambda: users(machine) == {"second"})


async def test_an_issuer_that_fails_is_an_outage_only_when_nothing_is_valid(
    machine: Machine, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.1)
    ask(machine, "ACL SETUSER", "app", "on", ">app", *RIGHTS)
    issuer.login, issuer.lifetime = ("app", "app"), timedelta(seconds=2)
    async with client(machine, credentials="cloud:token") as redis:
        issuer.is_down = True
        await until(lambda: issuer.calls > 3)
        assert await redis.call(command("k", "PING")) == b"PONG"
    with pytest.raises(BackendUnavailableError, match="cloud:token' failed: ConnectionError: the"):
        async with client(machine, credentials="cloud:token"):
            pass


@pytest.fixture
def pool_settings(production: Settings, issuer: Issuer) -> PostgresSettings:
    """Return settings whose function returns the user of the tests."""
    place = urlsplit(production.postgres.url)
    issuer.login = (place.username or "", place.password or "")
    return replace(production.postgres, credentials="cloud:token")


async def test_no_statement_waits_for_a_function_while_its_login_is_valid(
    pool_settings: PostgresSettings, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_MARGIN_SHARE", 1)  # the next login is due at once
    issuer.lifetime = timedelta(seconds=120)
    pool = Postgres(pool_settings)
    try:
        assert await pool.run(lambda connection: connection.fetchval("SELECT 1")) == 1
        issuer.may_answer.clear()
        async with asyncio.timeout(20):
            while issuer.calls < 2:
                await pool.run(lambda connection: connection.fetchval("SELECT 1"))
            assert await pool.run(lambda connection: connection.fetchval("SELECT 2")) == 2
    finally:
        issuer.may_answer.set()
        await pool.close()


async def test_no_connection_waits_for_a_function_while_its_login_is_valid(
    machine: Machine, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(machine, "ACL SETUSER", "app", "on", ">app", *RIGHTS)
    issuer.login, issuer.lifetime = ("app", "app"), timedelta(seconds=120)
    async with client(machine, credentials="cloud:token") as redis:
        # The next login is due at once.
        monkeypatch.setattr(credentials, "_MARGIN_SHARE", 1)
        redis._credentials.refuse(Login("app", "app"))  # type: ignore[union-attr]  # noqa: SLF001
        (await redis.subscribe("news", print)).close()
        issuer.may_answer.clear()
        try:
            async with asyncio.timeout(20):
                (await redis.subscribe("news", print)).close()
            await until(lambda: issuer.calls == 3)
        finally:
            issuer.may_answer.set()


async def test_a_function_that_fails_is_not_called_by_every_caller(
    pool_settings: PostgresSettings, issuer: Issuer
) -> None:
    issuer.is_down = True
    pool = Postgres(pool_settings)
    for _ in range(3):
        with pytest.raises(BackendUnavailableError, match="the issuer does not answer"):
            await pool.run(lambda connection: connection.fetchval("SELECT 1"))
    assert issuer.calls == 1
    await pool.close()


async def test_a_function_that_does_not_answer_is_named(
    pool_settings: PostgresSettings, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_PATIENCE_SECONDS", 0.1)
    issuer.may_answer.clear()
    pool = Postgres(pool_settings)
    try:
        with pytest.raises(BackendUnavailableError, match=r"cloud:token' failed.* within 0\.1 s"):
            await pool.run(lambda connection: connection.fetchval("SELECT 1"))
    finally:
        issuer.may_answer.set()
    monkeypatch.setattr(credentials, "_PATIENCE_SECONDS", 60)
    assert await pool.run(lambda connection: connection.fetchval("SELECT 1")) == 1
    assert issuer.calls == 1
    await pool.close()


async def test_a_function_that_hangs_is_called_again(
    pool_settings: PostgresSettings, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_PATIENCE_SECONDS", "_LONGEST_FETCH", "_LOOK_SECONDS"):
        monkeypatch.setattr(credentials, limit, 0.05)
    issuer.may_answer.clear()
    pool = Postgres(pool_settings)

    async def is_called_again() -> bool:
        with pytest.raises(BackendUnavailableError, match="cloud:token' failed"):
            await pool.run(lambda connection: connection.fetchval("SELECT 1"))
        return issuer.calls > 1

    try:
        await until(is_called_again)
    finally:
        issuer.may_answer.set()
        await pool.close()


async def test_a_time_without_a_zone_is_refused(
    pool_settings: PostgresSettings, monkeypatch: pytest.MonkeyPatch, issuer: Issuer
) -> None:
    naive = datetime.now(UTC).replace(tzinfo=None) + timedelta(minutes=15)
    module = sys.modules["cloud"]
    monkeypatch.setattr(module, "token", lambda: (*issuer.login, naive))
    pool = Postgres(pool_settings)
    with pytest.raises(BackendUnavailableError, match="expires_at has no time zone"):
        await pool.run(lambda connection: connection.fetchval("SELECT 1"))
    await pool.close()


async def test_a_connection_that_is_opened_during_a_renewal_gets_the_new_login(
    machine: Machine, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("first", "second"):
        ask(machine, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
    issuer.login, issuer.lifetime = ("first", "first"), timedelta(seconds=5)
    async with client(machine, credentials="cloud:token") as redis:
        may_load, load_scripts = asyncio.Event(), redis._load_scripts  # noqa: SLF001

        async def load_late(connection: Any) -> None:
            await may_load.wait()
            await load_scripts(connection)

        monkeypatch.setattr(redis, "_load_scripts", load_late)
        (connection,) = redis.connections.values()
        connection.close()
        await connection.closed
        opening = asyncio.create_task(redis.call(command("k", "PING")))
        await until(lambda: users(machine) == {"first"})
        issuer.login, issuer.lifetime = ("second", "second"), timedelta(hours=1)
        await until(lambda: redis._credentials.latest() == issuer.login)  # type: ignore[union-attr]  # noqa: SLF001
        may_load.set()
        assert await opening == b"PONG"
        await until(lambda: users(machine) == {"second"})


async def test_a_function_that_does_not_exist_is_named(machine: Machine) -> None:
    with pytest.raises(ConfigError, match=r"redis\.credentials = 'nowhere:token' cannot be loaded"):
        async with client(machine, credentials="nowhere:token"):
            pass


async def test_a_file_of_a_password_is_followed(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.1)
    for user in ("first", "second"):
        ask(machine, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
    file = tmp_path / "url"
    place = f"127.0.0.1:{machine.port}/0"
    file.write_text(f"redis://first:first@{place}\n")
    url = load({"HEADWATER_REDIS_URL_FILE": str(file)}, tmp_path).redis.url
    assert url == f"redis://first:first@{place}"
    async with client(machine, url=url) as redis:
        assert users(machine) == {"first"}
        file.write_text(f"redis://second:second@{place}\n")
        await until(lambda: users(machine) == {"second"})
        assert await redis.call(command("k", "PING")) == b"PONG"


async def test_a_file_that_is_missing_or_empty_does_not_bring_back_its_first_password(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.05)
    for user in ("first", "second", "third"):
        ask(machine, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
    file = tmp_path / "url"
    place = f"127.0.0.1:{machine.port}/0"
    file.write_text(f"redis://first:first@{place}")
    url = load({"HEADWATER_REDIS_URL_FILE": str(file)}, tmp_path).redis.url
    async with client(machine, url=url) as redis:
        replace_text(file, f"redis://second:second@{place}")
        await until(lambda: users(machine) == {"second"})
        # The first one would be accepted, too.
        file.unlink()
        for _ in range(20):
            await asyncio.sleep(0.01)
            await reconnected(redis)
            assert users(machine) == {"second"}
        replace_text(file, "")
        for _ in range(20):
            await asyncio.sleep(0.01)
            await reconnected(redis)
            assert users(machine) == {"second"}
        replace_text(file, f"redis://third:third@{place}")
        await until(lambda: users(machine) == {"third"})


async def test_a_process_without_the_file_has_the_text_of_its_settings(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.05)
    for user in ("first", "second"):
        ask(machine, "ACL SETUSER", user, "on", f">{user}", *RIGHTS)
    file = tmp_path / "url"
    file.write_text(f"redis://first:first@127.0.0.1:{machine.port}/0")
    url = load({"HEADWATER_REDIS_URL_FILE": str(file)}, tmp_path).redis.url
    file.unlink()
    async with client(machine, url=pickle.loads(pickle.dumps(url))) as redis:
        assert users(machine) == {"first"}
        replace_text(file, f"redis://second:second@127.0.0.1:{machine.port}/0")
        await until(lambda: users(machine) == {"second"})
        assert await redis.call(command("k", "PING")) == b"PONG"


@pytest.mark.parametrize("is_replica", [False, True])
async def test_files_of_a_url_and_of_a_password_of_postgres_are_followed(
    production: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replica: bool
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.05)
    first, second = (f"{production.postgres.schema}_{each}" for each in "ab")
    for role in (first, second):
        await postgres(production, f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    place = urlsplit(production.postgres.url)
    address, password = tmp_path / "url", tmp_path / "password"

    def url(role: str) -> str:
        return place._replace(netloc=f"{role}@{place.hostname}:{place.port}").geturl()

    address.write_text(url(first))
    password.write_text(first)
    setting = "POSTGRES_REPLICA_URL" if is_replica else "POSTGRES_URL"
    given = {f"HEADWATER_{setting}_FILE": address, "HEADWATER_POSTGRES_PASSWORD_FILE": password}
    given_texts = {variable: str(file) for variable, file in given.items()}
    settings = load(given_texts, tmp_path).postgres
    pool = replica_pools(settings, {})[0] if is_replica else Postgres(settings)

    async def user() -> str:
        name: str = await pool.run(lambda connection: connection.fetchval("SELECT current_user"))
        return name

    assert await user() == first
    replace_text(password, second)
    replace_text(address, url(second))

    async def is_followed() -> bool:
        return await user() == second

    await until(is_followed)
    await postgres(production, f"ALTER ROLE {first} PASSWORD 'gone'")
    assert await user() == second
    await pool.close()
    for role in (first, second):
        await postgres(production, f"DROP ROLE {role}")


def replace_text(file: Path, text: str) -> None:
    other = file.with_suffix(".new")
    other.write_text(text)
    other.rename(file)


async def reconnected(redis: Redis) -> None:
    (connection,) = redis.connections.values()
    connection.close()
    await connection.closed
    assert await redis.call(command("k", "PING")) == b"PONG"


async def test_a_password_beside_the_url_is_used(machine: Machine) -> None:
    ask(machine, "ACL SETUSER", "app", "on", ">pass", *RIGHTS)
    url = f"redis://app@127.0.0.1:{machine.port}/0"
    async with client(machine, url=url, password="pass"):
        assert users(machine) == {"app"}


async def test_rotations_on_both_servers_cost_no_event_and_no_error(
    machine: Machine, issuer: Issuer, production: Settings
) -> None:
    issuer.lifetime = timedelta(seconds=4)
    names = [f"{production.postgres.schema}_{letter}" for letter in "ab"]
    for name in names:
        ask(machine, "ACL SETUSER", name, "on", f">{name}", *RIGHTS)
        await postgres(production, f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{name}'")
    issuer.login = (names[0], names[0])
    place = urlsplit(production.postgres.url)
    url = place._replace(netloc=f"{place.hostname}:{place.port}").geturl()
    settings = production.replace(
        partitions=4,
        redis={"url": f"redis://127.0.0.1:{machine.port}/0", "credentials": "cloud:token"},
        postgres={"url": url, "credentials": "cloud:token"},
    )
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        before: int = await store.get_feature("visits", user_id)
        return before + 1

    published = 0
    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        try:
            for old, new in (names, names[::-1], names):
                issuer.login = (new, new)
                while users(machine) != {new} or await sessions(production, old):
                    await store.publish("visit", f"user-{published % 5}")
                    published += 1
                    await store.get_feature_history("visits", "user-0")
                # What still used the former user would break now.
                ask(machine, "ACL SETUSER", old, "resetpass", ">gone")
                ask(machine, "CLIENT KILL", "USER", old)
                await postgres(production, f"ALTER ROLE {old} PASSWORD 'gone'")
                await store.publish("visit", f"user-{published % 5}")
                published += 1
                ask(machine, "ACL SETUSER", old, "resetpass", f">{old}")
                await postgres(production, f"ALTER ROLE {old} PASSWORD '{old}'")

            async def is_counted() -> bool:
                rows = await store.get_features(["visits"], [f"user-{n}" for n in range(5)])
                return bool(sum(row["visits"] for row in rows.values()) == published)

            await until(is_counted)
        finally:
            worker.stop()
            await working
    for name in names:
        await postgres(production, f"DROP ROLE {name}")


async def postgres(settings: Settings, statement: str) -> Any:
    connection = await asyncpg.connect(settings.postgres.url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


async def sessions(settings: Settings, role: str) -> int:
    counted: int = await postgres(
        settings, f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'"
    )
    return counted


def test_a_secret_may_be_in_a_file_and_other_settings_may_not(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    settings = load(
        {"HEADWATER_API_KEY_FILE": str(file), "OPENAI_API_KEY_FILE": str(file)}, tmp_path
    )
    assert settings.api_key == "s3cret"
    assert isinstance(settings.api_key, FileText)
    assert settings.embeddings.openai_api_key == "s3cret"
    assert "s3cret" not in repr(settings)
    assert load({"HEADWATER_HOME_FILE": str(file)}, tmp_path).home == Settings().home
    with pytest.raises(ConfigError, match="HEADWATER_API_KEY and HEADWATER_API_KEY_FILE are both"):
        load({"HEADWATER_API_KEY_FILE": str(file), "HEADWATER_API_KEY": "k"}, tmp_path)
    with pytest.raises(ConfigError, match=r"HEADWATER_API_KEY_FILE: .*none cannot be read"):
        load({"HEADWATER_API_KEY_FILE": str(tmp_path / "none")}, tmp_path)


SECRETS = {each.secret_variable: each for each in SETTINGS.values() if each.secret_variable}


@pytest.mark.parametrize("variable", SECRETS)
def test_each_secret_with_a_variable_may_be_in_a_file(variable: str, tmp_path: Path) -> None:
    file, setting = tmp_path / "secret", SECRETS[variable]
    text = "ssl.key.password=s3cret" if setting.path == "bus.options" else "https://app:s3cret@host"
    file.write_text(f"{text}\n")
    loaded = setting.of(load({variable: str(file)}, tmp_path))
    assert loaded == text
    assert isinstance(loaded, FileText)
    assert "s3cret" not in setting.shown(loaded)
