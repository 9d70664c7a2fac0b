"""Spark, with Iceberg's own jar, gives the rows of our own reader of a lake.

The jar is for Spark 4.1, and does not load in the later one that runs our tasks.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from engines.downloads import environment, jars
from headwater.ports import Point
from tests.backends.duckdb.embedded import after, change, embedded
from tests.backends.lake.lakes import SEGMENT_ROWS, lake_of
from tests.backends.lake.test_engines import documented_query

# By the file with the table's metadata, as an engine does that has no access to the catalog.
_SPARK = """
import json, sys
from datetime import datetime, timezone
from pyspark.sql import SparkSession

metadata, snapshot, jar, query, spine = json.load(sys.stdin)
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


def spark(*given: Any) -> dict[str, Any]:
    """Return what the program prints that reads a lake by Spark."""
    python = str(environment("iceberg-spark"))
    ran = subprocess.run(
        [python, "-c", _SPARK],
        input=json.dumps(given),
        env=os.environ | {"PYSPARK_PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return printed


async def test_spark_gives_our_rows_and_runs_the_documented_query(tmp_path: Path) -> None:
    with embedded(tmp_path / "home", SEGMENT_ROWS) as parts:
        store = lake_of(tmp_path, parts)
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
        [jar] = jars("iceberg-spark")
        answered = spark(
            store.tables["history"].load().metadata_location,
            before.snapshot_id,
            str(jar),
            documented_query(),
            [(point.entity_id, point.at.timestamp()) for point in points],
        )
        expected = [
            [point.entity_id, point.at.timestamp(), value]
            for point, value in zip(points, ours, strict=True)
        ]
        assert sorted(answered["answers"], key=repr) == sorted(expected, key=repr)
        assert sorted(answered["values"]) == sorted(map(list, all_values.rows))
        assert answered["earlier"] == SEGMENT_ROWS
