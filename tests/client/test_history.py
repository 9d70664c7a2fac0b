"""Past values for tables, imports and exports, by a client."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pandas
import polars
import pyarrow
import pytest

from headwater import FeatureStore, create_app
from headwater.client import AsyncClient
from headwater.declarations.feature_handles import Feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError, RequestRefusedError, UnknownNameError
from headwater.settings.schema import Settings
from tests.client.conftest import KEY, Address, MakeClient, shop

MAY = datetime(2026, 5, 1, tzinfo=UTC)
ROWS = [
    {"user_id": "ada", "timestamp": MAY + timedelta(days=2), "label": 1},
    {"user_id": "bob", "timestamp": MAY + timedelta(days=2), "label": 0},
    {"user_id": "ada", "timestamp": MAY - timedelta(days=2), "label": 1},
]


@pytest.fixture
async def filled(store: FeatureStore) -> FeatureStore:
    """A store with a value and an address of one user, as of the first of May."""
    await store.set_feature("total_spend", "ada", 25.0, as_of=MAY)
    await store.set_feature("address", "ada", Address("Rome"), as_of=MAY)
    return store


def _plain(table: Any) -> list[dict[str, Any]]:
    """Return the rows of a table of any kind."""
    if isinstance(table, list):
        return table
    if isinstance(table, pandas.DataFrame):
        table = polars.from_pandas(table)
    if isinstance(table, duckdb.DuckDBPyRelation):
        table = table.pl()
    rows = table.to_pylist() if isinstance(table, pyarrow.Table) else table.to_dicts()
    return list(rows)


@pytest.mark.parametrize(
    "make",
    [list, pandas.DataFrame, polars.DataFrame, pyarrow.Table.from_pylist],
    ids=["dicts", "pandas", "polars", "arrow"],
)
async def test_tables_of_all_kinds_get_the_values_that_the_store_gives(
    client: AsyncClient, filled: FeatureStore, make: Any
) -> None:
    names = ["total_spend", "address"]
    read = await client.get_historical_features(make(ROWS), names, with_as_of=True)
    same = await filled.get_historical_features(make(ROWS), names, with_as_of=True)
    assert type(read) is type(same)
    if make is list:
        assert read[0]["address"] == {"city": "Rome"}
        handles = await client.get_historical_features(ROWS, [_handle(filled, "address")])
        assert handles[0]["address"] == same[0]["address"]
        for row in read, same:
            for each in row:
                each.pop("address")
    assert repr(_plain(read)) == repr(_plain(same))
    assert _plain(read)[0]["total_spend"] == 25.0


def _handle(store: FeatureStore, name: str) -> Any:
    return Feature(store, runtime_of(store).registry.feature(name))


async def test_files_and_relations_get_a_column_for_each_feature(
    client: AsyncClient, filled: FeatureStore, tmp_path: Path
) -> None:
    polars.DataFrame(ROWS).write_csv(tmp_path / "rows.csv")
    written = await client.get_historical_features(tmp_path / "rows.csv", ["total_spend"])
    assert written == tmp_path / "rows.features.parquet"
    found = polars.read_parquet(written)
    assert found["total_spend"].to_list() == [25.0, None, None]
    assert found["label"].to_list() == ["1", "0", "1"]  # as CSV has them
    relation = duckdb.sql(f"FROM '{written}'").select("user_id, timestamp")
    read = await client.get_historical_features(relation, ["total_spend"], known=True)
    assert read.columns == ["user_id", "timestamp", "total_spend"]
    assert await client.get_historical_features([], ["total_spend"]) == []


async def test_mistakes_in_a_table_are_named_as_the_store_names_them(
    client: AsyncClient, filled: FeatureStore, connect: MakeClient
) -> None:
    naive = [{"user_id": "ada", "timestamp": datetime(2026, 5, 1)}]  # noqa: DTZ001 - the mistake
    with pytest.raises(InvalidInputError, match="has no time zone"):
        await client.get_historical_features(naive, ["total_spend"])
    with pytest.raises(InvalidInputError, match="no column 'user_id'"):
        await client.get_historical_features([{"user": "ada", "timestamp": MAY}], ["total_spend"])
    with pytest.raises(UnknownNameError, match="did you mean 'total_spend'"):
        await client.get_historical_features(ROWS, ["totl_spend"])
    with pytest.raises(InvalidInputError, match="runs where the store is"):
        await client.get_historical_features("SELECT 1", ["total_spend"])
    with pytest.raises(InvalidInputError, match="exported cannot be sent to a server"):
        await client.get_historical_features(ROWS, ["total_spend"], exported="history")
    with pytest.raises(InvalidInputError, match="export_feast needs the declared features"):
        await client.history.export_feast("feast")


async def test_a_table_is_imported_and_history_exported(
    client: AsyncClient, store: FeatureStore, tmp_path: Path
) -> None:
    table = tmp_path / "spend.csv"
    table.write_text(
        "user_id,timestamp,total_spend\nada,2026-05-01T00:00:00Z,25\nbob,2026-05-02T00:00:00Z,3\n"
    )
    report = await client.history.import_file(table, ["total_spend"])
    assert (report.rows, report.added) == (2, 2)
    assert (await client.history.import_file(table, ["total_spend"])).added == 0
    exported = await client.history.export(tmp_path / "export")
    assert (exported.added, exported.rows) == (2, 2)
    await store.set_feature("total_spend", "cid", 1.0)
    again = await client.history.export(tmp_path / "export")
    assert (again.added, again.rows) == (1, 3)
    read = await store.get_historical_features(
        ROWS[:1], ["total_spend"], exported=tmp_path / "export"
    )
    assert read[0]["total_spend"] == 25.0
    with pytest.raises(InvalidInputError, match="there is no file"):
        await client.history.import_file(tmp_path / "lost.csv", ["total_spend"])
    table.write_text("user_id,timestamp\nada,2026-05-01T00:00:00Z\n")
    with pytest.raises(InvalidInputError) as caught:
        await client.history.import_file(table, ["total_spend"])
    assert "tmp" not in str(caught.value)


async def test_a_client_runs_the_query_of_a_warehouse_and_sends_its_rows(
    client: AsyncClient, store: FeatureStore, postgres_url: str
) -> None:
    sql = "SELECT 'ada' AS user_id, 25.0 AS total_spend, timestamptz '2026-05-01Z' AS timestamp"
    report = await client.history.import_query(sql, ["total_spend"], location=postgres_url)
    assert (report.rows, report.added) == (1, 1)
    read = await store.get_historical_features(ROWS[:1], ["total_spend"])
    assert read[0]["total_spend"] == 25.0


@pytest.mark.parametrize(
    ("setting", "limit"),
    [("max_upload_bytes", 100), ("max_table_rows", 2), ("max_table_columns", 1)],
)
async def test_a_table_beyond_the_limit_names_the_setting(
    tmp_path: Path, setting: str, limit: int
) -> None:
    http = {setting: limit}
    settings = Settings().replace(api_key=KEY, home=str(tmp_path / "home"), http=http)
    async with shop(settings) as store:
        transport = httpx.ASGITransport(create_app(store))
        async with AsyncClient(
            "http://localhost", key=KEY, settings=Settings(), transport=transport
        ) as client:
            with pytest.raises(RequestRefusedError, match=rf"raise http\.{setting}"):
                await client.get_historical_features(ROWS, ["total_spend"])


async def test_imports_exports_and_removals_stand_in_the_log_with_the_name_of_the_key(
    client: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "past.csv").write_text(
        "user_id,timestamp,value\nada,2026-01-01T00:00:00Z,3\n", encoding="utf-8"
    )
    await client.history.import_file(tmp_path / "past.csv", ["total_spend"])
    await client.history.export(tmp_path / "exported")
    await client.unindex("docs", "parcels")
    await client.indexes.retain("docs", ["returns"])
    entries = (await client.audit_log()).entries
    assert {each.actor for each in entries} == {"api_key 1"}
    assert [(each.action, each.target, each.outcome) for each in reversed(entries)] == [
        ("history.import_file", "User", "done"),
        ("history.export", "", "done"),
        ("unindex", "docs", "done"),
        ("indexes.retain", "docs", "done"),
    ]
