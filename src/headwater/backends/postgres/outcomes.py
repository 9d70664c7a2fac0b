"""Outcomes of contexts in Postgres, byte for byte as sealed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.shared_commits import SharedCommits
from headwater.backends.postgres.store_identity import StoreCheck
from headwater.backends.sql_lists import SqlDatabase
from headwater.backends.sql_outcomes import (
    ALL,
    COLUMNS,
    SqlOutcomeReads,
    already_stored,
    outcome_of,
)
from headwater.errors import HeadwaterError, UnknownContextError
from headwater.ports import NO_DISCLOSURES, StoredOutcome, is_storable

_TYPES = (
    *(*["text"] * 5, "timestamptz", "text", "double precision", "boolean", "bytea"),
    *("text", "text", "bigint", "bigint", "bytea", "boolean", "boolean", *["bytea"] * 4),
)
_STORED = ", ".join(
    "CASE WHEN is_withheld THEN '[]' ELSE disclosures END" if column == "disclosures" else column
    for column in COLUMNS
)
_WITHHELD = "CASE WHEN disclosures = '[]' THEN '[]' ELSE ${n}::bytea END"
# For a single outcome, the common case, it takes half of the time of _ADD_MANY.
_ADD = f"""
INSERT INTO _outcomes ({ALL}, created_at, counted_model)
SELECT {
    ", ".join(
        (_WITHHELD if column == "disclosures" else "${n}::{kind}").format(n=n, kind=kind)
        for n, (column, kind) in enumerate(zip(COLUMNS, _TYPES, strict=True), 1)
    )
}, created_at, model
FROM _records WHERE context_id = $2 AND record_hash = $3 FOR SHARE
ON CONFLICT DO NOTHING
RETURNING outcome_id, disclosures = '[]'
"""
# The records stay locked until the commit: an erasure of one waits, and then finds these outcomes.
_ADD_MANY = f"""
WITH held AS MATERIALIZED (
    SELECT context_id, record_hash, created_at, model AS counted_model,
           disclosures = '[]' AS is_withheld
    FROM _records WHERE context_id = ANY ($2::text[]) FOR SHARE
), added AS (
    INSERT INTO _outcomes ({ALL}, created_at, counted_model)
    SELECT {_STORED}, created_at, counted_model
    FROM unnest({", ".join(f"${n}::{kind}[]" for n, kind in enumerate(_TYPES, 1))})
        AS given ({ALL}) JOIN held USING (context_id, record_hash)
    ON CONFLICT DO NOTHING
    RETURNING outcome_id, disclosures = '[]' AS is_withheld
)
SELECT * FROM added
"""
_EARLIER = f"""
SELECT {ALL} FROM _outcomes WHERE outcome_id = ANY ($1::text[]) OR source_key = ANY ($2::bytea[])
"""
_REDACT = """
UPDATE _outcomes SET disclosures = $3, redactions = $4, is_redacted = true
WHERE outcome_id = $1 AND redactions = $2
RETURNING true
"""


class PostgresOutcomes(SqlOutcomeReads):
    """The outcomes of a record log, in which concurrent appends share a transaction."""

    def __init__(
        self, database: SqlDatabase, writing: Postgres, postgres: Postgres, store: StoreCheck
    ) -> None:
        super().__init__(database, "_records", "_outcomes")
        self._writing_pool = writing
        self._postgres = postgres
        self._check_same_store = store.raise_known_mismatch
        self._outcome_appends = SharedCommits(writing, self._insert_outcomes)

    async def append_outcome(self, outcome: StoredOutcome) -> StoredOutcome:
        self._check_same_store()
        outcome.check()
        size = len(outcome.core) + len(outcome.disclosures)
        return await self._outcome_appends.write(outcome, size)

    async def redact_outcome(
        self, outcome_id: str, *, expected: bytes, disclosures: bytes, redactions: bytes
    ) -> bool:
        self._check_same_store()
        if not is_storable(outcome_id):
            return False

        async def update(connection: Connection) -> bool:
            row = (outcome_id, expected, disclosures, redactions)
            return await connection.fetchval(_REDACT, *row) is not None

        return await self._postgres.run(update)

    async def _insert_outcomes(
        self, connection: Connection, outcomes: Sequence[StoredOutcome]
    ) -> list[StoredOutcome | HeadwaterError]:
        # Always in the same order, so that two processes with the same outcomes cannot deadlock.
        ordered = sorted(outcomes, key=lambda outcome: outcome.outcome_id)
        if len(outcomes) == 1:
            row = [getattr(outcomes[0], column) for column in COLUMNS]
            added = dict(map(tuple, await connection.fetch(_ADD, *row)))
        else:
            columns = [[getattr(outcome, column) for outcome in ordered] for column in COLUMNS]
            added = dict(map(tuple, await connection.fetch(_ADD_MANY, *columns)))
        if len(added) == len(outcomes):
            return [
                replace(outcome, disclosures=NO_DISCLOSURES)
                if added[outcome.outcome_id]
                else outcome
                for outcome in outcomes
            ]
        ids = [outcome.outcome_id for outcome in outcomes]
        sources = [outcome.source_key for outcome in outcomes if outcome.source_key is not None]
        rows = await connection.fetch(_EARLIER, ids, sources)
        stored = [outcome_of(self._database, tuple(row)) for row in rows]
        return [_result(outcome, stored) for outcome in outcomes]


def _result(
    given: StoredOutcome, stored: Sequence[StoredOutcome]
) -> StoredOutcome | HeadwaterError:
    try:
        found = already_stored(given, stored)
    except HeadwaterError as error:
        return error
    return UnknownContextError(given.context_id) if found is None else found
