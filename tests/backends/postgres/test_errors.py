"""Translation of errors of the driver and the server."""

from __future__ import annotations

import asyncpg
import pytest

from headwater.backends.postgres.errors import translate
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    HeadwaterError,
    SchemaError,
)
from headwater.settings.schema import PostgresSettings

SETTINGS = PostgresSettings(url="postgresql://me:secret@db:5432/shop", schema="past")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            asyncpg.InvalidPasswordError("wrong\nDETAIL: much"),
            BackendError,
            "Postgres at postgresql://me:***@db:5432/shop refuses the user or the password: wrong; "
            "correct HEADWATER_POSTGRES_URL",
        ),
        (
            asyncpg.DiskFullError("could not extend file"),
            BackendError,
            "Postgres at postgresql://me:***@db:5432/shop has no space left: could not extend "
            "file; free some space; acknowledged writes are safe",
        ),
        (
            asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"),
            BackendError,
            "Postgres at postgresql://me:***@db:5432/shop cannot be written to: cannot execute "
            "INSERT; use the primary in HEADWATER_POSTGRES_URL, not a replica",
        ),
        (
            TimeoutError(),
            BackendUnavailableError,
            "Postgres at postgresql://me:***@db:5432/shop did not answer in time; check its load "
            "and the network, or raise HEADWATER_POSTGRES_TIMEOUT",
        ),
        (
            asyncpg.UndefinedTableError('relation "_history" does not exist'),
            SchemaError,
            "the tables in the Postgres schema 'past' are incomplete: relation \"_history\" does "
            "not exist; run `headwater migrate`",
        ),
        (
            asyncpg.exceptions.ClientConfigurationError("invalid DSN"),
            ConfigError,
            "HEADWATER_POSTGRES_URL cannot be used: invalid DSN; write it as "
            "postgresql://user:password@host:5432/database",
        ),
        (
            asyncpg.OutOfMemoryError("out of memory"),
            BackendError,
            "Postgres at postgresql://me:***@db:5432/shop failed: out of memory; see its log; "
            "acknowledged writes are safe",
        ),
    ],
)
def test_an_error_states_the_problem_and_the_remedy(
    error: Exception, kind: type[HeadwaterError], said: str
) -> None:
    translated = translate(error, SETTINGS)
    assert type(translated) is kind
    assert str(translated) == said


@pytest.mark.parametrize("error", [TimeoutError(), asyncpg.QueryCanceledError("canceling")])
def test_an_error_names_the_limit_that_was_too_short(error: Exception) -> None:
    assert "raise HEADWATER_POSTGRES_TIMEOUT" in str(translate(error, SETTINGS))
    assert "raise HEADWATER_RECORD_TIMEOUT" in str(translate(error, SETTINGS, "record.timeout"))


def test_a_driver_that_stumbles_over_a_lost_connection_does_not_hide_why() -> None:
    error = asyncpg.InterfaceError("cannot call Transaction.__aexit__()")
    error.__context__ = asyncpg.AdminShutdownError("terminating connection")
    assert "closed the connection: terminating connection;" in str(translate(error, SETTINGS))
