"""The values of another version from before the time that a backfill starts at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from headwater.core.clock import to_micros
from headwater.core.codec import Kind
from headwater.core.duckdb_session import glob_literal, session
from headwater.core.sql_literals import texts
from headwater.declarations.features import FeatureDef
from headwater.model.values import Cell
from headwater.ports import Change
from headwater.ports.history import VALUE_AS_JSON

_PAGE = 5_000


def copied_changes(
    file: Path, scratch: Path, served: FeatureDef, variant: FeatureDef, since: datetime
) -> Iterator[list[Change]]:
    """Yield the values of a version as values of another one, those of an entity in order.

    ``file`` is what `OfflineStore.export_history` has written.
    """
    is_converted = dict(served.chain)
    rows = f"""
SELECT entity_id, feature, kind, {VALUE_AS_JSON}, epoch_us(as_of), epoch_us(written_at), cause
FROM read_parquet({glob_literal(file)})
WHERE feature IN ({texts(list(is_converted))}) AND as_of < make_timestamptz({to_micros(since)})
ORDER BY entity_id, as_of, written_at, seq"""

    def own(series: str, kind: Kind, value: str) -> tuple[Kind, bytes]:
        if not is_converted[series]:
            return kind, value.encode()
        return served.codec.kind, served.codec.converted(value.encode())

    with session(scratch) as duck:
        cursor = duck.run(rows)
        while page := cursor.fetchmany(_PAGE):
            yield [
                Change(
                    variant.series,
                    variant.entity.name,
                    entity_id,
                    own(series, kind, value)[0],
                    Cell(
                        msgspec.Raw(own(series, kind, value)[1]),
                        as_of,
                        written_at,
                        served.expiry_of(written_at),
                    ),
                    cause,
                )
                for entity_id, series, kind, value, as_of, written_at, cause in page
            ]
