"""Tables of every earlier version become those of today, with all their rows."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.migrate import VERSION, migrate
from headwater.errors import HeadwaterError
from headwater.ports import RecordQuery
from headwater.settings.schema import Settings
from tests.backends.postgres.story import Open, value_at

VERSIONS: dict[str, str] = dict(
    re.findall(
        r"-- version (.+)\n((?:(?!-- version).*\n)+)",
        Path(__file__).with_name("tables").joinpath("versions.sql").read_text(),
    )
)
# Everything that statements can name, without the monthly partitions.
SHAPE = """
SELECT 'column ' || c.relname || ' ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || ' ' || a.attnotnull || ' ' || a.attstorage::text || ' ' || a.attcollation::regcollation
    || coalesce(' ' || pg_get_expr(d.adbin, d.adrelid), '') || a.attidentity::text
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v')
  AND NOT c.relispartition
UNION ALL
SELECT 'index ' || pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
WHERE c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition
UNION ALL
SELECT 'view ' || viewname || ' ' || definition FROM pg_views WHERE schemaname = current_schema()
UNION ALL
SELECT 'function ' || proname || pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace
UNION ALL
SELECT 'trigger ' || pg_get_triggerdef(t.oid) FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = current_schema()::regnamespace
ORDER BY 1
"""
CONTEXT = """
INSERT INTO _records
    (context_id, record_hash, content_hash, name, created_at, freshness_status, core, disclosures,
     redactions)
VALUES
    ('c1', 'sha256:1', 'sha256:2', 'greeting', now(), 'guaranteed', convert_to(
        '{"output": {"tokens": 5, "items_dropped": 1, "cost_nano_usd": null},
          "policy": {"max_tokens": 100, "model": "m"}, "timing": {"assembly_us": 213050}}', 'UTF8'
    ), '[]', '[]');
INSERT INTO _record_keys VALUES ('\\x01', now(), 'c1'), ('\\x02', now(), 'c1');
"""
STORE = """
INSERT INTO _meta (version, store_id) VALUES (1, 'store') ON CONFLICT DO NOTHING;
UPDATE _meta SET version = 1, store_id = 'store';
INSERT INTO _outbox (partition, history, events) VALUES (3, '7-0', '8-0');
"""
PARTITIONS = "".join(
    f"""
CREATE TABLE {table}_early PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO ('2026-10-01');
CREATE TABLE {table}_2026_10 PARTITION OF {table} FOR VALUES FROM ('2026-10-01') TO ('2026-11-01');
CREATE TABLE {table}_late PARTITION OF {table} FOR VALUES FROM ('2026-11-01') TO (MAXVALUE);
"""
    for table in ("_history", "_events")
)
VALUES = """
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
VALUES ('clicks', 'User', 'u1', 'int', '46', to_timestamp(0), to_timestamp(0), 'e46');
INSERT INTO _series VALUES ('User', 'u1', 'clicks');
INSERT INTO _events VALUES (3, now(), now(), '8-0', 'click', 'u1', 'e46', '{"n": 46}');
"""


async def build(database: Connection, schema: str, version: str) -> None:
    """Create the tables of an earlier version."""
    await database.execute(f"CREATE SCHEMA {schema}")
    for label, changes in VERSIONS.items():
        await database.execute(changes)
        if label == version:
            break
    number = int(version.split(",")[0])
    await database.execute(
        "INSERT INTO _meta (version) VALUES ($1)"
        " ON CONFLICT (only_row) DO UPDATE SET version = excluded.version",
        number,
    )


async def shape(database: Connection, schema: str) -> list[str]:
    rows = await database.fetch(SHAPE)
    return [text.replace(f"{schema}.", "") for (text,) in rows]


def test_the_first_version_and_all_up_to_the_last_one_are_known() -> None:
    numbers = [int(label.split(",")[0]) for label in VERSIONS]
    assert numbers[:6] == [1, 2, 3, 4, 5, 1]
    assert sorted(set(numbers)) == list(range(1, VERSION))


@pytest.fixture(scope="module")
def today() -> list[str]:
    """The shape of new tables, once it is known."""
    return []


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_tables_of_every_earlier_version_become_those_of_today(
    settings: Settings, database: Connection, version: str, today: list[str]
) -> None:
    schema = settings.postgres.schema
    if not today:
        await migrate(settings)
        today += await shape(database, schema)
        await database.execute(f"DROP SCHEMA {schema} CASCADE")
    await build(database, schema, version)
    assert await migrate(settings) == [VERSION]
    assert await shape(database, schema) == today
    assert await migrate(settings) == []


async def test_tables_of_the_first_version_keep_their_rows(
    settings: Settings, database: Connection, opening: Open
) -> None:
    await build(database, settings.postgres.schema, "1, of 15 November")
    await database.execute(STORE + PARTITIONS + VALUES)
    await migrate(settings)
    positions = await database.fetch("SELECT store_id, partition, history, events FROM _outbox")
    assert [tuple(row) for row in positions] == [("store", 3, "7-0", "8-0")]
    await database.execute("DELETE FROM _outbox; UPDATE _meta SET store_id = NULL")
    past = await opening()
    assert await value_at(past, 1) == 46
    events = await past.offline.query("SELECT event_id, traceparent FROM events", {})
    assert [tuple(row) for row in events.rows] == [("e46", None)]


@pytest.mark.parametrize("version", ["2, of 15 November", "1, with the catalog", "3"])
async def test_records_of_earlier_versions_keep_their_columns_and_keys(
    settings: Settings, database: Connection, opening: Open, version: str
) -> None:
    await build(database, settings.postgres.schema, version)
    await database.execute(CONTEXT)
    await migrate(settings)
    past = await opening()
    (summary,) = await past.records.records(RecordQuery())
    assert (summary.tokens, summary.items_dropped, summary.max_tokens) == (5, 1, 100)
    assert (summary.model, summary.assembly_us, summary.caller) == ("m", 213_050, None)
    assert (summary.is_signed, summary.is_redacted, summary.cost_nano_usd) == (False, False, None)
    record = await past.records.get("c1")
    assert record is not None
    assert sorted(record.keys) == [1, 2]


async def test_a_migration_that_fails_changes_nothing(
    settings: Settings, database: Connection
) -> None:
    schema = settings.postgres.schema
    await build(database, schema, "3")
    await database.execute(CONTEXT.replace('"tokens": 5', '"tokens": "many"'))
    before = await shape(database, schema)
    with pytest.raises(HeadwaterError, match="many"):
        await migrate(settings)
    assert await shape(database, schema) == before
    assert await database.fetchval("SELECT version FROM _meta") == 3


async def test_concurrent_migrations_happen_once(settings: Settings, database: Connection) -> None:
    await build(database, settings.postgres.schema, "3")
    applied = await asyncio.gather(*(migrate(settings) for _ in range(4)))
    assert sorted(applied) == [[], [], [], [VERSION]]
    entries = await database.fetch("SELECT action FROM _audit_log")
    assert [action for (action,) in entries] == ["migrate"]


async def test_an_index_that_a_version_added_reaches_the_partitions_that_exist(
    settings: Settings, database: Connection
) -> None:
    await build(database, settings.postgres.schema, "6")
    await database.execute(PARTITIONS)
    await migrate(settings)
    indexes = await database.fetch(
        "SELECT indexdef FROM pg_indexes WHERE tablename = '_events_early'"
    )
    assert any('btree ("timestamp")' in definition for (definition,) in indexes)
