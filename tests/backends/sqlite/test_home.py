"""A home that cannot be used: the error names the problem and the remedy, and nothing is lost."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headwater import FeatureStore
from headwater.backends.sqlite.home import SCHEMA_VERSION, Home
from headwater.declarations.runtime import runtime_of
from headwater.errors import ConfigError, HomeError
from headwater.settings.schema import Settings
from tests.engine.support import backlog, records
from tests.processes.fleet import ROOT, environment


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return a folder that other users of this machine can access."""
    with TemporaryDirectory(prefix="hw-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


PUBLISH = """
import asyncio, os, resource
import headwater.backends.sqlite.environment
import headwater.engine.engine
from headwater import FeatureStore

{handicap}
asyncio.run(FeatureStore().publish("note", "u1", {{"text": "x" * 400_000}}))
"""


def publish_with(handicap: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Publish one event from a process that runs ``handicap`` first."""
    return subprocess.run(
        [sys.executable, "-c", PUBLISH.format(handicap=handicap)],
        cwd=ROOT,
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


async def publish(home: Path, count: int = 1) -> None:
    async with FeatureStore(home=home, settings=Settings()) as store:
        for _ in range(count):
            await store.publish("note", "u1")


async def waiting(home: Path) -> int:
    async with FeatureStore(home=home, settings=Settings()) as store:
        return await backlog(store)


async def test_a_home_is_private(home: Path) -> None:
    await publish(home / "new")
    assert stat.S_IMODE((home / "new").stat().st_mode) == 0o700


def test_the_files_of_a_home_are_private_in_a_folder_that_others_can_read(home: Path) -> None:
    home.chmod(0o755)
    store = FeatureStore(home=home, settings=Settings())
    store.sync.publish("note", "u1")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in home.iterdir()}
    store.sync.close()
    files = {"headwater.db", "headwater.db-wal", "headwater.db-shm", "write.lock"}
    assert {name: oct(modes[name]) for name in files} == dict.fromkeys(files, "0o600")
    assert {oct(mode) for name, mode in modes.items() if name not in files} == {"0o700"}


def test_a_home_that_existed_with_wider_rights_becomes_private(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = FeatureStore(home=home, settings=Settings())
    before.sync.publish("note", "u1")  # the WAL exists as long as the store is open
    for path in (home, *home.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    after = FeatureStore(home=home, settings=Settings())
    after.sync.publish("note", "u1")
    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    for store in (after, before):
        store.sync.close()
    assert "headwater.db-wal" in rights
    assert {name: oct(mode) for name, mode in rights.items() if mode & 0o077} == {}
    (warned,) = records(capsys.readouterr().err, "home can be read by other users")
    assert (warned["path"], warned["remedy"]) == (str(home), f"chmod go= {home}")
    # The folder may hold other files of the user, so its own rights are left alone.
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


async def test_a_home_that_is_read_only_says_so_and_loses_nothing(reachable: Path) -> None:
    home = reachable / "home"
    await publish(home, 3)
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # Root may write anywhere, so the process changes its user first.
    result = publish_with("os.getuid() or os.setuid(65534)", home)
    assert result.returncode == 1
    assert "HomeError" in result.stderr
    assert "make it a writable folder" in result.stderr
    assert "set HEADWATER_HOME" in result.stderr
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert await waiting(home) == 3


async def test_a_home_that_cannot_be_created_says_so(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(HomeError, match="set HEADWATER_HOME to one"):
        await publish(home / "file" / "home")


async def test_a_home_that_is_full_says_so_and_loses_nothing(home: Path) -> None:
    await publish(home, 3)
    size = (home / "headwater.db").stat().st_size
    result = publish_with(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, -1))", home)
    assert result.returncode == 1
    assert "HomeError" in result.stderr
    assert str(home) in result.stderr
    assert "nothing was written" in result.stderr
    assert await waiting(home) == 3
    await publish(home)
    assert await waiting(home) == 4


async def test_a_refused_write_does_not_affect_others(home: Path) -> None:
    async with FeatureStore(home=home, settings=Settings()) as store:
        await store.publish("note", "u1")
        engine = await runtime_of(store).open()
        with closing(sqlite3.connect(home / "headwater.db")) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.event_type = 'no'"
                " BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
            other.commit()
        refused, accepted = await asyncio.gather(
            store.publish("no", "u1"), store.publish("note", "u1"), return_exceptions=True
        )
        assert isinstance(refused, HomeError)
        assert not isinstance(accepted, BaseException)
        assert await engine.backends.bus.backlog() == 2


@pytest.mark.parametrize("damage", [b"not a database at all" * 10, b"\0" * 4096])
async def test_a_home_that_is_damaged_says_so_and_changes_nothing(
    home: Path, damage: bytes
) -> None:
    await publish(home, 3)
    database = home / "headwater.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    good = database.read_bytes()
    database.write_bytes(damage + good[len(damage) :])
    with pytest.raises(HomeError, match=r"is damaged.*restore it from a backup"):
        await publish(home)
    assert database.read_bytes() == damage + good[len(damage) :]
    database.write_bytes(good)
    assert await waiting(home) == 3


async def test_a_home_that_is_damaged_in_the_middle_says_so(home: Path) -> None:
    await publish(home, 200)
    database = home / "headwater.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    good = database.read_bytes()
    database.write_bytes(good[:4096] + b"\xff" * (len(good) - 4096))
    with pytest.raises(HomeError, match="is damaged"):
        await publish(home)


async def test_a_home_of_a_newer_version_is_refused_and_left_alone(home: Path) -> None:
    await publish(home, 3)
    database = home / "headwater.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    problem = r"newer Headwater \(schema \d+.*upgrade headwater.*HEADWATER_HOME"
    with pytest.raises(HomeError, match=problem):
        await publish(home)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    assert await waiting(home) == 3


async def test_concurrent_openings_create_one_home(home: Path) -> None:
    await asyncio.gather(*(asyncio.to_thread(asyncio.run, publish(home / "new")) for _ in range(5)))
    assert await waiting(home / "new") == 5


async def test_a_database_with_other_tables_is_refused_and_left_alone(home: Path) -> None:
    def tables() -> list[tuple[str]]:
        with closing(sqlite3.connect(home / "headwater.db")) as database:
            return database.execute("SELECT sql FROM sqlite_master").fetchall()

    with closing(sqlite3.connect(home / "headwater.db")) as database:
        database.execute("CREATE TABLE waiting_keys (mine INTEGER)")
    before = tables()
    with pytest.raises(HomeError, match="already exists"):
        await publish(home)
    assert tables() == before


def test_errors_of_the_sqlite3_module_are_translated_too(home: Path) -> None:
    error = sqlite3.ProgrammingError("Cannot operate on a closed database.")
    assert "failed: Cannot operate on a closed database." in str(Home(home, 4).translate(error))


async def test_the_number_of_partitions_is_fixed_when_a_home_is_made(home: Path) -> None:
    await publish(home, 3)
    with pytest.raises(ConfigError, match="HEADWATER_PARTITIONS=16"):
        await FeatureStore(settings=Settings().replace(home=home, partitions=4)).open()
    assert await waiting(home) == 3


async def test_a_copy_of_a_home_is_a_home(home: Path) -> None:
    await publish(home / "one", 3)
    shutil.copytree(home / "one", home / "two")
    assert await waiting(home / "two") == 3


def test_a_store_that_was_opened_before_a_fork_is_refused_in_the_child(home: Path) -> None:
    script = """
import asyncio, os
from headwater import FeatureStore, HeadwaterError

store = FeatureStore()
asyncio.run(store.publish("note", "u1"))
if os.fork():
    _, status = os.wait()
    os._exit(os.waitstatus_to_exitcode(status))
try:
    asyncio.run(store.publish("note", "u1"))
except HeadwaterError as error:
    os._exit(0 if "before a fork" in str(error) else 1)
os._exit(2)
"""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        cwd=ROOT,
        env=environment(home),
        check=False,
        timeout=100,
    )
    assert result.returncode == 0


async def test_a_healthy_home_says_so(home: Path) -> None:
    async with FeatureStore(home=home, settings=Settings()) as store:
        (health,) = await store.admin.health()
        assert health.ok
