"""The values from before a backfill's first event, copied from the version that is served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack

from headwater.backends.duckdb.segment_schema import VALUE_AS_JSON
from headwater.core.clock import from_micros, to_micros
from headwater.core.codec import Kind
from headwater.core.duckdb_session import glob_literal, session, text
from headwater.core.values import Cells, new_id
from headwater.declarations.features import FeatureDef
from headwater.features.cells import history_cell
from headwater.history.backfill.order import ReplayOrder
from headwater.ports import Change, OfflineStore, PastValue

_PAGE = 5_000
_FILE = "older.parquet"


async def older_changes(
    order: ReplayOrder, offline: OfflineStore, served: FeatureDef
) -> AsyncIterator[list[Change]]:
    """Yield the rows of the served version from before ``since`` under the new series, in pages.

    The rows of an entity are in order and keep the times at which they were written.
    """
    file = order.folder / _FILE
    if not await asyncio.to_thread(file.exists):
        unnamed = order.folder / f"{new_id()}.parquet"
        await offline.export_history(unnamed, after=0)
        if not await asyncio.to_thread(unnamed.exists):
            return  # history is empty
        await asyncio.to_thread(unnamed.rename, file)
    with ExitStack() as stack:
        duck = await asyncio.to_thread(stack.enter_context, session(order.folder))
        rows = await asyncio.to_thread(duck.run, _query(order, served))
        while page := await asyncio.to_thread(rows.fetchmany, _PAGE):
            yield [_change(order.series, served, *row) for row in page]


def _query(order: ReplayOrder, served: FeatureDef) -> str:
    before = 0 if order.since is None else to_micros(order.since)
    return (
        f"SELECT entity_id, {VALUE_AS_JSON} AS value, kind,"
        " epoch_us(as_of), epoch_us(written_at), cause"
        f" FROM read_parquet({glob_literal(order.folder / _FILE)})"
        f" WHERE feature = {text(served.series)} AND epoch_us(as_of) < {before}"
        " ORDER BY entity_id, as_of, written_at, seq"
    )


def _change(
    series: str,
    served: FeatureDef,
    entity_id: str,
    value: str,
    kind: Kind,
    as_of: int,
    written_at: int,
    cause: str,
) -> Change:
    past = PastValue(value.encode(), from_micros(as_of), from_micros(written_at))
    cell = history_cell(served, past)
    return Change(series, served.entity.name, entity_id, kind, cell, cause)


def last_of(changes: Sequence[Change]) -> dict[str, Cells]:
    """Return the last value of each entity among changes that are in order, by entity id."""
    return {each.entity_id: {each.feature: each.cell} for each in changes}
