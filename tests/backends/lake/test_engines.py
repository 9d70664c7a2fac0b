"""Other engines read the tables of a lake without us."""

from __future__ import annotations

from pathlib import Path

import duckdb
from pyiceberg.catalog.sql import SqlCatalog

from headwater.core.duckdb_session import session
from headwater.core.sql_literals import text
from headwater.core.warehouses import load_extension
from headwater.ports import Point
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
from tests.backends.lake.test_forgetting import holding, unpacked

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


async def test_duckdb_reads_the_table_by_its_own_reader(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts, session(parts.home.scratch) as duck:
        store = lake_of(tmp_path, parts)
        for start in (0, SEGMENT_ROWS):
            numbers = range(start, start + SEGMENT_ROWS)
            await parts.online.put([change(n, as_of=after(n // 2)) for n in numbers])
            await store.maintain()
        points = [Point("u1", after(second)) for second in (-1, 0, 2, 3, 40)]
        ours = await store.as_of(["clicks"], points)
        table = store.tables["history"].load()
        for name in ("avro", "iceberg"):
            load_extension(duck, name)
        scan = f"iceberg_scan({text(table.metadata_location)}"
        duck.run(f"CREATE VIEW history AS SELECT * FROM {scan})")
        duck.run("CREATE TABLE spine (entity_id VARCHAR, moment TIMESTAMPTZ)")
        duck.connection.executemany(
            "INSERT INTO spine VALUES (?, ?)", [(p.entity_id, p.at) for p in points]
        )
        rows = duck.run(f"{documented_query()} ORDER BY moment").fetchall()
        values = [value for *_, value in rows]
        assert values == [None if past is None else int(past.value) for (past,) in ours]
        read = sorted(duck.run("SELECT seq, feature, entity_id, value_int FROM history").fetchall())
        known = await store.query("SELECT feature, entity_id, value_int FROM feature_history", {})
        assert [row[1:] for row in read] == sorted(known.rows, key=lambda row: row[2])
        first = table.snapshots()[0]
        earlier = f"SELECT count(*) FROM {scan}, snapshot_from_id = {first.snapshot_id})"
        assert duck.run(earlier).fetchall() == [(SEGMENT_ROWS,)]


async def test_bounds_in_manifests_have_no_values_of_persons(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
        numbers = range(SEGMENT_ROWS)
        await parts.online.put(
            [change(f"a text {n}", kind="text", as_of=after(n)) for n in numbers]
        )
        await store.maintain()
        table = store.tables["history"].load()
        assert table.properties["write.metadata.metrics.default"] == "none"
        bounded = {
            table.schema().find_field(name).field_id
            for name in ("seq", "bucket", "as_of", "written_at")
        }
        entries = [
            entry["data_file"]
            for file in (tmp_path / "lake" / "history" / "metadata").glob("*.avro")
            if not file.name.startswith("snap-")
            for entry in unpacked(file)
        ]
        assert entries
        for entry in entries:
            for bounds in (entry["lower_bounds"], entry["upper_bounds"]):
                assert bounds.keys() == bounded
                # Eight bytes of a number or time; four of a bucket.
                assert {len(value) for value in bounds.values()} <= {4, 8}
        assert holding(tmp_path / "lake", "a text 3")  # in the data alone
        assert holding(tmp_path / "lake" / "history" / "metadata", "a text 3") == []
