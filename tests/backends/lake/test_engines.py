"""Other engines read the tables of a lake without us."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

from headwater.ports import Point
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "lake.md"


def documented_query() -> str:
    """Return the query of the page, which any engine runs."""
    return PAGE.read_text().partition("```sql\n")[2].partition("```")[0]


async def test_the_documented_query_gives_the_rows_of_our_own_reader(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        # Values of one moment, and a late one, which was written last and wins among its own.
        numbers = [*range(2 * SEGMENT_ROWS - 2), 5, 5]
        await parts.online.put([change(n, as_of=after(n // 2)) for n in numbers])
        await store.maintain()
        points = [Point("u1", after(second)) for second in (-1, 0, 2, 3, 40)]
        ours = await store.as_of(["clicks"], points)
        catalog = SqlCatalog("headwater", uri=f"sqlite:///{tmp_path / 'home' / 'iceberg.sqlite'}")
        history = catalog.load_table(("headwater", "history")).scan().to_arrow()
        catalog.close()
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            duck.register("history", history)
            duck.execute("CREATE TABLE spine (entity_id VARCHAR, moment TIMESTAMPTZ)")
            duck.executemany(
                "INSERT INTO spine VALUES (?, ?)", [(p.entity_id, p.at) for p in points]
            )
            rows = duck.execute(documented_query()).fetchall()
        values = [value for *_, value in sorted(rows, key=lambda row: row[1])]
        assert values == [None if past is None else int(past.value) for (past,) in ours]
        assert history.num_rows == 2 * SEGMENT_ROWS


def test_bounds_of_metadata_have_no_values_of_persons(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        table = lake_of(tmp_path, parts).tables["history"].load()
        assert table.properties["write.metadata.metrics.default"] == "none"
        assert [field.name for field in table.schema().fields][:4] == [
            "seq",
            "feature",
            "entity",
            "entity_id",
        ]
