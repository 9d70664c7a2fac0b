"""Redis and Postgres restored from backups of different moments, by their own tools."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from tests.servers import Machine, valkey_machine
from tests.wheels import postgres_installation


class Servers:
    """A Redis and a schema of Postgres, which can be backed up and restored."""

    def __init__(self, settings: Settings, machine: Machine, folder: Path) -> None:
        self.settings = settings
        self._machine = machine
        self._folder = folder

    def save_redis(self) -> None:
        """Take a snapshot, and copy its file."""
        with Redis.from_url(self.settings.redis.url) as client:
            client.save()
        shutil.copy(self._machine.log.parent / "dump.rdb", self._folder / "dump.rdb")

    def restore_redis(self) -> None:
        """Start the server again with the copy in place of its own file."""
        self._machine.stop()
        (self._machine.log.parent / "dump.rdb").write_bytes(
            (self._folder / "dump.rdb").read_bytes()
        )
        self._machine.start()

    def save_postgres(self) -> None:
        self._run("pg_dump", "-Fc", "-n", self.settings.postgres.schema, "-f", self._dump)

    def restore_postgres(self) -> None:
        """Put the dump in the place of the schema."""
        self._run("psql", "-qc", f"DROP SCHEMA {self.settings.postgres.schema} CASCADE")
        self._run("pg_restore", "--exit-on-error", self._dump)

    @property
    def _dump(self) -> str:
        return str(self._folder / "headwater.dump")

    def _run(self, program: str, *arguments: str) -> None:
        installation = postgres_installation()
        command = (str(installation / "bin" / program), "-d", self.settings.postgres.url)
        libraries = {"LD_LIBRARY_PATH": str(installation / "lib")}
        subprocess.run([*command, *arguments], check=True, env=libraries, timeout=100)


@pytest.fixture
def servers(production: Settings, tmp_path: Path) -> Iterator[Servers]:
    with valkey_machine() as machine:
        url = f"redis://127.0.0.1:{machine.port}/0"
        yield Servers(production.replace(redis={"url": url}), machine, tmp_path)


def opened(servers: Servers) -> FeatureStore:
    store = FeatureStore(settings=servers.settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    return store


async def visit(store: FeatureStore, ids: range) -> None:
    """Let each user visit once, and let history follow."""
    for number in ids:
        await store.publish("visit", f"u{number % 9}", event_id=f"visit-{number}")
    await store.drain()
    await (await runtime_of(store).open()).backends.offline.maintain()


async def total(store: FeatureStore) -> int:
    return sum([int(await store.get_feature("visits", f"u{number}")) for number in range(9)])


@pytest.mark.parametrize("first", ["redis", "postgres"])
async def test_backups_of_different_moments_agree_after_a_rebuild(
    servers: Servers, first: str
) -> None:
    saves = {"redis": servers.save_redis, "postgres": servers.save_postgres}
    async with opened(servers) as store:
        await visit(store, range(90))
        saves.pop(first)()
        await visit(store, range(90, 180))
        (last,) = saves.values()
        last()
        await visit(store, range(180, 270))  # what no backup has
    servers.restore_redis()
    servers.restore_postgres()
    async with opened(servers) as store:
        with pytest.raises(BackendError, match="rebuild --adopt"):
            await visit(store, range(0))
        await store.admin.rebuild(adopt=True)
        await store.drain()
        # The younger of the two has the visits of before it was made.
        assert await total(store) == 180
        # Events are published again with their ids: those that are known count once.
        await visit(store, range(270))
        assert await total(store) == 270
        assert (await store.admin.audit()).differences == []
