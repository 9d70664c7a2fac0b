"""What a started server serves: the features and contexts of other rows, and a small index."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench import chunks
from bench.case import Effort
from bench.contexts import support
from bench.features import store
from bench.floors import Measuring, Rate
from bench.ours import one_loop, profile, publish_all, purchase
from headwater import Document, Index

DOCUMENTS = 100

Index(store, "docs", embedder="lexical")


@contextmanager
def seeded(where: str, effort: Effort) -> Iterator[Rate]:
    """Fill a store with what the first requests ask for; return the number of documents."""

    async def fill() -> float:
        await publish_all([profile(0), purchase(0)])
        documents = [Document(f"d{number}", chunks.text(number)) for number in range(DOCUMENTS)]
        await store.indexes.load("docs", documents)
        await store.drain()
        await support("u0", "Where is my parcel?")
        return DOCUMENTS

    with one_loop(fill) as measure:
        yield measure


MEASURES: dict[str, Measuring] = {"seeded": seeded}
