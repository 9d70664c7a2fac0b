"""The extension pgvector: created when the first index needs it."""

from __future__ import annotations

import asyncpg

from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.binary_rows import (
    half_vector,
    read_half_vector,
    read_vector,
    vector,
)
from headwater.errors import BackendError

_OLDEST = (0, 8)
_FIND = """
SELECT n.nspname, e.extversion FROM pg_extension AS e
JOIN pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""
_CODECS = (("vector", vector, read_vector), ("halfvec", half_vector, read_half_vector))
# An extension belongs to the database; concurrent attempts would fail.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('headwater extension'))"
# Not in the schema of the store, which may be dropped before others that use the extension.
_CREATE = "CREATE EXTENSION IF NOT EXISTS vector SCHEMA public"


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
            await connection.execute(_CREATE)
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
