"""A context in Fabra's own idiom: three features and about 2,000 tokens."""
# mypy: disable-error-code="import-not-found", allow-untyped-decorators

import logging

import structlog
from fabra.context import ContextItem, context
from fabra.core import FeatureStore, entity, feature

from bench.paragraphs import TOKENS, paragraphs

# As in production: one line for each context costs more than it says.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))

store = FeatureStore()
NAMES = ("f0", "f1", "f2")


@entity(store)
class User:
    user_id: str


@feature(entity=User)
def f0(user_id: str) -> float:
    return 1.5


@feature(entity=User)
def f1(user_id: str) -> float:
    return 2.5


@feature(entity=User)
def f2(user_id: str) -> float:
    return 3.5


@context(store, max_tokens=2 * TOKENS, freshness_sla="1h", model="gpt-4o", cache_ttl=None)
async def support(user_id: str, question: str) -> list[ContextItem]:
    values = await store.get_online_features("User", user_id, list(NAMES))
    return [
        ContextItem(content="You are a support agent.", priority=0, required=True),
        ContextItem(content=f"About the customer: {values}", priority=1),
        *(ContextItem(content=text, priority=5) for text in paragraphs()),
    ]
