"""Fill an index of the embedded store with many chunks; report times and memory of its searches.

Run ``python -m bench.vector_scale --chunks 1000000``. It prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.model.indexes import IndexSpec
from headwater.ports import Compare, DocumentWrite, IndexedChunk, VectorIndex, VectorQuery
from headwater.settings.schema import Settings

_CHUNKS_PER_DOCUMENT = 10
_DOCUMENTS_PER_WRITE = 200
_WORDS = [f"word{number}" for number in range(5_000)]


def unit_vectors(rng: np.random.Generator, rows: int, dimensions: int) -> list[bytes]:
    """Return random embeddings."""
    vectors = rng.standard_normal((rows, dimensions), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [row.tobytes() for row in vectors.astype("<f4")]


def documents(rng: np.random.Generator, first: int, count: int, dimensions: int) -> list[Any]:
    """Return documents with random chunks of ten words."""
    vectors = iter(unit_vectors(rng, count * _CHUNKS_PER_DOCUMENT, dimensions))
    writes = []
    for number in range(first, first + count):
        chunks = []
        for position in range(_CHUNKS_PER_DOCUMENT):
            words = [_WORDS[n] for n in rng.integers(0, len(_WORDS), 10)]
            text = f"{number} {position} {' '.join(words)}"
            digest = hashlib.sha256(text.encode()).hexdigest()
            id_ = f"docs/d{number}#{digest[:16]}"
            hash_ = f"sha256:{digest}"
            chunks.append(IndexedChunk(id_, position, text, hash_, next(vectors), words))
        writes.append(
            DocumentWrite(
                index="docs",
                document=f"d{number}",
                text="\n".join(chunk.text for chunk in chunks),
                metadata={"lang": "en" if number % 2 else "de", "shelf": number % 100},
                generation=1,
                chunks=chunks,
            )
        )
    return writes


def anonymous_mb() -> float:
    """Return the memory of this process that is not backed by files."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1_024


async def fill(vectors: VectorIndex, chunks: int, dimensions: int) -> float:
    """Write all documents; return the seconds that the store took."""
    rng = np.random.default_rng(1)
    seconds = 0.0
    total = chunks // _CHUNKS_PER_DOCUMENT
    for first in range(0, total, _DOCUMENTS_PER_WRITE):
        count = min(_DOCUMENTS_PER_WRITE, total - first)
        writes = documents(rng, first, count, dimensions)
        start = time.perf_counter()
        await vectors.write(writes)
        seconds += time.perf_counter() - start
    return seconds


async def timed(search: Any, queries: list[VectorQuery]) -> float:
    """Return the median of the milliseconds of searches."""
    times = []
    for query in queries:
        start = time.perf_counter()
        await search(query)
        times.append((time.perf_counter() - start) * 1_000)
    return statistics.median(times)


async def measure(home: Path, chunks: int, dimensions: int) -> dict[str, float]:
    """Fill a home unless it is filled, open it again and search."""
    settings = Settings().replace(home=home)
    results: dict[str, float] = {"chunks": chunks, "dimensions": dimensions}
    backends = await connect(settings, SystemClock())
    if await backends.vectors.version("docs") is None:
        spec = IndexSpec(
            embedder="bench/random", dimensions=dimensions, chunk_tokens=400, overlap=0
        )
        await backends.vectors.create("docs", spec)
        results["write_seconds"] = await fill(backends.vectors, chunks, dimensions)
    await backends.lifecycle.close()

    rng = np.random.default_rng(2)
    near = [
        VectorQuery(index="docs", generation=1, limit=10, embedding=vector)
        for vector in unit_vectors(rng, 20, dimensions)
    ]
    words = [
        VectorQuery(index="docs", generation=1, limit=10, terms=[_WORDS[n], _WORDS[n + 1]])
        for n in range(20)
    ]
    half = [
        msgspec.structs.replace(query, filters=Compare("lang", "eq", "en")) for query in near[:5]
    ]
    few = [msgspec.structs.replace(query, filters=Compare("shelf", "eq", 7)) for query in near[:5]]
    for opening in ("first", "again"):
        before = anonymous_mb()
        backends = await connect(settings, SystemClock())
        vectors = backends.vectors
        results[f"{opening}_search_ms"] = await timed(vectors.nearest, near[:1])
        results[f"{opening}_anonymous_mb"] = anonymous_mb() - before
        if opening == "again":
            results["nearest_ms"] = await timed(vectors.nearest, near)
            results["nearest_half_ms"] = await timed(vectors.nearest, half)
            results["nearest_few_ms"] = await timed(vectors.nearest, few)
            results["matching_ms"] = await timed(vectors.matching, words)
            results["searched_anonymous_mb"] = anonymous_mb() - before
            results["process_anonymous_mb"] = anonymous_mb()
        await backends.lifecycle.close()
    return {name: round(value, 1) for name, value in results.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--home", type=Path, help="a home to fill, or to search if it is filled")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = arguments.home or Path(folder)
        results = asyncio.run(measure(home, arguments.chunks, arguments.dimensions))
    sys.stdout.write(msgspec.json.encode(results).decode() + "\n")


if __name__ == "__main__":
    main()
