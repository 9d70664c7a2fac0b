"""Models of dbt and SQLMesh, as their page has them, are sources of features."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from engines.downloads import ROOT, environment
from headwater import FeatureStore
from headwater.model.values import FeatureValue
from headwater.settings.schema import Settings

_SQL = re.compile(r"```sql\n(.*?)```", re.DOTALL)
SPEND, SPEND_PAST, MESH_SPEND = _SQL.findall((ROOT / "docs" / "how-to" / "dbt.md").read_text())
ORDERS = """user_id,amount,ordered_at
ada,24.5,2026-03-01T09:00:00Z
grace,99.0,2026-03-02T10:00:00Z
ada,12.0,2026-03-05T11:00:00Z
"""
LATER = "ada,3.5,2026-03-06T08:00:00Z\n"
_DBT = "name: shop\nprofile: shop\n"
_PROFILES = "shop: {{target: dev, outputs: {{dev: {output}}}}}\n"
_MESH = """
gateways:
  local:
    connection: {type: duckdb, database: warehouse.duckdb}
    state_connection: {type: duckdb, database: state.duckdb}
default_gateway: local
model_defaults: {dialect: duckdb, start: 2026-03-01}
"""
_MESH_ORDERS = """
MODEL (
  name shop.orders,
  kind SEED (path '../seeds/orders.csv'),
  columns (user_id TEXT, amount DOUBLE, ordered_at TIMESTAMPTZ)
);
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a project; return its folder."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder


def run(project: Path, program: str, *arguments: str, **variables: str) -> None:
    """Run a command of a tool in the folder of its project."""
    command = (str(environment("producers").with_name(program)), *arguments)
    variables = {"DO_NOT_TRACK": "1", "SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "1"} | variables
    ran = subprocess.run(
        command,
        cwd=project,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def dbt(folder: Path, output: str, spend: str = SPEND) -> Path:
    """Write the page's project of dbt, with the connection of a profile."""
    return write(
        folder,
        {
            "dbt_project.yml": _DBT,
            "profiles.yml": _PROFILES.format(output=output),
            "seeds/orders.csv": ORDERS,
            "models/spend.sql": spend,
            "models/spend_past.sql": SPEND_PAST,
        },
    )


def declare(store: FeatureStore) -> None:
    @store.entity
    class User:
        user_id: str

    @store.feature(
        User,
        refresh="1h",
        materialize=True,
        sql="SELECT user_id, spent AS value, ordered_at AS timestamp FROM spend",
    )
    def spent(user_id: str) -> float: ...  # type: ignore[empty-body]


async def read(store: FeatureStore) -> list[FeatureValue]:
    """Refresh the feature; return the values of ada and grace."""
    await store.admin.refresh("spent")
    await store.drain()
    rows = await store.get_feature_values(["spent"], ["ada", "grace"])
    return [row["spent"] for row in rows]


def check(values: list[FeatureValue], ada: float, day: int, hour: int) -> None:
    of_ada, of_grace = values
    assert (of_ada.value, of_grace.value) == (ada, 99.0)
    assert of_ada.as_of == datetime(2026, 3, day, hour, tzinfo=UTC)


@pytest.fixture
def store(home: Path) -> FeatureStore:
    return FeatureStore(home=home)


async def test_a_file_that_dbt_writes_is_served_and_its_past_imported(
    store: FeatureStore, tmp_path: Path
) -> None:
    project, file = tmp_path / "project", tmp_path / "spend.parquet"
    dbt(project, "{type: duckdb, path: warehouse.duckdb}")
    store.source("spend", file)
    declare(store)
    run(project, "dbt", "build", SPEND=str(file))
    check(await read(store), 36.5, 5, 11)
    sql = 'SELECT user_id, spent, ordered_at AS "timestamp" FROM spend_past'
    past = project / "warehouse.duckdb"
    # Two of the three are those that the refresh has stored.
    assert (await store.history.import_query(sql, ["spent"], location=past)).values == 3
    rows = [{"user_id": "ada", "timestamp": datetime(2026, 3, 4, tzinfo=UTC)}]
    (row,) = await store.get_historical_features(rows, ["spent"])
    assert row["spent"] == 24.5
    write(project, {"seeds/orders.csv": ORDERS + LATER})
    run(project, "dbt", "build", SPEND=str(file))
    check(await read(store), 40.0, 6, 8)
    await store.close()


@pytest.mark.parametrize("kind", ["table", "view"])
async def test_a_table_or_a_view_of_dbt_in_a_duckdb_file_is_served(
    store: FeatureStore, tmp_path: Path, kind: str
) -> None:
    config, _, query = SPEND.partition("\n")
    assert "external" in config
    spend = f"{{{{ config(materialized='{kind}') }}}}\n{query}"
    project = dbt(tmp_path, "{type: duckdb, path: warehouse.duckdb}", spend)
    store.source("spend", project / "warehouse.duckdb")
    declare(store)
    run(project, "dbt", "build")
    check(await read(store), 36.5, 5, 11)
    await store.close()


async def test_a_view_of_sqlmesh_is_served_also_after_it_was_switched(
    store: FeatureStore, tmp_path: Path
) -> None:
    files = {"seeds/orders.csv": ORDERS, "models/orders.sql": _MESH_ORDERS}
    write(tmp_path, {"config.yaml": _MESH, "models/spend.sql": MESH_SPEND, **files})
    store.source("spend", tmp_path / "warehouse.duckdb")
    declare(store)
    plan = ("sqlmesh", "plan", "--auto-apply", "--no-prompts")
    run(tmp_path, *plan)
    check(await read(store), 36.5, 5, 11)
    write(tmp_path, {"seeds/orders.csv": ORDERS + LATER})
    run(tmp_path, *plan)
    check(await read(store), 40.0, 6, 8)
    await store.close()


async def test_a_table_of_dbt_in_the_postgres_of_the_store_is_served_and_replaced(
    production: Settings, tmp_path: Path
) -> None:
    store = FeatureStore(settings=production)
    declare(store)
    server = urlsplit(production.postgres.url)
    output = (
        f"{{type: postgres, host: {server.hostname}, port: {server.port}, user: {server.username},"
        f" password: {server.password or 'none'}, dbname: {server.path[1:]}, schema: public}}"
    )
    project = dbt(tmp_path, output, SPEND.replace("external", "table"))
    database = await asyncpg.connect(production.postgres.url)
    try:
        run(project, "dbt", "build", SPEND="")
        check(await read(store), 36.5, 5, 11)
        await database.execute("CREATE VIEW public.spend_view AS SELECT * FROM public.spend")
        write(project, {"seeds/orders.csv": ORDERS + LATER})
        run(project, "dbt", "build", SPEND="")
        check(await read(store), 40.0, 6, 8)
        # Hence no view of one's own over a model.
        assert await database.fetchval("SELECT to_regclass('public.spend_view')") is None
    finally:
        await store.close()
        await database.execute("DROP TABLE IF EXISTS spend, spend_past, orders CASCADE")
        await database.close()
