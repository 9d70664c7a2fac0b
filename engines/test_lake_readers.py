"""Other engines give the rows of our own reader of a lake.

Each has an environment of its own: Iceberg's jar is for Spark 4.1, and does not load in the later
one that runs our tasks; Daft needs an earlier pyiceberg.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from engines.downloads import ROOT, environment, jars
from headwater.ports import Point
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
from tests.backends.lake.test_engines import documented_query

# By the file with the table's metadata, as an engine does that has no access to the catalog.
_SPARK = """
import json, sys
from datetime import datetime, timezone
from pyspark.sql import SparkSession

query, jar, metadata, snapshot, spine = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jar)
    .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
history = spark.read.format("iceberg").load(metadata)
history.createOrReplaceTempView("history")
earlier = spark.read.format("iceberg").option("versionAsOf", snapshot).load(metadata)
rows = [(id, datetime.fromtimestamp(at, timezone.utc)) for id, at in spine]
spark.createDataFrame(rows, "entity_id string, moment timestamp").createOrReplaceTempView("spine")
answers = [[id, at.timestamp(), value] for id, at, value in spark.sql(query).collect()]
values = [[row[0], row[1]] for row in history.select("entity_id", "value_int").collect()]
print(json.dumps({"answers": answers, "values": values, "earlier": earlier.count()}))
"""

_DAFT = """
import json, sys
from datetime import datetime, timezone
import daft
from pyiceberg.table import StaticTable

query, metadata, snapshot, spine = json.load(sys.stdin)
table = StaticTable.from_metadata(metadata)
history = daft.read_iceberg(table)
earlier = daft.read_iceberg(table, snapshot_id=snapshot)
ids, moments = zip(*((id, datetime.fromtimestamp(at, timezone.utc)) for id, at in spine))
rows = daft.from_pydict({"entity_id": list(ids), "moment": list(moments)})
answered = daft.sql(query, history=history, spine=rows).to_pylist()
answers = [[row["entity_id"], row["moment"].timestamp(), row["value_int"]] for row in answered]
values = [[row["entity_id"], row["value_int"]] for row in history.to_pylist()]
print(json.dumps({"answers": answers, "values": values, "earlier": earlier.count_rows()}))
"""


def answer_of(name: str, program: str, *given: Any) -> dict[str, Any]:
    """Return what a program prints that reads a lake in an environment."""
    python = str(environment(name))
    ran = subprocess.run(
        [python, "-c", program],
        input=json.dumps(given),
        env=os.environ | {"PYSPARK_PYTHON": python, "DAFT_ANALYTICS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return printed


async def compare(folder: Path, read: Callable[..., dict[str, Any]]) -> None:
    """Compare what an engine reads from the metadata of a table with our own answers."""
    with embedded(folder / "home", SEGMENT_ROWS) as parts:
        store = lake_of(folder, parts)
        # Values of one moment, and a late one, which was written last and wins among its own.
        numbers = [*range(4 * SEGMENT_ROWS - 2), 5, 5]
        changes = [change(n, entity_id=f"u{n % 3}", as_of=after(n // 2)) for n in numbers]
        await parts.online.put(changes[:SEGMENT_ROWS])
        await store.compact()
        [before, _] = await store.status()
        await parts.online.put(changes[SEGMENT_ROWS:])
        await store.compact()
        points = [Point(f"u{n % 4}", after(at)) for n in range(4) for at in (-1, 0, 2, 3, 40)]
        grid = await store.as_of(["clicks"], points)
        ours = [None if past is None else int(past.value) for (past,) in grid]
        all_values = await store.query("SELECT entity_id, value_int FROM feature_history", {})
        answered = read(
            store.tables["history"].load().metadata_location,
            before.snapshot_id,
            [(point.entity_id, point.at.timestamp()) for point in points],
        )
        expected = [
            [point.entity_id, point.at.timestamp(), value]
            for point, value in zip(points, ours, strict=True)
        ]
        assert sorted(answered["answers"], key=repr) == sorted(expected, key=repr)
        assert sorted(answered["values"]) == sorted(map(list, all_values.rows))
        assert answered["earlier"] == SEGMENT_ROWS


async def test_spark_gives_our_rows_and_runs_the_documented_query(tmp_path: Path) -> None:
    [jar] = jars("iceberg-spark")
    await compare(
        tmp_path, partial(answer_of, "iceberg-spark", _SPARK, documented_query(), str(jar))
    )


async def test_daft_gives_our_rows_and_runs_its_documented_query(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "lake.md").read_text()
    query = page.partition("```sql\n")[2].partition("```")[0]
    await compare(tmp_path, partial(answer_of, "daft", _DAFT, query))
