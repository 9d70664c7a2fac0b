"""The features file whose operations are counted: ten features, an index, one context."""

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)

NAMES = [f"f{number}" for number in range(10)]
PARAGRAPHS = [f"{number}. A parcel is at the door on the third day. " * 8 for number in range(10)]
DIMENSIONS = 8

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])


def _declare(number: int) -> None:
    @feature(entity=User, trigger="profile", name=NAMES[number])
    async def numbered(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["base"]) + number


for _number in range(len(NAMES)):
    _declare(_number)


async def embed(texts: list[str]) -> list[list[float]]:
    return [[1.0, *(float(len(text) % n) for n in range(2, DIMENSIONS + 1))] for text in texts]


Index(store, "docs", embedder=embed, dimensions=DIMENSIONS)


@retriever(store, index="docs", top_k=3, cache_ttl="1h")
def find_docs(query: str) -> list[Chunk]: ...


@context(store, max_tokens=4_000, freshness_sla="1h", model="gpt-4o")
async def support(user_id: str, question: str) -> list[ContextItem]:
    values = await store.get_features(NAMES, [user_id])
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem(f"About the customer: {values[user_id]}", priority=90),
        *(ContextItem(text, priority=50) for text in PARAGRAPHS),
    ]
