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
from headwater.settings.servers import PostgresSettings

SETTINGS = PostgresSettings(url="postgresql://me:secret@db:5432/shop", schema="past")


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            asyncpg.InvalidPasswordError("wrong\nDETAIL: much"),
            BackendUnavailableError,
            "Postgres at postgresql://me:***@db:5432/shop refuses the user or the password: wrong; "
            "correct HEADWATER_POSTGRES_URL",
        ),
        (
            asyncpg.DiskFullError("could not extend file"),
            BackendUnavailableError,
            "Postgres at postgresql://me:***@db:5432/shop has no space left: could not extend "
            "file; free some space; acknowledged writes are safe",
        ),
        (
            asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT"),
            BackendUnavailableError,
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
            asyncpg.InsufficientPrivilegeError("permission denied for table _history"),
            BackendUnavailableError,
            "Postgres at postgresql://me:***@db:5432/shop denied permission: permission denied for "
            "table _history; grant it to the user in HEADWATER_POSTGRES_URL, as `headwater doctor "
            "grants --print` shows",
        ),
        (
            asyncpg.exceptions.ClientConfigurationError("invalid DSN"),
            ConfigError,
            "HEADWATER_POSTGRES_URL cannot be used: invalid DSN; write it as "
            "postgresql://user:password@host:5432/database",
        ),
        (
            asyncpg.OutOfMemoryError("out of memory"),
            BackendUnavailableError,
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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (asyncpg.ConnectionDoesNotExistError, "closed the connection"),  # 08003
        (asyncpg.ReadOnlySQLTransactionError, "cannot be written to"),  # 25006
        (asyncpg.IdleInTransactionSessionTimeoutError, "closed the connection"),  # 25P03
        (asyncpg.InvalidPasswordError, "refuses the user or the password"),  # 28P01
        (asyncpg.InvalidCatalogNameError, "has no such database"),  # 3D000
        (asyncpg.SerializationError, "closed the connection"),  # 40001
        (asyncpg.DeadlockDetectedError, "closed the connection"),  # 40P01
        (asyncpg.InsufficientPrivilegeError, "denied permission"),  # 42501
        (asyncpg.DiskFullError, "has no space left"),  # 53100
        (asyncpg.OutOfMemoryError, "failed"),  # 53200
        (asyncpg.TooManyConnectionsError, "has no connection left"),  # 53300
        (asyncpg.LockNotAvailableError, "did not grant a lock in time"),  # 55P03
        (asyncpg.QueryCanceledError, "cancelled a statement"),  # 57014
        (asyncpg.AdminShutdownError, "closed the connection"),  # 57P01
        (asyncpg.CannotConnectNowError, "closed the connection"),  # 57P03
        (asyncpg.PostgresIOError, "failed"),  # 58030
    ],
)
def test_errors_that_depend_on_the_server_alone_are_errors_of_the_server(
    error: type[asyncpg.PostgresError], said: str
) -> None:
    translated = translate(error("the reason"), SETTINGS)
    assert isinstance(translated, BackendUnavailableError)
    assert f"{said}: the reason" in str(translated)


@pytest.mark.parametrize("error", [asyncpg.ActiveSQLTransactionError, asyncpg.InternalServerError])
def test_errors_that_depend_on_the_statement_are_errors_of_the_caller(
    error: type[asyncpg.PostgresError],
) -> None:
    assert type(translate(error("the reason"), SETTINGS)) is BackendError


@pytest.mark.parametrize("error", [TimeoutError(), asyncpg.QueryCanceledError("canceling")])
def test_an_error_names_the_limit_that_was_too_short(error: Exception) -> None:
    assert "raise HEADWATER_POSTGRES_TIMEOUT" in str(translate(error, SETTINGS))
    assert "raise HEADWATER_RECORD_TIMEOUT" in str(translate(error, SETTINGS, "record.timeout"))


def test_a_driver_that_stumbles_over_a_lost_connection_does_not_hide_why() -> None:
    error = asyncpg.InterfaceError("cannot call Transaction.__aexit__()")
    error.__context__ = asyncpg.AdminShutdownError("terminating connection")
    assert "closed the connection: terminating connection;" in str(translate(error, SETTINGS))
