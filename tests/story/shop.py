"""A shop's features file, as a user would write it."""

from __future__ import annotations

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

EUROS = {"EUR": 1.0, "USD": 0.5}


@entity(store)
class Customer:
    customer_id: str


@feature(entity=Customer, trigger=["purchase", "refund"])
async def total_spend(customer_id: str, event: ServiceEvent) -> float:
    """The customer's total, updated by every purchase and refund."""
    before = await store.get_feature("total_spend", customer_id) or 0.0
    euros = event.payload["amount"] * EUROS[event.payload.get("currency", "EUR")]
    return float(before + euros if event.event_type == "purchase" else before - euros)


@feature(entity=Customer)
def name(customer_id: str) -> str:
    """Computed when somebody asks."""
    return customer_id.title()


@feature(entity=Customer, template="{name} has spent {total_spend} €")
def blurb(customer_id: str) -> str: ...  # type: ignore[empty-body]


@feature(entity=Customer, refresh="1h", materialize=True)
async def tier(customer_id: str) -> str:
    """Recomputed every hour for every customer."""
    spent = await store.get_feature("total_spend", customer_id) or 0.0
    return "gold" if spent >= 100 else "silver"


@feature(
    entity=Customer,
    refresh="1h",
    materialize=True,
    sql="""SELECT entity_id AS customer_id, max(value_float) AS value
           FROM feature_history WHERE feature = 'total_spend' GROUP BY entity_id""",
)
def most_ever(customer_id: str) -> float: ...  # type: ignore[empty-body]
