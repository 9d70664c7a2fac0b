"""Translation of errors of Postgres and its driver, with a remedy for each."""

from __future__ import annotations

import asyncpg

from headwater.core.tls import explained
from headwater.errors import (
    BackendError,
    BackendUnavailableError,
    ConfigError,
    HeadwaterError,
    InvalidInputError,
    SchemaError,
)
from headwater.settings.schema import SETTINGS
from headwater.settings.servers import PostgresSettings

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # a TimeoutError too
)
"""Errors of the server, the driver and the network."""

LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # the server is no longer the primary
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.InterfaceError,  # for example, the use of a closed connection
    asyncpg.InternalClientError,  # the use of a connection while it is being closed
    ConnectionError,
)
"""Failures of a connection or a transaction that a retry, on a new connection, may solve."""

_GRANT = "grant it to the user in {url}, as `headwater doctor grants --print` shows"
# Classes and codes of SQLSTATE that depend on the state of the server and not on the statement: the
# same statement succeeds when the server is well again.
_UNAVAILABLE = (
    "08",  # connection
    "25006",  # read-only: a replica, or a primary that is being replaced
    "28",  # user or password refused
    "3D",  # no such database
    "40001",  # serialization failure
    "40P01",  # deadlock
    "42501",  # no permission; of a user's query it is an error of the query
    "53",  # out of connections, memory or disk
    "55P03",  # lock not available
    "57",  # shutdown, recovery, cancelled by an operator or a timeout
    "58",  # error of the operating system
)

REFUSED = (
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
"""Failures that need a correction of the URL or of the user's rights."""

UNANSWERED = (
    asyncpg.FeatureNotSupportedError,
    asyncpg.InsufficientPrivilegeError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    asyncpg.UndefinedFunctionError,
)
"""Answers of a server that cannot say, or may not, how far its log is."""

ROW_ERRORS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
    asyncpg.OutOfMemoryError,
    asyncpg.InternalServerError,
)
"""Failures of a statement that a single invalid row can cause."""

_SCHEMA_ERRORS = (
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSchemaNameError,
)

# A pooler that gives each transaction another session refuses parameters of sessions, or ignores
# them if it is told to; then statements do not find what another session has prepared.
_NO_PARAMETERS = "unsupported startup parameter"
_OF_POOLERS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)

# The first match applies.
_REMEDIES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (asyncpg.InvalidPasswordError, "refuses the user or the password", "correct {url}"),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "refuses the user",
        "correct {url}; for a certificate, set postgres.tls.cert_file and postgres.tls.key_file",
    ),
    (asyncpg.InvalidCatalogNameError, "has no such database", "create it, or correct {url}"),
    (
        asyncpg.TooManyConnectionsError,
        "has no connection left",
        "raise its max_connections, or lower HEADWATER_POSTGRES_POOL_SIZE",
    ),
    (
        asyncpg.QueryCanceledError,
        "cancelled a statement",
        "raise {limit}, or make a smaller request",
    ),
    (asyncpg.DiskFullError, "has no space left", "free some space; acknowledged writes are safe"),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "cannot be written to",
        "use the primary in {url}, not a replica",
    ),
    (
        asyncpg.exceptions.TargetServerAttributeNotMatched,
        "has no server that can be written to",
        "promote a replica, or name the primary in HEADWATER_POSTGRES_HOSTS or {url}",
    ),
    (asyncpg.InsufficientPrivilegeError, "denied permission", _GRANT),
    (ConnectionRefusedError, "cannot be reached", "start it, or correct {url}"),
    (
        asyncpg.LockNotAvailableError,
        "did not grant a lock in time",
        "end the session that holds it, or try again",
    ),
    (LOST, "closed the connection", "see its log, and try again; acknowledged writes are safe"),
    (TimeoutError, "did not answer in time", "check its load and the network, or raise {limit}"),
    (OSError, "cannot be reached", "start it, or correct {url}"),
)


def translate(
    error: Exception,
    settings: PostgresSettings,
    limit: str = "postgres.timeout",
    url_setting: str = "postgres.url",
) -> HeadwaterError:
    """Return the HeadwaterError for an error of the server, the driver or the network."""
    url = SETTINGS[url_setting]
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return ConfigError(
            f"{url.variable} cannot be used: {headline(error)}; write it as "
            "postgresql://user:password@host:5432/database"
        )
    if isinstance(error, _OF_POOLERS) or _NO_PARAMETERS in str(error):
        address = settings.url_of(*settings.servers)
        remedy = "set postgres.pooler to transaction"
        if settings.pooler == "transaction":
            remedy = f"remove the parameter from {url.variable}"
        return ConfigError(
            f"Postgres at {url.shown(address)} is behind a pooler that keeps no sessions: "
            f"{headline(error)}; {remedy}"
        )
    if isinstance(error, _SCHEMA_ERRORS):
        return SchemaError(
            settings.schema, f"are incomplete: {headline(error)}", "run `headwater migrate`"
        )
    if isinstance(error, asyncpg.DataError | asyncpg.ProgramLimitExceededError):
        return InvalidInputError(f"Postgres cannot store the value: {headline(error)}")
    problem, remedy = next(
        ((problem, remedy) for kinds, problem, remedy in _REMEDIES if isinstance(error, kinds)),
        ("failed", "see its log; acknowledged writes are safe"),
    )
    said = headline(_first(error))
    if meaning := explained(error, "postgres.tls"):
        said, remedy = meaning
    problem = ": ".join(filter(None, [problem, said]))
    kind = BackendUnavailableError if _is_unavailable(error) else BackendError
    remedy = remedy.format(limit=SETTINGS[limit].variable, url=url.variable)
    address = settings.url_of(*settings.servers)
    return kind(f"Postgres at {url.shown(address)} {problem}; {remedy}")


def _is_unavailable(error: Exception) -> bool:
    sqlstate = error.sqlstate if isinstance(error, asyncpg.PostgresError) else None
    return isinstance(error, (*LOST, OSError)) or (sqlstate or "").startswith(_UNAVAILABLE)


def _first(error: BaseException) -> BaseException:
    """Return the error that preceded the driver's use of a closed connection."""
    before = error.__context__
    if isinstance(error, asyncpg.InterfaceError) and isinstance(before, LOST):
        return _first(before)
    return error


def headline(error: BaseException) -> str:
    """Return the first line of an error message."""
    return str(error).partition("\n")[0]


def reason(error: BaseException) -> str:
    """Return the first line of an error's cause, or of the error if that says nothing."""
    return headline(error.__cause__ or error) or headline(error)
