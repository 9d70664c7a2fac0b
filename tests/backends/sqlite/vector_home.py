"""An index of documents in an embedded home, for tests of internals."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from conformance.documents import SPEC, document
from headwater.backends.sqlite.environment import SqliteEnvironment
from headwater.core.clock import Clock, SystemClock
from headwater.ports import DocumentWrite, VectorIndex
from headwater.settings.schema import Settings

Vector = tuple[float, ...]


@asynccontextmanager
async def opened(home: Path, clock: Clock | None = None) -> AsyncIterator[SqliteEnvironment]:
    """Open a home as a process does, and create the index."""
    environment = SqliteEnvironment(Settings().replace(home=home), clock or SystemClock())
    try:
        await environment.vectors.create("docs", SPEC)
        yield environment
    finally:
        await environment.close()


def random_documents(
    seed: int, count: int, *, first: int = 0, word: str = "text"
) -> list[DocumentWrite]:
    """Return documents with one chunk each, in random directions."""
    rng = random.Random(seed)
    return [
        document(f"d{n}", f"{word} {n}", vectors=[vector(rng)], metadata={"n": n})
        for n in range(first, first + count)
    ]


def vector(rng: random.Random) -> Vector:
    return tuple(rng.uniform(-1, 1) for _ in range(SPEC.dimensions))


def block_files(home: Path) -> list[Path]:
    """Return the files of blocks, in the order of their chunks."""
    return sorted((home / "vectors").iterdir(), key=lambda file: int(file.name.split("-")[1]))


async def answers(vectors: VectorIndex, queries: Sequence[msgspec.Struct]) -> list[object]:
    """Return the hits of searches."""
    return [(await vectors.nearest(query)).hits for query in queries]  # type: ignore[arg-type]
