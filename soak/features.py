"""The features file of the soak: stored and computed features, an index and a context."""

import hashlib

from headwater import ContextItem, FeatureStore, Index, ServiceEvent, context, entity, feature

DIMENSIONS = 32

store = FeatureStore()


async def digests(texts: list[str]) -> list[list[float]]:
    """Embed texts as bytes of their digests: equal for equal texts, and cheap."""
    return [[byte - 127.5 for byte in hashlib.sha256(text.encode()).digest()] for text in texts]


Index(store, "articles", embedder=digests, dimensions=DIMENSIONS)


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="purchase")
async def total_spend(user_id: str, event: ServiceEvent) -> float:
    before: float = await store.get_feature("total_spend", user_id) or 0.0
    return before + float(event.payload["amount"])


@feature(entity=User, trigger="purchase")
def last_amount(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["amount"])


@feature(entity=User)
async def tier(user_id: str) -> str:
    spent: float = await store.get_feature("total_spend", user_id) or 0.0
    return "gold" if spent > 1_000 else "basic"


@context(store, max_tokens=500, freshness_sla="1h")
async def support(user_id: str, question: str) -> list[ContextItem]:
    values = await store.get_features(["total_spend", "tier"], [user_id])
    found = await store.search("articles", question, top_k=3)
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem(f"About the customer: {values[user_id]}", priority=90),
        *(ContextItem(chunk.text, priority=50) for chunk in found),
    ]
