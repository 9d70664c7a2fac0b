"""The extension pgvector: created when an index needs it, with a remedy if that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment, open_postgres
from headwater.backends.postgres.migrate import migrate
from headwater.backends.postgres.vectors import chunk_tables
from headwater.core.clock import SystemClock
from headwater.errors import BackendError, InvalidInputError
from headwater.model.values import new_id
from headwater.settings.schema import Settings
from tests.backends.postgres.documents import embedding, near, spec, with_terms, write
from tests.backends.postgres.outbox import MemoryOutbox, value_row
from tests.backends.postgres.story import Open, values

X = embedding(1, 0, 0)


@pytest.fixture
async def elsewhere(settings: Settings, database: Connection) -> AsyncIterator[Settings]:
    """Settings with a new database, which has no extension yet."""
    name = f"db_{new_id()[-12:]}"
    await database.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    address = settings.postgres.url.rpartition("/")[0]
    yield settings.replace(postgres={"url": f"{address}/{name}"})
    await database.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def new(elsewhere: Settings, opening: Open) -> PostgresEnvironment:
    return await opening(postgres={"url": elsewhere.postgres.url})


async def execute(settings: Settings, sql: str) -> None:
    connection = await asyncpg.connect(settings.postgres.url)
    await connection.execute(sql)
    await connection.close()


async def test_the_first_index_creates_the_extension(new: PostgresEnvironment) -> None:
    await new.vectors.create("docs", spec())
    await new.vectors.write([write("a", "one", vectors=[X])])
    assert [hit.text for hit in (await new.vectors.nearest(near(X))).hits] == ["one"]


async def test_an_extension_in_any_schema_is_used(
    new: PostgresEnvironment, elsewhere: Settings
) -> None:
    await execute(
        elsewhere, 'CREATE SCHEMA "my extensions"; CREATE EXTENSION vector SCHEMA "my extensions"'
    )
    await new.vectors.create("docs", spec())
    given = write("a", "one", vectors=[X])
    await new.vectors.write([given])
    query = near(X, with_embeddings=True, as_of=2**62)
    assert [hit.embedding for hit in (await new.vectors.nearest(query)).hits] == [X]
    assert [hit.text for hit in (await new.vectors.matching(with_terms("one"))).hits] == ["one"]
    content_hash = given.chunks[0].content_hash
    assert await new.vectors.embeddings("docs", 1, [content_hash]) == {content_hash: X}


@pytest.mark.direct
async def test_without_the_right_to_create_it_only_indexes_fail(
    elsewhere: Settings, outbox: MemoryOutbox
) -> None:
    schema, role = elsewhere.postgres.schema, f"clerk_{elsewhere.postgres.schema}"
    await migrate(elsewhere)
    await execute(
        elsewhere,
        f"CREATE ROLE {role} LOGIN PASSWORD 'clerk'; GRANT ALL ON SCHEMA {schema} TO {role};"
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role};"
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    )
    address = elsewhere.postgres.url.partition("@")[2]
    own = elsewhere.replace(postgres={"url": f"postgresql://{role}:clerk@{address}"})
    past = await open_postgres(own, SystemClock(), outbox)
    try:
        with pytest.raises(BackendError, match="run `CREATE EXTENSION vector` in the database"):
            await past.vectors.create("docs", spec())
        assert await past.vectors.generations() == []
        assert await past.vectors.version("docs") is None
        outbox.put_documents(write("a", "one"))
        outbox.put(value_row(1))
        assert await values(past) == [1]
        await execute(elsewhere, "CREATE EXTENSION vector")
        assert (await past.vectors.create("docs", spec())).number == 1
    finally:
        await past.close()
        await execute(elsewhere, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_without_the_package_on_the_server_the_error_says_so(
    new: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_tables, "_ADD_EXTENSION", "CREATE EXTENSION not_installed")
    with pytest.raises(BackendError, match="is not installed on the Postgres server"):
        await new.vectors.create("docs", spec())


async def test_an_old_version_is_refused(
    new: PostgresEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_tables, "_OLDEST", (99, 0))
    with pytest.raises(BackendError, match="run `ALTER EXTENSION vector UPDATE`"):
        await new.vectors.create("docs", spec())


@pytest.mark.parametrize(
    ("dimensions", "halfvec", "is_indexed"),
    [(2_000, False, True), (2_001, False, False), (4_000, True, True), (4_001, True, False)],
)
async def test_dimensions_beyond_the_index_are_searched_exactly(
    opening: Open, database: Connection, dimensions: int, halfvec: bool, is_indexed: bool
) -> None:
    past = await opening(vectors={"halfvec": halfvec})
    await past.vectors.create("docs", spec(dimensions))
    near_one = embedding(1, *[0.0] * (dimensions - 1))
    far_one = embedding(*[0.0] * (dimensions - 1), 1)
    await past.vectors.write(
        [write("a", "one", vectors=[near_one]), write("b", "two", vectors=[far_one])]
    )
    found = await past.vectors.nearest(near(near_one))
    assert [(hit.text, round(hit.score, 2)) for hit in found.hits] == [("one", 1), ("two", 0)]
    index = await database.fetchval("SELECT to_regclass('_chunks_1_embedding_idx')")
    assert (index is not None) == is_indexed


@pytest.mark.parametrize("dimensions", [0, 16_001])
async def test_dimensions_that_no_table_holds_are_refused(
    past: PostgresEnvironment, dimensions: int
) -> None:
    with pytest.raises(InvalidInputError, match="pgvector allows 1 to 16000"):
        await past.vectors.create("docs", spec(dimensions))
