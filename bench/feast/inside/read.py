"""Answers each line on stdin with how many times a second Feast reads entities of ten features."""
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Float64

ENTITIES = 1_000
NAMES = [f"f{n}" for n in range(10)]
VIEW = "stats"


def filled_store(folder: Path, redis: str) -> FeatureStore:
    """A store with the same entities and features as ours, online in Redis."""
    store = FeatureStore(
        config=RepoConfig(
            project="bench",
            provider="local",
            registry=str(folder / "registry.db"),
            online_store={"type": "redis", "connection_string": redis},
            offline_store={"type": "duckdb"},
            entity_key_serialization_version=3,
        )
    )
    now = datetime.now(UTC)
    rows = pandas.DataFrame(
        {
            "user_id": [f"u{number}" for number in range(ENTITIES)],
            **{name: [1.5] * ENTITIES for name in NAMES},
            "event_timestamp": [now] * ENTITIES,
        }
    )
    rows.to_parquet(folder / "rows.parquet")
    user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.STRING)
    view = FeatureView(
        name=VIEW,
        entities=[user],
        ttl=timedelta(days=1),
        schema=[Field(name=name, dtype=Float64) for name in NAMES],
        source=FileSource(path=str(folder / "rows.parquet"), timestamp_field="event_timestamp"),
    )
    store.apply([user, view])
    store.write_to_online_store(VIEW, rows)
    return store


def calls_per_second(store: FeatureStore, ids: int, seconds: float) -> float:
    features = [f"{VIEW}:{name}" for name in NAMES]
    wanted = [{"user_id": f"u{number}"} for number in range(ids)]
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        values = store.get_online_features(features=features, entity_rows=wanted).to_dict()
        if values[NAMES[-1]] != [1.5] * ids:
            raise RuntimeError(f"Feast has read {values[NAMES[-1]]}")
        calls += 1
    return calls / elapsed


def main() -> None:
    folder, redis, ids, seconds = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    store = filled_store(Path(folder), redis)
    for _ in sys.stdin:
        value = calls_per_second(store, int(ids), float(seconds))
        answers.write(json.dumps({"value": value}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
