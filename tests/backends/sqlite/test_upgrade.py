"""A home that an earlier version made is opened by this one, with all that is in it."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.backends.connect import connect
from headwater.backends.sqlite.home import SCHEMA_VERSION
from headwater.core.clock import SystemClock
from headwater.errors import HomeError
from headwater.ports import Backends
from headwater.settings.schema import Settings
from tests.stored import record

HOMES = Path(__file__).parent / "homes"
VERSIONS = {int(file.stem.removeprefix("version_")): file for file in HOMES.glob("version_*.sql")}


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, home: Path) -> Path:
    """A home as that version left it, with a value, its history and an event that waits."""
    with closing(sqlite3.connect(home / "headwater.db")) as database:
        database.executescript(VERSIONS[request.param].read_text())
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA user_version = {request.param}")
    return home


async def opened(home: Path) -> Backends:
    return await connect(Settings().replace(home=home), SystemClock())


def schema(home: Path) -> tuple[int, set[tuple[str, str]]]:
    """The version of a home, and its tables and indexes."""
    with closing(sqlite3.connect(home / "headwater.db")) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        found = database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        return version, set(found)


def test_there_is_a_home_of_every_earlier_version() -> None:
    assert sorted(VERSIONS) == list(range(1, SCHEMA_VERSION))


async def test_nothing_of_an_older_home_is_lost(old: Path) -> None:
    backends = await opened(old)
    (cells,) = await backends.online.get("User", ["u1"])
    assert bytes(cells["total"].value) == b"7"
    assert await backends.bus.backlog() == 1
    rows = await backends.offline.query("SELECT feature, value_int FROM feature_history", {})
    assert [tuple(row) for row in rows.rows] == [("total", 7)]
    await backends.lifecycle.close()


async def test_an_older_home_becomes_what_a_new_one_is(old: Path, tmp_path: Path) -> None:
    assert schema(old)[0] < SCHEMA_VERSION
    for home in (old, tmp_path / "new"):
        await (await opened(home)).lifecycle.close()
    assert schema(old) == schema(tmp_path / "new")
    assert schema(old)[0] == SCHEMA_VERSION


async def test_an_older_home_keeps_records(old: Path) -> None:
    for _ in range(2):
        backends = await opened(old)
        await backends.records.append(record(), [b"key"])
        await backends.lifecycle.close()
    backends = await opened(old)
    assert len(await backends.records.find(b"key")) == 2
    await backends.lifecycle.close()


@pytest.mark.parametrize("old", [version for version in VERSIONS if version > 1], indirect=True)
async def test_records_of_an_older_home_are_found(old: Path) -> None:
    backends = await opened(old)
    (found,) = await backends.records.find(b"old")
    assert [each.context_id for each in await backends.records.records()] == [found.context_id]
    await backends.lifecycle.close()


async def test_of_many_who_open_an_older_home_at_once_one_upgrades_it(old: Path) -> None:
    openings = await asyncio.gather(
        *(asyncio.to_thread(asyncio.run, opened(old)) for _ in range(5))
    )
    before = len(await openings[0].records.records())
    for backends in openings:
        await backends.records.append(record(), [])
    assert len(await openings[0].records.records()) == before + 5
    for backends in openings:
        await backends.lifecycle.close()


async def test_an_upgrade_that_fails_changes_nothing(old: Path) -> None:
    with closing(sqlite3.connect(old / "headwater.db")) as database:
        database.execute("CREATE TABLE waiting_keys (mine INTEGER)")
    before = schema(old)
    with pytest.raises(HomeError, match="already exists"):
        await opened(old)
    assert schema(old) == before
