"""Outcomes in SQL: what both databases read in the same way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from headwater.backends.sql_lists import SUMMARY, ListOrder, SqlDatabase, SqlList, SqlRecordReads
from headwater.errors import ImmutableRecordError
from headwater.model.contexts import RecordSummary
from headwater.ports import OutcomeFilter, StoredOutcome, is_storable

COLUMNS = StoredOutcome.__struct_fields__
ALL = ", ".join(COLUMNS)
_OF_CONTEXTS = """
SELECT {all} FROM {table} WHERE context_id IN ({ids}) AND (at, outcome_id) > ($1, $2)
ORDER BY at, outcome_id LIMIT $3
"""
# The outcomes determine the page, so that only listed records are read.
_HAVING = """
SELECT {summary} FROM ({page}) AS page JOIN {records} USING (created_at, context_id)
ORDER BY created_at {order}, context_id {order}
"""
_IS_MEASURED = "counted_model IS NOT NULL AND predicted IS NOT NULL AND billed IS NOT NULL"
_MEASURED = f"""
SELECT predicted, billed FROM {{table}} WHERE counted_model = $1 AND {_IS_MEASURED}
ORDER BY at DESC LIMIT $2
"""
# From each model to the next one: the index has a row for every outcome.
_NEXT_MODEL = (
    f"SELECT min(counted_model) FROM {{table}} WHERE counted_model > $1 AND {_IS_MEASURED}"
)


class SqlOutcomeReads(SqlRecordReads):
    """The reads of a record log and of its outcomes."""

    def __init__(self, database: SqlDatabase, records: str, outcomes: str) -> None:
        super().__init__(database, records)
        self._outcomes = SqlList(ALL, outcomes, "at", "outcome_id")
        self._having = SqlList(
            "DISTINCT created_at, context_id", outcomes, "created_at", "context_id"
        )

    async def outcome(self, outcome_id: str) -> StoredOutcome | None:
        sql = f"SELECT {ALL} FROM {self._outcomes.table} WHERE outcome_id = $1"
        rows = is_storable(outcome_id) and await self._database.rows(sql, outcome_id)
        return self._outcome(rows[0]) if rows else None

    async def outcomes(
        self, context_ids: Collection[str], *, after: str | None = None, limit: int = 1_000
    ) -> list[StoredOutcome]:
        _, (at, last, _) = await self._outcomes.bounds(
            self._database, None, None, after, oldest_first=True
        )
        ids = [context_id for context_id in context_ids if is_storable(context_id)]
        if not ids:
            return []
        places = ", ".join(f"${number}" for number in range(4, len(ids) + 4))
        sql = _OF_CONTEXTS.format(all=ALL, table=self._outcomes.table, ids=places)
        return list(map(self._outcome, await self._database.rows(sql, at, last, limit, *ids)))

    async def outcome_page(
        self,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> list[StoredOutcome]:
        order, bounds = await self._outcomes.bounds(
            self._database, start, end, after, oldest_first=True
        )
        sql = self._outcomes.sql(order=order)
        return list(map(self._outcome, await self._database.rows(sql, *bounds, limit)))

    async def having(
        self,
        outcome: OutcomeFilter,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        before: str | None = None,
        oldest_first: bool = False,
        limit: int = 100,
    ) -> list[RecordSummary]:
        order, bounds = await self._list.bounds(
            self._database, start, end, before, oldest_first=oldest_first
        )
        columns = outcome.columns()
        if columns is None:
            return []
        sql = self.having_sql(columns, order, outcome.operator)
        return await self._summaries(sql, *bounds, limit, *columns.values())

    def having_sql(self, columns: Iterable[str], order: ListOrder, operator: str) -> str:
        """Return the query for a page of the records that have such an outcome."""
        page = self._having.sql(columns, order, {"value": operator})
        return _HAVING.format(
            summary=SUMMARY, page=page, records=self._list.table, order=order.order
        )

    async def measured(self, model: str, *, limit: int = 1_000) -> list[tuple[int, int]]:
        if not is_storable(model):
            return []
        sql = _MEASURED.format(table=self._outcomes.table)
        return [(row[0], row[1]) for row in await self._database.rows(sql, model, limit)]

    async def measured_models(self) -> list[str]:
        sql, models = _NEXT_MODEL.format(table=self._outcomes.table), [""]
        while (model := (await self._database.rows(sql, models[-1]))[0][0]) is not None:
            models.append(model)
        return models[1:]

    def _outcome(self, row: Sequence[Any]) -> StoredOutcome:
        return outcome_of(self._database, row)


def outcome_of(database: SqlDatabase, row: Sequence[Any]) -> StoredOutcome:
    """Return the outcome in a row with all columns."""
    values = dict(zip(COLUMNS, row, strict=True))
    values["at"] = database.time(values["at"])
    for name in ("flag", "is_signed", "is_redacted"):
        values[name] = None if values[name] is None else bool(values[name])
    return StoredOutcome(**values)


def already_stored(given: StoredOutcome, earlier: Sequence[StoredOutcome]) -> StoredOutcome | None:
    """Return the one of these outcomes that a given one repeats, or None.

    Raises ImmutableRecordError if another one has its id.
    """
    for outcome in earlier:
        if given.source_key is not None and outcome.source_key == given.source_key:
            return outcome
    for outcome in earlier:
        if outcome.outcome_id == given.outcome_id:
            if outcome.outcome_hash == given.outcome_hash:
                return outcome
            raise ImmutableRecordError(
                given.outcome_id, outcome.outcome_hash, given.outcome_hash, "outcome"
            )
    return None
