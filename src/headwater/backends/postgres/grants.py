"""The least rights of a store in Postgres, as statements of the administrator of the database."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from headwater.backends.postgres.addresses import addresses
from headwater.settings.schema import Settings

_SCRIPT = """\
-- Postgres: as the administrator of the database {database}, before the first `headwater migrate`.
-- {owner} has the tables: only `headwater migrate` runs with its URL, before each new version and
-- once a month, as it adds the months to come.
CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;
CREATE ROLE {owner} LOGIN PASSWORD 'PASSWORD';
GRANT {owner} TO CURRENT_USER;
CREATE SCHEMA {schema} AUTHORIZATION {owner};
GRANT CONNECT ON DATABASE {database} TO {owner};
-- {user}, of postgres.url, runs everything else. CREATE is for the tables of document indexes, of
-- `headwater sources load`, and of pruning behind a pooler; a store without these does not need it.
CREATE ROLE {user} LOGIN PASSWORD 'PASSWORD';
GRANT CONNECT, TEMPORARY ON DATABASE {database} TO {user};
GRANT USAGE, CREATE ON SCHEMA {schema} TO {user};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema}
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {user};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema}
    GRANT SELECT, USAGE ON SEQUENCES TO {user};"""


def grants(settings: Settings) -> str:
    """Return the statements that create the schema, its owner, and the user of the store."""
    address = urlsplit(addresses(settings.postgres)[0])
    user = unquote(address.username or "headwater")
    return _SCRIPT.format(
        user=_quoted(user),
        owner=_quoted(f"{user}_owner"),
        schema=_quoted(settings.postgres.schema),
        database=_quoted(unquote(address.path.strip("/")) or user),
    )


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
