"""Homes of every earlier version become homes of today, with all their rows."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from headwater import FeatureStore, ServiceEvent
from headwater.backends.sqlite.home import SCHEMA_VERSION, Home
from headwater.backends.sqlite.inspection import inspect
from headwater.backends.sqlite.migration import definitions
from headwater.errors import HomeError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.backends.duckdb.embedded import embedded

HOMES = Path(__file__).with_name("homes")
ROWS, CONTEXT = ((HOMES / name).read_text() for name in ("rows.sql", "context.sql"))
VERSIONS: dict[str, str] = dict(
    re.findall(r"-- version (.+)\n((?:(?!-- version).*\n)+)", (HOMES / "versions.sql").read_text())
)
WRITTEN = datetime(2026, 11, 17, 12, 13, tzinfo=UTC)


@contextmanager
def earlier(home: Path, version: str) -> Iterator[sqlite3.Connection]:
    """Create the database of an earlier version."""
    (home / "segments").mkdir(parents=True)
    with closing(sqlite3.connect(home / "headwater.db")) as db:
        for label, changes in VERSIONS.items():
            db.executescript(changes)
            if label == version:
                break
        db.execute(f"PRAGMA user_version = {version.split(',')[0]}")
        yield db
        db.commit()


def opened(home: Path, partitions: int = 16) -> None:
    opening = Home(home, partitions)
    opening.open()
    opening.close()


def tables_of(home: Path) -> dict[tuple[str, str], str]:
    with closing(sqlite3.connect(home / "headwater.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return definitions(db)


def clicking(home: Path) -> FeatureStore:
    """Return a store over a home, with the feature whose rows it has."""
    store = FeatureStore(settings=Settings().replace(home=home), clock=ManualClock(WRITTEN))

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="click")
    def clicks(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["n"])

    return store


def test_the_first_version_and_all_up_to_the_last_one_are_known() -> None:
    numbers = [int(label.split(",")[0]) for label in VERSIONS]
    assert sorted(set(numbers)) == list(range(1, SCHEMA_VERSION))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tables_of_every_earlier_version_become_those_of_today(
    tmp_path: Path, version: str
) -> None:
    with earlier(tmp_path / "old", version) as db:
        db.execute("INSERT INTO meta VALUES ('partitions', '16')")
    for name in ("new", "old", "old"):
        opened(tmp_path / name)
    assert tables_of(tmp_path / "old") == tables_of(tmp_path / "new")
    with closing(sqlite3.connect(tmp_path / "old" / "headwater.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert ("history", 0) in db.execute("SELECT name, seq FROM sqlite_sequence").fetchall()


async def test_a_home_of_the_first_version_keeps_its_rows(tmp_path: Path) -> None:
    with earlier(tmp_path / "old", "1") as db:
        db.executescript(ROWS)
        db.execute("UPDATE sqlite_sequence SET seq = 70 WHERE name = 'events'")  # of removed rows
    async with clicking(tmp_path / "old") as store:
        assert await store.get_feature("clicks", "u1") == 46
        await store.publish("click", "u2", {"n": 99}, event_id="late")  # a duplicate
        await store.drain()
        assert await store.get_feature("clicks", "u2") == 99
        history = await store.get_feature_history("clicks", "u1")
        assert [row.value for row in history] == [46, 41]
        (letter,) = await store.dead_letters.list()
        assert (letter.feature, letter.event.entity_id) == ("clicks", "u1")
        assert len(await store.dead_letters.redrive(letter.id)) == 1
        assert (await store.admin.audit()).differences == []
    with closing(sqlite3.connect(tmp_path / "old" / "headwater.db")) as db:
        assert db.execute("SELECT min(seq), max(seq) FROM events").fetchone() == (51, 71)


async def test_recorded_contexts_of_an_earlier_version_are_found_and_verified(
    tmp_path: Path,
) -> None:
    with earlier(tmp_path / "old", "3") as db:
        db.executescript(ROWS + CONTEXT)
    async with clicking(tmp_path / "old") as store:
        (summary,) = (await store.records.find(feature="clicks", entity_id="u1")).contexts
        assert (summary.tokens, summary.assembly_us, summary.items_dropped) == (5, 213_050, 0)
        assert (summary.is_signed, summary.is_redacted, summary.model) == (False, False, None)
        assert (await store.records.verify(summary.context_id)).ok
    with closing(sqlite3.connect(tmp_path / "old" / "headwater.db")) as db:
        keys = {key for (key,) in db.execute("SELECT key FROM waiting_keys")}
        ((joined,),) = db.execute("SELECT keys FROM records").fetchall()
        assert {joined[n : n + 16] for n in range(0, len(joined), 16)} == keys
        assert len(keys) == 4


async def test_segments_of_an_earlier_version_get_checksums_and_are_merged_with_new_ones(
    tmp_path: Path,
) -> None:
    home = tmp_path / "old"
    with earlier(home, "7, later") as db, duckdb.connect() as duck:
        db.execute("INSERT INTO meta VALUES ('partitions', '4')")
        for number in range(7):
            name = f"events-0000-1023-{number}.parquet"
            duck.execute(
                f"COPY (SELECT {number}::BIGINT AS seq, 'e{number}' AS event_id, 'note' AS"
                " event_type, 'u1' AS entity_id, 1::USMALLINT AS bucket, 1::USMALLINT AS"
                """ "partition", now() AS "timestamp", now() AS received_at, '{}' AS payload)"""
                f" TO '{home / 'segments' / name}' (FORMAT parquet)"
            )
            db.execute("INSERT INTO segments VALUES (?, 'events', 1, 0, 1023, NULL)", (name,))
        db.execute("INSERT INTO segments VALUES ('events-gone', 'events', 1, 0, 1023, NULL)")
    with embedded(home, 1) as parts:
        has_checksum = {s.name: s.checksum is not None for s in parts.tail.manifest()}
        assert has_checksum.pop("events-gone") is False
        assert set(has_checksum.values()) == {True}
        parts.tail.forget_segments(["events-gone"])
        with parts.home.connect() as writing:
            writing.execute(
                "INSERT INTO events VALUES (9, 1, 'e9', 'note', 'u1', 0, 0, '{}', NULL, 'trace')"
            )
            for partition in range(5):
                writing.execute(
                    "INSERT INTO cursors (consumer_group, partition, seq) VALUES ('g', ?, 9)",
                    (partition,),
                )
        await parts.history.maintain()
        assert len(parts.live()) == 1
        rows = await parts.history.query("SELECT event_id, traceparent FROM events", {})
    assert sorted(map(tuple, rows.rows)) == [*((f"e{n}", None) for n in range(7)), ("e9", "trace")]


def test_segments_that_cannot_be_migrated_are_refused_and_left_alone(tmp_path: Path) -> None:
    with earlier(tmp_path / "old", "6") as db:
        db.execute("INSERT INTO segments VALUES ('history-1.parquet', 'history', 1, NULL)")
    before = tables_of(tmp_path / "old")
    with pytest.raises(HomeError, match=r"cannot be migrated; read it with that version"):
        opened(tmp_path / "old")
    assert tables_of(tmp_path / "old") == before


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    with earlier(tmp_path / "old", "1") as db:
        db.executescript(ROWS)
        db.execute("UPDATE dead_letters SET event = 'damaged'")
    before = tables_of(tmp_path / "old")
    with pytest.raises(HomeError, match="malformed JSON"):
        opened(tmp_path / "old")
    assert tables_of(tmp_path / "old") == before
    with closing(sqlite3.connect(tmp_path / "old" / "headwater.db")) as db:
        assert db.execute("SELECT count(*) FROM entities").fetchone() == (2,)


async def test_concurrent_openings_migrate_a_home_once(tmp_path: Path) -> None:
    with earlier(tmp_path / "old", "3") as db:
        db.executescript(ROWS + CONTEXT)
    await asyncio.gather(*(asyncio.to_thread(opened, tmp_path / "old") for _ in range(5)))
    with closing(sqlite3.connect(tmp_path / "old" / "headwater.db")) as db:
        assert db.execute("SELECT count(*) FROM records").fetchone() == (1,)


def test_the_doctor_announces_a_migration(tmp_path: Path) -> None:
    with earlier(tmp_path / "old", "3"):
        pass
    (found,) = [
        f for f in inspect(Settings().replace(home=tmp_path / "old")) if f.check == "migrations"
    ]
    assert found.severity == "warning"
    assert found.found == f"tables of version 3; the next start makes them {SCHEMA_VERSION}"
