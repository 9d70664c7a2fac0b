"""The check that values of JSON columns fit the types of their features."""

from __future__ import annotations

from pathlib import Path

from headwater.core.duckdb_session import Session, parquet, session
from headwater.declarations.features import FeatureDef
from headwater.history.column_types import column_type, from_json
from headwater.history.columns import Reading
from headwater.ports import misfit_error

_TEXTS_AT_ONCE = 10_000

_EXAMPLE = """
SELECT count(*), min(v{place}), arg_min(entity_id, v{place})
FROM ({answer}) JOIN ({points}) USING ("row")
WHERE v{place} IN (SELECT value FROM misfits)
"""


def check_values(reading: Reading, points: Path, answer: Path) -> None:
    """Raise FeatureValueError if an answer has JSON text that does not fit its feature's type.

    Each distinct text is decoded once.
    """
    places = [n for n, column in enumerate(reading.columns) if column.kind == "json"]
    if not places:
        return
    with session(answer.parent) as duck:
        for place in places:
            feature = reading.features[place]
            misfits = _misfits(
                duck, feature, f"SELECT DISTINCT v{place} AS v FROM ({parquet([answer])})"
            )
            if misfits:
                duck.load_rows(
                    "misfits", [{"value": misfit} for misfit in misfits], {"value": "VARCHAR"}
                )
                sql = _EXAMPLE.format(
                    place=place, answer=parquet([answer]), points=parquet([points])
                )
                row = duck.run(sql).fetchone()
                assert row is not None, "an aggregate returns a row"
                raise misfit_error(
                    reading.columns[place],
                    count=row[0],
                    example=row[1],
                    entity_id=row[2],
                    expected=feature.codec.expected,
                )


def _misfits(duck: Session, feature: FeatureDef, texts: str) -> list[str]:
    in_table = from_json("v", column_type(feature))
    cursor = duck.run(f"SELECT v, TRY({in_table}) IS NOT NULL FROM ({texts}) WHERE v IS NOT NULL")
    misfits = []
    while page := cursor.fetchmany(_TEXTS_AT_ONCE):
        misfits += [
            text for text, has_type in page if not (has_type and feature.codec.fits(text.encode()))
        ]
    return misfits
