"""Numbers of rows in history that no later row can have."""

from __future__ import annotations

import asyncio

from headwater.backends.postgres.pool import Connection, Postgres
from headwater.errors import BackendUnavailableError

WRITERS_SECONDS = 120.0
_POLL_SECONDS = 0.02

_LAST_NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM _history_seq"
_WRITERS = """
SELECT virtualtransaction FROM pg_locks
WHERE relation = '_history'::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


async def settled_number(postgres: Postgres) -> int:
    """Return the last number, when no transaction that is still running can have it or a lower one.

    A number is given out before its row is committed, so this waits for the transactions that are
    writing to history now. It blocks none: those that begin later get higher numbers.
    """
    last: int = await postgres.run(lambda connection: connection.fetchval(_LAST_NUMBER))
    running = await postgres.run(find_writers)
    waited = 0.0
    while running:
        if waited >= WRITERS_SECONDS:
            raise BackendUnavailableError(
                "a transaction of Postgres has been writing to history for more than "
                f"{WRITERS_SECONDS:.0f} seconds, so its rows cannot be counted yet; find it in "
                "pg_stat_activity, and try again when it has ended"
            )
        await asyncio.sleep(_POLL_SECONDS)
        waited += _POLL_SECONDS
        running &= await postgres.run(find_writers)
    return last


async def find_writers(connection: Connection) -> set[str]:
    """Return the transactions that are writing to history."""
    return {transaction for (transaction,) in await connection.fetch(_WRITERS)}
