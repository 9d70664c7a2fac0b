"""Answers each line on stdin with how many searches a second a LangChain retriever makes."""
# mypy: disable-error-code="import-not-found, import-untyped"

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_postgres import PGEngine, PGVectorStore
from langchain_postgres.v2.indexes import DistanceStrategy, HNSWIndex

TABLE = "langchain_chunks"
TOP_K = 10
AT_ONCE = 1_000


class Given(Embeddings):
    """Vectors that were made before: an embedder that does nothing."""

    def __init__(self, folder: Path) -> None:
        texts = (folder / "texts.txt").read_text().split("\n")
        self._chunks = dict(zip(texts, np.load(folder / "vectors.npy").tolist(), strict=True))
        self._queries = np.load(folder / "queries.npy").tolist()
        self.texts = texts
        self.queries = [str(number) for number in range(len(self._queries))]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._chunks[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._queries[int(text)]  # type: ignore[no-any-return]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


async def in_memory(given: Given) -> VectorStore:
    return InMemoryVectorStore(given)


async def in_postgres(given: Given, url: str) -> VectorStore:
    engine = PGEngine.from_connection_string(url.replace("postgresql://", "postgresql+asyncpg://"))
    size = len(given.embed_query("0"))
    await engine.ainit_vectorstore_table(TABLE, size, overwrite_existing=True)
    store: VectorStore = await PGVectorStore.create(
        engine, given, TABLE, distance_strategy=DistanceStrategy.COSINE_DISTANCE
    )
    return store


async def filled(given: Given, url: str) -> VectorStore:
    """Return a store with all chunks; without a URL it is in memory."""
    store = await (in_postgres(given, url) if url else in_memory(given))
    for start in range(0, len(given.texts), AT_ONCE):
        texts = given.texts[start : start + AT_ONCE]
        await store.aadd_documents([Document(text, metadata={"lang": "en"}) for text in texts])
    if isinstance(store, PGVectorStore):
        await store.aapply_vector_index(
            HNSWIndex(distance_strategy=DistanceStrategy.COSINE_DISTANCE)
        )
    return store


async def searches_per_second(retriever: Any, given: Given, seconds: float) -> float:
    searches, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        found = await retriever.ainvoke(given.queries[searches % len(given.queries)])
        if len(found) != TOP_K:
            raise RuntimeError(f"LangChain has found {len(found)} chunks")
        searches += 1
    return searches / elapsed


def main() -> None:
    folder, url, seconds = sys.argv[1:]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    given = Given(Path(folder))
    with asyncio.Runner() as runner:
        store = runner.run(filled(given, url))
        retriever = store.as_retriever(search_kwargs={"k": TOP_K})
        for _ in sys.stdin:
            value = runner.run(searches_per_second(retriever, given, float(seconds)))
            answers.write(json.dumps({"value": value}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
