"""The audit log: every administrative verb stands in it, with its actor and its outcome."""

from __future__ import annotations

import asyncio
import os
import pwd
import sqlite3
from contextlib import closing
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, Index, ServiceEvent, entity
from headwater.errors import (
    BackendError,
    InvalidInputError,
    UnknownDeadLetterError,
    UnknownNameError,
)
from headwater.model.callers import Caller, set_caller
from headwater.testing import ManualClock

# These tests damage the file of the embedded store.
EMBEDDED = pytest.mark.parametrize("settings", ["embedded"], indirect=True)


@pytest.fixture
def shop(store: FeatureStore) -> FeatureStore:
    """Return a store with a feature that works, one that fails, and an index."""

    @entity(store)
    class User:
        user_id: str

    @store.feature(User, trigger="purchase")
    def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    @store.feature(User, trigger="purchase", max_retries=0)
    def broken(user_id: str, event: ServiceEvent) -> int:
        raise ValueError("no")

    @store.feature(User, refresh="1d")
    def rank(user_id: str) -> int:
        return 1

    Index(store, "docs", embedder="lexical")
    return store


async def logged(store: FeatureStore, **query: Any) -> list[tuple[str, str, str]]:
    """Return action, target and outcome of the entries, oldest first."""
    entries = (await store.audit_log(**query)).entries
    return [
        (each.action, each.target, each.outcome)
        for each in reversed(entries)
        if each.action != "migrate"
    ]


@pytest.mark.both_environments
async def test_every_administrative_verb_stands_in_the_log(
    shop: FeatureStore, tmp_path: Path
) -> None:
    for user in ("ada", "bob"):
        await shop.publish("purchase", user)
    await shop.drain()
    first, second = await shop.dead_letters.list()
    await shop.dead_letters.discard(first.id)
    await shop.dead_letters.redrive(second.id)
    context = await shop.record_external(name="answer", content="Hello Ada")
    assert context.context_id is not None
    await shop.records.redact(context.context_id, "/output/content", reason="asked by Ada")
    await shop.index("docs", "ada", "Hello Ada")
    await shop.unindex("docs", "ada")
    await shop.indexes.retain("docs", ["parcels", "returns"])
    await shop.indexes.reindex("docs")
    await shop.indexes.drop("docs")
    (tmp_path / "past.csv").write_text("user_id,timestamp,value\nada,2026-01-01T00:00:00Z,3\n")
    await shop.history.import_file(tmp_path / "past.csv", ["total"])
    await shop.history.export(tmp_path / "exported")
    await shop.history.export_feast(tmp_path / "feast")
    await shop.backfills.run("total", switch=True)
    await shop.backfills.run("total")
    await shop.backfills.cancel("total")
    await shop.admin.refresh("rank")
    await shop.admin.rebuild()
    await shop.admin.prune(records="30d", dry_run=True)
    await shop.admin.prune(records="30d")
    await shop.catalog.rename("total", "sum")
    await shop.catalog.drop("sum", dry_run=True)
    await shop.catalog.drop("sum")
    await shop.admin.drop_group(shop.settings.worker.consumer_group)
    assert await logged(shop) == [
        ("dead_letters.discard", "", "done"),
        ("dead_letters.redrive", "", "done"),
        ("records.redact", context.context_id, "done"),
        ("unindex", "docs", "done"),
        ("indexes.retain", "docs", "done"),
        ("indexes.reindex", "docs", "done"),
        ("indexes.drop", "docs", "done"),
        ("history.import_file", "User", "done"),
        ("history.export", f"{tmp_path / 'exported'}", "done"),
        ("history.export_feast", f"{tmp_path / 'feast'}", "done"),
        ("backfills.run", "total", "done"),
        ("backfills.switch", "total", "done"),
        ("backfills.run", "total", "done"),
        ("backfills.cancel", "total", "done"),
        ("admin.refresh", "rank", "done"),
        ("admin.rebuild", "", "done"),
        ("admin.prune", "", "done"),
        ("catalog.rename", "total", "done"),
        ("catalog.drop", "sum", "done"),
        ("admin.drop_group", shop.settings.worker.consumer_group, "done"),
    ]
    (redact,) = (await shop.audit_log(action="records.redact")).entries
    assert redact.parameters == {"pointers": ["/output/content"], "everywhere": False}
    (unindex,) = (await shop.audit_log(action="unindex")).entries
    assert unindex.parameters == {"id_sha256": sha256(b"ada").hexdigest()}
    (retain,) = (await shop.audit_log(action="indexes.retain")).entries
    assert retain.parameters == {"retained": 2}
    (imported,) = (await shop.audit_log(action="history.import_file")).entries
    assert imported.parameters == {"features": ["total"]}
    (redrive,) = (await shop.audit_log(action="dead_letters.redrive")).entries
    assert redrive.parameters == {
        "ids": [second.id],
        "letters": [
            {
                "id": second.id,
                "feature": "broken",
                "event_type": "purchase",
                "event_id": second.event.event_id,
                "entity_id_sha256": sha256(second.event.entity_id.encode()).hexdigest(),
            }
        ],
    }
    (discard,) = (await shop.audit_log(action="dead_letters.discard")).entries
    assert [each["event_id"] for each in discard.parameters["letters"]] == [first.event.event_id]


@pytest.mark.both_environments
async def test_what_a_handler_removes_is_in_the_log_of_events_and_not_in_this_one(
    store: FeatureStore,
) -> None:
    Index(store, "docs", embedder="lexical")

    @store.entity
    class User:
        user_id: str

    @store.feature(User, trigger="left")
    async def leave(user_id: str, event: ServiceEvent) -> None:
        await store.unindex("docs", user_id)

    await store.index("docs", "ada", "Hello Ada")
    await store.publish("left", "ada")
    await store.drain()
    assert await store.indexes.get_document("docs", "ada") is None
    assert await logged(store) == []


async def test_the_actor_is_the_caller_of_a_request_or_the_user_of_the_process(
    store: FeatureStore,
) -> None:
    async def named_action() -> None:
        set_caller(Caller("ci"))
        await store.admin.rebuild()

    await store.admin.rebuild()
    await asyncio.create_task(named_action())
    by_key, by_user = (await store.audit_log(action="admin.rebuild")).entries
    assert by_key.actor == "ci"
    assert by_user.actor == f"{pwd.getpwuid(os.getuid()).pw_name}@{os.uname().nodename}"
    assert (await store.audit_log(actor="ci")).entries == [by_key]


async def test_the_log_tells_how_an_action_ended(store: FeatureStore, clock: ManualClock) -> None:
    with pytest.raises(UnknownDeadLetterError):
        await store.dead_letters.redrive("no\0ne")
    waits = asyncio.Event()

    async def hang() -> None:
        async with store.audited("keys.rotate", "billing\ud800", old="k1"):
            waits.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await waits.wait()
    (running,) = (await store.audit_log(action="keys.rotate")).entries
    (failed,) = (await store.audit_log(action="dead_letters.redrive")).entries
    assert (running.action, running.target, running.outcome) == (
        "keys.rotate",
        "billing?",
        "started",
    )
    assert (failed.outcome, failed.error) == ("failed", "UnknownDeadLetterError")
    assert failed.parameters == {"ids": ["no\ufffdne"], "letters": []}
    clock.advance("3s")
    task.cancel()
    await asyncio.wait([task])
    (cancelled,) = (await store.audit_log(action="keys.rotate")).entries
    assert cancelled.outcome == "cancelled"
    assert cancelled.finished_at == clock.now()


@EMBEDDED
async def test_an_action_that_cannot_be_logged_does_not_start(
    shop: FeatureStore, home: Path
) -> None:
    await shop.publish("purchase", "ada")
    await shop.drain()
    (letter,) = await shop.dead_letters.list()
    with closing(sqlite3.connect(home / "headwater.db")) as database:
        database.execute("ALTER TABLE audit_log RENAME TO moved")
    with pytest.raises(BackendError, match="audit_log"):
        await shop.dead_letters.discard(letter.id)
    assert await shop.dead_letters.list() == [letter]


@EMBEDDED
async def test_an_outcome_that_cannot_be_stored_is_logged_and_the_action_counts(
    shop: FeatureStore, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await shop.open()
    with closing(sqlite3.connect(home / "headwater.db")) as database:
        database.execute("ALTER TABLE audit_outcomes RENAME TO moved")
    await shop.admin.rebuild()
    assert "audit outcome not stored" in capsys.readouterr().err
    with closing(sqlite3.connect(home / "headwater.db")) as database:
        database.execute("ALTER TABLE moved RENAME TO audit_outcomes")
    assert await logged(shop) == [("admin.rebuild", "", "started")]


async def test_an_attempt_on_something_unknown_stands_in_the_log(shop: FeatureStore) -> None:
    for attempt in (shop.backfills.switch, shop.indexes.reindex, shop.indexes.drop):
        with pytest.raises(UnknownNameError):
            await attempt("docz")
    actions = ("backfills.switch", "indexes.reindex", "indexes.drop")
    assert await logged(shop) == [(action, "docz", "failed") for action in actions]


async def test_the_log_is_read_page_by_page(store: FeatureStore, clock: ManualClock) -> None:
    for _ in range(3):
        await store.admin.rebuild()
        clock.advance("1s")
    page = await store.audit_log(limit=2, action="admin.rebuild")
    assert repr(page) == "<AuditPage entries=2, more follow>"
    last = await store.audit_log(limit=2, action="admin.rebuild", cursor=page.next_cursor)
    assert repr(last) == "<AuditPage entries=1, the last page>"
    with pytest.raises(InvalidInputError, match="limit is 0"):
        await store.audit_log(limit=0)
    with pytest.raises(InvalidInputError, match="since has no time zone"):
        await store.audit_log(since=datetime(2026, 1, 1))  # noqa: DTZ001


@EMBEDDED
@pytest.mark.parametrize("table", ["audit_log", "audit_outcomes"])
async def test_sqlite_refuses_to_change_or_delete_entries(
    store: FeatureStore, home: Path, table: str
) -> None:
    await store.admin.rebuild()
    before = (await store.audit_log()).entries
    with closing(sqlite3.connect(home / "headwater.db", isolation_level=None)) as database:
        for sql in (f"UPDATE {table} SET at = 0", f"DELETE FROM {table}"):
            with pytest.raises(sqlite3.DatabaseError, match="can only be added to"):
                database.execute(sql)
        row = list(database.execute(f"SELECT * FROM {table}").fetchone())
        row[1] = 0
        database.execute(f"REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    assert (await store.audit_log()).entries == before
