"""The tables of chunks, one for each generation, and the extension that they need."""

from __future__ import annotations

import asyncpg
import msgspec

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.vectors.stored_forms import (
    half_vector,
    read_half_vector,
    read_vector,
    vector,
)
from headwater.errors import BackendError, InvalidInputError
from headwater.settings.servers import VectorSettings

# Limits of pgvector.
_MOST_DIMENSIONS = 16_000
_MOST_INDEXED = 2_000
_MOST_INDEXED_HALF = 4_000

_CREATE = """
CREATE TABLE {name} (
    seq          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    document     text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    position     integer NOT NULL,
    text         text COLLATE "C" NOT NULL,
    content_hash text COLLATE "C" NOT NULL,
    metadata     json NOT NULL,
    fields       jsonb NOT NULL,
    version      integer NOT NULL,
    indexed_at   bigint NOT NULL,
    valid_from   bigint NOT NULL,
    valid_to     bigint,
    length       integer NOT NULL,
    terms        tsvector NOT NULL,
    embedding    {schema}.{kind}({dimensions}) NOT NULL
);
CREATE INDEX ON {name} USING hash (document) WHERE valid_to IS NULL;
CREATE INDEX ON {name} USING hash (content_hash);
CREATE INDEX ON {name} (valid_to) WHERE valid_to IS NOT NULL;
CREATE INDEX ON {name} USING gin (terms);
"""
# Comparing all chunks is four times as fast if their embeddings are not in a TOAST table. A row has
# to fit into a page of 8 kB with them; other long columns can be moved out.
_KEEP_INLINE = "ALTER TABLE {name} ALTER COLUMN embedding SET STORAGE PLAIN"
_MOST_INLINE = 6_400

# Replaced chunks, which few searches read, are found without this index.
_CREATE_HNSW = """
CREATE INDEX ON {name} USING hnsw ({column} {schema}.{kind}_cosine_ops)
WITH (m = {m}, ef_construction = {ef_construction}) WHERE valid_to IS NULL
"""


class ChunkTable(msgspec.Struct, frozen=True):
    """The table of a generation."""

    generation_id: int
    dimensions: int
    is_half: bool
    schema: str = ""
    """The quoted schema of pgvector; writes do not need it."""

    @property
    def name(self) -> str:
        return f"_chunks_{self.generation_id}"

    @property
    def type(self) -> str:
        """The type of the embeddings."""
        return f"{self.schema}.{self.kind}({self.dimensions})"

    @property
    def kind(self) -> str:
        return "halfvec" if self.is_half else "vector"

    @property
    def distance(self) -> str:
        """The operator of the cosine distance."""
        return f"OPERATOR({self.schema}.<=>)"


def quoted(schema: str) -> str:
    """Return the name of a schema as statements have it."""
    return '"' + schema.replace('"', '""') + '"'


def check_dimensions(dimensions: int) -> None:
    """Raise InvalidInputError if no table can hold embeddings with this many dimensions."""
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise InvalidInputError(
            f"embeddings of {dimensions} dimensions cannot be stored: pgvector allows 1 to "
            f"{_MOST_DIMENSIONS}; choose another model, or fewer dimensions"
        )


async def create_table(connection: Connection, table: ChunkTable, settings: VectorSettings) -> None:
    """Create a table with its indexes; beyond the limits of HNSW, searches are exact."""
    await connection.execute(
        _CREATE.format(
            name=table.name, schema=table.schema, kind=table.kind, dimensions=table.dimensions
        )
    )
    if table.dimensions * (2 if table.is_half else 4) <= _MOST_INLINE:
        await connection.execute(_KEEP_INLINE.format(name=table.name))
    most = _MOST_INDEXED_HALF if table.is_half else _MOST_INDEXED
    if table.dimensions <= most:
        await connection.execute(
            _CREATE_HNSW.format(
                name=table.name,
                schema=table.schema,
                kind=table.kind,
                column="embedding",
                m=settings.hnsw_m,
                ef_construction=settings.hnsw_ef_construction,
            )
        )


async def drop_table(connection: Connection, generation_id: int) -> None:
    await connection.execute(f"DROP TABLE IF EXISTS _chunks_{generation_id}")


_OLDEST = (0, 8)
_FIND = """
SELECT n.nspname, e.extversion FROM pg_extension AS e
JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""
_CODECS = (("vector", vector, read_vector), ("halfvec", half_vector, read_half_vector))
# An extension belongs to the database; concurrent attempts would fail.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater extension'))"
# Not in the schema of the store, which may be dropped before others that use the extension.
_ADD_EXTENSION = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"


async def extension_schema(connection: Connection) -> str:
    """Return the schema of pgvector; create the extension if it is missing.

    Raise BackendError if it is not installed, too old, or may not be created.
    """
    extension = await connection.fetchrow(_FIND)
    if extension is None:
        await _create(connection)
        extension = await connection.fetchrow(_FIND)
        assert extension is not None
    schema, version = extension
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise BackendError(
            f"pgvector in this database is {version}, and indexes need 0.8 or later; install it "
            "on the server, and run `ALTER EXTENSION vector UPDATE` in the database"
        )
    return str(schema)


async def exchange_vectors(connection: Connection, schema: str) -> None:
    """Let a connection send and receive embeddings as they are.

    Encoding them as arrays of numbers would take longer than a search.
    """
    for kind, encode, decode in _CODECS:
        await connection.set_type_codec(
            kind, schema=schema, encoder=encode, decoder=decode, format="binary"
        )


async def _create(connection: Connection) -> None:
    try:
        async with connection.transaction():
            await connection.execute(_LOCK)
            await connection.execute(_ADD_EXTENSION)
    except (asyncpg.UndefinedFileError, asyncpg.FeatureNotSupportedError) as error:
        raise BackendError(
            f"indexes need pgvector, which is not installed on the Postgres server: "
            f"{headline(error)}; install its package for this version of Postgres, for example "
            "postgresql-17-pgvector, and try again"
        ) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise BackendError(
            f"indexes need pgvector, which the user in HEADWATER_POSTGRES_URL may not create: "
            f"{headline(error)}; run `CREATE EXTENSION vector` in the database as its "
            "administrator, and try again"
        ) from error
