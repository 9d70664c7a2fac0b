"""Answers each line on stdin with the CPU seconds that Feast takes for a frame of past values."""
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import duckdb
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Bool, Float64, Int64, String

KINDS = [("int", Int64), ("float", Float64), ("text", String), ("bool", Bool)]


def store_of(folder: Path, work: Path, features: int) -> FeatureStore:
    """A store with a view of each feature, because they change at different times."""
    user = Entity(name="user", join_keys=["entity_id"], value_type=ValueType.STRING)
    views = []
    for number in range(features):
        kind, dtype = KINDS[number % len(KINDS)]
        name, file = f"f{number}", work / f"f{number}.parquet"
        duckdb.sql(
            f"COPY (SELECT entity_id, as_of AS event_timestamp, written_at AS created,"
            f" value_{kind} AS {name} FROM read_parquet('{folder / 'history-*.parquet'}')"
            f" WHERE feature = '{name}') TO '{file}'"
        )
        source = FileSource(
            path=str(file), timestamp_field="event_timestamp", created_timestamp_column="created"
        )
        schema = [Field(name=name, dtype=dtype)]
        views.append(
            FeatureView(
                name=f"v{number}",
                entities=[user],
                ttl=timedelta(days=3650),
                schema=schema,
                source=source,
            )
        )
    store = FeatureStore(
        config=RepoConfig(
            project="bench",
            provider="local",
            registry=str(work / "registry.db"),
            online_store={"type": "sqlite", "path": str(work / "online.db")},
            offline_store={"type": "duckdb"},
            entity_key_serialization_version=3,
        )
    )
    store.apply([user, *views])
    return store


def main() -> None:
    folder, work, features = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    store = store_of(Path(folder), Path(work), int(features))
    points = duckdb.sql(
        'SELECT entity_id, make_timestamptz("at") AS event_timestamp'
        f" FROM read_parquet('{Path(folder) / 'points.parquet'}')"
    ).df()
    names = [f"v{number}:f{number}" for number in range(int(features))]
    for _ in sys.stdin:
        began = time.process_time()
        found = store.get_historical_features(entity_df=points, features=names).to_arrow()
        value = time.process_time() - began
        if len(found) != len(points):
            raise RuntimeError(f"Feast has returned {len(found)} rows of {len(points)}")
        answers.write(json.dumps({"value": value}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
