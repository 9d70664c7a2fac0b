"""Our searches, indexing and cached retrievals, with vectors that were made before."""

import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from bench import chunks
from bench.case import Effort
from bench.floors import Measuring, Rate
from bench.ours import calls_per_second, one_loop
from bench.paragraphs import paragraphs
from headwater import Chunk, Document, FeatureStore, Index, ServiceEvent, entity, feature, retriever

QUESTION = chunks.query_text(0)

store = FeatureStore()


async def given(texts: list[str]) -> list[chunks.Vectors]:
    return chunks.embedded(texts)


Index(store, "docs", embedder=given, dimensions=chunks.DIMENSIONS)
Index(store, "pages", embedder=given, dimensions=chunks.DIMENSIONS)


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="joined")
async def plan(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["plan"])


@retriever(store, index="docs", top_k=chunks.TOP_K, cache_ttl="1h")
def find_docs(query: str) -> list[Chunk]: ...


async def fill(number: int) -> None:
    documents = [
        Document(f"d{number}", chunks.text(number), chunks.metadata(number))
        for number in range(number)
    ]
    await store.indexes.load("docs", documents)


@contextmanager
def search(where: str, effort: Effort) -> Iterator[Rate]:
    """Searches per second of one index, by vectors."""
    texts = itertools.cycle(map(chunks.query_text, range(chunks.QUERIES)))

    async def search_next() -> None:
        found = await store.search("docs", next(texts), top_k=chunks.TOP_K)
        assert len(found) == chunks.TOP_K

    async def rate() -> float:
        return await calls_per_second(search_next, effort.seconds)

    async def prepare() -> None:
        await fill(chunks.number_of(effort))
        await search_next()

    with one_loop(rate, prepare, store) as measure:
        yield measure


def documents_of(effort: Effort) -> int:
    """Return how many documents a round indexes."""
    return effort.events // 20


@contextmanager
def indexing(where: str, effort: Effort) -> Iterator[Rate]:
    """Documents per second of a bulk load; each has about 2,000 tokens."""
    numbers = itertools.count()

    async def rate() -> float:
        documents = [
            Document(f"d{number}", "\n\n".join(paragraphs()), chunks.metadata(number))
            for number in itertools.islice(numbers, documents_of(effort))
        ]
        start = time.perf_counter()
        await store.indexes.load("pages", documents)
        return len(documents) / (time.perf_counter() - start)

    async def prepare() -> None:
        await rate()

    with one_loop(rate, prepare, store) as measure:
        yield measure


@contextmanager
def cached(where: str, effort: Effort) -> Iterator[Rate]:
    """Microseconds of a retrieval whose results are cached."""

    async def retrieve() -> None:
        assert len(await find_docs(QUESTION)) == chunks.TOP_K

    with _taking(effort, retrieve) as measure:
        yield measure


@contextmanager
def read(where: str, effort: Effort) -> Iterator[Rate]:
    """Microseconds of a read of one feature."""

    async def get() -> None:
        assert await store.get_feature("plan", "u1") == "gold"

    with _taking(effort, get) as measure:
        yield measure


@contextmanager
def _taking(effort: Effort, call: Callable[[], Awaitable[None]]) -> Iterator[Rate]:
    async def prepare() -> None:
        for number in range(effort.of(100, 100, chunks.TOP_K)):
            await store.index("docs", f"d{number}", chunks.text(number), chunks.metadata(number))
        await store.publish("joined", "u1", {"plan": "gold"})
        await store.drain()
        await call()

    async def microseconds() -> float:
        return 1_000_000 / await calls_per_second(call, effort.seconds)

    with one_loop(microseconds, prepare, store) as measure:
        yield measure


MEASURES: dict[str, Measuring] = {
    "search": search,
    "indexing": indexing,
    "cached": cached,
    "read": read,
}
