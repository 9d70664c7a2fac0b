"""Answers each line on stdin with how many searches a second Feast makes over pgvector."""
# mypy: disable-error-code="import-not-found, import-untyped"

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig, ValueType
from feast.types import Array, Float32, String

VIEW = "chunks"
TOP_K = 10
AT_ONCE = 1_000


def opened_store(folder: Path, postgres: str) -> FeatureStore:
    server = urlsplit(postgres)
    return FeatureStore(
        config=RepoConfig(
            project="bench",
            provider="local",
            registry=str(folder / "registry.db"),
            online_store={
                "type": "postgres",
                "host": server.hostname,
                "port": server.port,
                "database": server.path.lstrip("/"),
                "user": server.username,
                "password": server.password,
                "sslmode": "disable",
                "vector_enabled": True,
            },
            offline_store={"type": "duckdb"},
            entity_key_serialization_version=3,
        )
    )


def fill(store: FeatureStore, folder: Path) -> None:
    """Declare the chunks and write them, online in Postgres."""
    vectors = np.load(folder / "vectors.npy")
    texts = (folder / "texts.txt").read_text().split("\n")
    rows = pandas.DataFrame(
        {
            "chunk_id": [f"c{number}" for number in range(len(texts))],
            "vector": list(vectors),
            "text": texts,
            "event_timestamp": [datetime.now(UTC)] * len(texts),
        }
    )
    rows[:1].to_parquet(folder / "rows.parquet")
    chunk = Entity(name="chunk", join_keys=["chunk_id"], value_type=ValueType.STRING)
    fields = [
        Field(
            name="vector", dtype=Array(Float32), vector_index=True, vector_search_metric="cosine"
        ),
        Field(name="text", dtype=String),
    ]
    view = FeatureView(
        name=VIEW,
        entities=[chunk],
        ttl=timedelta(days=1),
        schema=fields,
        source=FileSource(path=str(folder / "rows.parquet"), timestamp_field="event_timestamp"),
    )
    store.apply([chunk, view])
    for start in range(0, len(rows), AT_ONCE):
        store.write_to_online_store(VIEW, rows[start : start + AT_ONCE])


def searches_per_second(store: FeatureStore, queries: list[list[float]], seconds: float) -> float:
    searches, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        found = store.retrieve_online_documents_v2(
            features=[f"{VIEW}:vector", f"{VIEW}:text"],
            query=queries[searches % len(queries)],
            top_k=TOP_K,
            distance_metric="cosine",
        ).to_dict()
        if len(found["text"]) != TOP_K:
            raise RuntimeError(f"Feast has found {len(found['text'])} chunks")
        searches += 1
    return searches / elapsed


def main() -> None:
    folder, postgres, seconds = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    store = opened_store(Path(folder), postgres)
    fill(store, Path(folder))
    queries = np.load(Path(folder) / "queries.npy").tolist()
    for _ in sys.stdin:
        value = searches_per_second(store, queries, float(seconds))
        answers.write(json.dumps({"value": value}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
