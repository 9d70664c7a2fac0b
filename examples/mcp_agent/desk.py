"""What an agent of a refund desk may know: orders, refunds, and a text about a case.

python desk.py           publish some orders and refunds
headwater mcp desk.py    serve it to an agent, by standard input and output
"""

from typing import Annotated

from msgspec import Meta

from headwater import ContextItem, Event, FeatureStore, context, entity, event, feature

Amount = Annotated[float, Meta(gt=0)]

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


@event(store, "ordered")
class Ordered:
    product: str
    amount: Amount


@event(store, "refunded")
class Refunded:
    amount: Amount


@feature(entity=Customer, trigger="ordered", freshness="caught_up")
def last_order(customer_id: str, event: Event[Ordered]) -> str | None:
    """What a customer ordered last."""
    return f"{event.payload.product} for {event.payload.amount:.2f} EUR"


@feature(entity=Customer, trigger="ordered", window="90d", aggregate="sum", freshness="caught_up")
def spent(customer_id: str, event: Event[Ordered]) -> float:
    """What a customer paid."""
    return event.payload.amount


@feature(
    entity=Customer, trigger="refunded", window="90d", aggregate="count", freshness="caught_up"
)
def refunds(customer_id: str, event: Event[Refunded]) -> float:
    """What a customer got back."""
    return event.payload.amount


@context(store, max_tokens=200, freshness_sla="5m")
async def refund_case(customer_id: str, reason: str) -> list[ContextItem]:
    """The facts and the rules of a refund. Call it before you decide about one."""
    return [
        ContextItem("Refund up to what was paid in 90 days. After two refunds, a person decides."),
        ContextItem.template(
            "The last order was {last_order}. In 90 days the customer paid {spent_sum_90d:.2f} EUR"
            " and had {refunds_count_90d} refunds."
        ),
        ContextItem(f"The customer says: {reason}", priority=10),
    ]


PAST: list[tuple[str, str, Ordered | Refunded]] = [
    ("ordered", "ada", Ordered(product="a lamp", amount=60)),
    ("ordered", "bob", Ordered(product="a tent", amount=300)),
    ("refunded", "bob", Refunded(amount=20)),
    ("refunded", "bob", Refunded(amount=35)),
]


def publish_past() -> None:
    """Publish and handle the past; a second time changes nothing."""
    for number, (kind, customer, payload) in enumerate(PAST):
        store.sync.publish(kind, customer, payload, event_id=f"past-{number}")
    store.sync.drain()
    store.sync.close()


if __name__ == "__main__":
    publish_past()
