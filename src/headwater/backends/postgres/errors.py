"""What Postgres and its driver report, in our words and with what to do about it."""

from __future__ import annotations

import asyncpg

from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    HeadwaterError,
    InvalidInputError,
    SchemaError,
)
from headwater.settings.schema import SETTINGS, PostgresSettings

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # a TimeoutError too
)
"""Everything that goes wrong outside our own code."""

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InterfaceError,  # the use of a connection that is gone, among others
    asyncpg.InternalClientError,  # the use of one that goes just then
    ConnectionError,
)
"""What happens to a connection or a transaction through no fault of its own."""

OF_ONE_ROW = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.OutOfMemoryError,
    asyncpg.InternalServerError,
)
"""What one row may bring about in a statement whose other rows are fine."""

_TABLES_DIFFER = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)

# The first one that fits.
_REMEDIES: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        "refuses the user or the password",
        "correct HEADWATER_POSTGRES_URL",
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        "has no such database",
        "create it, or correct HEADWATER_POSTGRES_URL",
    ),
    (
        (asyncpg.TooManyConnectionsError,),
        "has no connection left",
        "raise its max_connections, or lower HEADWATER_POSTGRES_POOL_SIZE",
    ),
    (
        (asyncpg.QueryCanceledError,),
        "gave a statement up",
        "raise {limit}, or ask for less at once",
    ),
    (
        (asyncpg.DiskFullError,),
        "has no space left",
        "free some; what was acknowledged is safe",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        "cannot be written to",
        "name the primary in HEADWATER_POSTGRES_URL, not a replica",
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        "does not allow it",
        "grant the right to the user that HEADWATER_POSTGRES_URL names",
    ),
    (
        (ConnectionRefusedError,),
        "cannot be reached",
        "start it, or correct HEADWATER_POSTGRES_URL",
    ),
    (
        LOST,
        "broke the connection off",
        "see its log, and try again; what was acknowledged is safe",
    ),
    (
        (TimeoutError,),
        "did not answer in time",
        "see to its load and the network, or raise {limit}",
    ),
    (
        (OSError,),
        "cannot be reached",
        "start it, or correct HEADWATER_POSTGRES_URL",
    ),
)


def translate(
    error: Exception, settings: PostgresSettings, limit: str = "postgres.timeout"
) -> HeadwaterError:
    """Our error for one of the driver's, the server's or the network's."""
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return ConfigError(
            f"HEADWATER_POSTGRES_URL cannot be used: {headline(error)}; write it as "
            "postgresql://user:password@host:5432/database"
        )
    if isinstance(error, _TABLES_DIFFER):
        return SchemaError(
            settings.schema, f"are incomplete: {headline(error)}", "run `headwater migrate`"
        )
    if isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError):
        return InvalidInputError(f"Postgres cannot keep what was passed: {headline(error)}")
    where = SETTINGS["postgres.url"].shown(settings.url)
    problem, remedy = next(
        ((problem, remedy) for kinds, problem, remedy in _REMEDIES if isinstance(error, kinds)),
        ("failed", "see its log; what was acknowledged is safe"),
    )
    said = ": ".join(filter(None, [problem, headline(_first(error))]))
    kind = BackendUnavailableError if isinstance(error, (*LOST, OSError)) else BackendError
    remedy = remedy.format(limit=SETTINGS[limit].variable)
    return kind(f"Postgres at {where} {said}; {remedy}")


def _first(error: BaseException) -> BaseException:
    """What was said before the driver stumbled over a connection that is gone."""
    before = error.__context__
    if isinstance(error, asyncpg.InterfaceError) and isinstance(before, LOST):
        return _first(before)
    return error


def headline(error: BaseException) -> str:
    """The first line of what the driver or the server says."""
    return str(error).partition("\n")[0]
