"""The schemas that tests share: each test finds one as the migration leaves it."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest

from headwater import FeatureStore, ServiceEvent, entity
from headwater.settings.schema import Settings
from tests.schemas import Schemas


@pytest.fixture
def own(postgres_url: str) -> Iterator[Schemas]:
    with Schemas(postgres_url) as schemas:
        yield schemas


async def test_a_schema_is_used_again_without_the_rows_of_the_test_before(
    own: Schemas, postgres_url: str, production: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sessions may end late on an overloaded machine, and Postgres may look after the tables.
    monkeypatch.setattr("tests.schemas.CLOSED_WITHIN_SECONDS", 60.0)
    monkeypatch.setattr("tests.schemas.LOCKED_WITHIN_SECONDS", 60.0)
    with own.lent() as first:
        new = await rows_of(postgres_url, first)
        store = FeatureStore(settings=production.replace(postgres={"schema": first}))

        @entity(store)
        class User:
            user_id: str

        @store.feature(User, trigger="purchase")
        def total(user_id: str, event: ServiceEvent) -> int:
            return 1

        async with store:
            await store.publish("purchase", "ada")
            await store.drain()
            await store.get_feature_history("total", "ada")
            await store.record_external(name="answer", content="Hello Ada")
        assert await rows_of(postgres_url, first) != new
    with own.lent() as second:
        assert second == first
        assert await rows_of(postgres_url, second) == new


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE orders (id integer)",
        "ALTER TABLE _records ADD COLUMN more text",
        "ALTER TABLE _audit_log DISABLE TRIGGER append_only",
        "DROP VIEW events",
        "GRANT SELECT ON _meta TO PUBLIC",
    ],
)
async def test_a_schema_whose_definitions_were_changed_is_not_used_again(
    own: Schemas, postgres_url: str, change: str
) -> None:
    with own.lent() as changed:
        await run(postgres_url, changed, change)
    with own.lent() as other:
        assert other != changed


async def test_a_schema_that_a_session_still_uses_is_not_used_again(
    own: Schemas, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.schemas.CLOSED_WITHIN_SECONDS", 0)
    with own.lent() as schema:
        name = {"application_name": f"headwater/{schema}"}
        session = await asyncpg.connect(postgres_url, ssl=False, server_settings=name)
    with own.lent() as other:
        assert other != schema
    await session.close()


async def rows_of(url: str, schema: str) -> list[tuple[str, str]]:
    """Return all rows with their tables, and the values of sequences."""
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = $1"
    connection = await asyncpg.connect(url, ssl=False)
    try:
        found = [
            (name, str(tuple(row)))
            for (name,) in await connection.fetch(tables, schema)
            for row in await connection.fetch(f'SELECT * FROM "{schema}"."{name}"')
        ]
        last = "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = $1"
        found += [(name, str(value)) for name, value in await connection.fetch(last, schema)]
    finally:
        await connection.close()
    return sorted(found)


async def run(url: str, schema: str, statement: str) -> None:
    connection = await asyncpg.connect(url, ssl=False, server_settings={"search_path": schema})
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
