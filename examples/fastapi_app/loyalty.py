"""What the shop knows about a customer, and what a model is told about them."""

from typing import Annotated

from msgspec import Meta

from headwater import ContextItem, Event, FeatureStore, context, entity, event, feature

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


@event(store, "purchase")
class Purchase:
    """Checked when it is published; a route takes it as its body, too."""

    product: str
    amount: Annotated[float, Meta(gt=0)]


@feature(entity=Customer, trigger="purchase", default=0, freshness="caught_up")
async def points(customer_id: str, event: Event[Purchase]) -> int:
    """A point for each euro, and a hundred for an order of 200 or more."""
    amount = event.payload.amount
    return (await points.get(customer_id) or 0) + int(amount) + (100 if amount >= 200 else 0)


@feature(entity=Customer, trigger="purchase", default="nothing yet", freshness="caught_up")
def last_product(customer_id: str, event: Event[Purchase]) -> str:
    return event.payload.product


@context(store, max_tokens=200, freshness_sla="1m", model="gpt-4o-mini")
async def advice(customer_id: str, question: str) -> list[ContextItem]:
    """What a model is given to answer a customer."""
    rules = "You answer customers of a shop. A voucher of 10 EUR costs 200 points."
    return [
        ContextItem(rules, role="system", required=True),
        ContextItem.template(
            "The customer has {points} points and last bought: {last_product}.",
            role="system",
            priority=80,
        ),
        ContextItem(question, role="user", required=True),
    ]
