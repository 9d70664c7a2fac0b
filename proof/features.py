"""The features file of a world: every kind of declaration that an edit may change."""

import os

from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)

store = FeatureStore()
pages = Index(store, "help", embedder="lexical", chunk_tokens=40, overlap=0)


@entity(store)
class Customer:
    customer_id: str


@entity(store, belongs_to={"customer_id": Customer})
class Ticket:
    ticket_id: str


@entity(store)
class Product:
    sku: str


@entity(store)
class Article:
    article_id: str


def money(amount: float) -> float:
    """Round as everything that is money is rounded."""
    return round(amount, 2)


note = store.stored_feature("note", str, entity=Customer, default="none")
language = store.stored_feature("language", str, entity=Customer, default="en")
open_tickets = store.stored_feature("open_tickets", int, entity=Customer, default=0)


@feature(entity=Product, trigger="price_set", default=1.0)
def price(sku: str, event: ServiceEvent) -> float:
    return money(event.payload["price"])


@feature(entity=Customer, trigger=["purchase", "refund"], default=0.0)
async def total_spend(customer_id: str, event: ServiceEvent) -> float:
    sign = -1 if event.event_type == "refund" else 1
    return money((await total_spend.get(customer_id) or 0.0) + sign * event.payload["amount"])


@feature(entity=Customer, trigger="purchase", default=0, freshness="caught_up")
async def orders(customer_id: str, event: ServiceEvent) -> int:
    return (await orders.get(customer_id) or 0) + 1


@feature(entity=Customer, trigger="purchase")
async def skus(customer_id: str, event: ServiceEvent) -> list[str]:
    return sorted({*(await skus.get(customer_id) or []), event.payload["sku"]})


@feature(entity=Customer, trigger="purchase")
async def channels(customer_id: str, event: ServiceEvent) -> dict[str, int]:
    before = await channels.get(customer_id) or {}
    channel = event.payload["channel"]
    return dict(sorted({**before, channel: before.get(channel, 0) + 1}.items()))


@feature(entity=Customer, trigger="purchase")
async def average_order(customer_id: str, event: ServiceEvent) -> float | None:
    count = await orders.get(customer_id)
    return money((await total_spend.get(customer_id) or 0.0) / count) if count else None


@feature(entity=Customer, trigger="purchase", default=0.0)
async def points(customer_id: str, event: ServiceEvent) -> float:
    worth = await price.get(event.payload["sku"]) or 0.0
    return money((await points.get(customer_id) or 0.0) + 10 * worth)


@feature(entity=Customer, trigger="purchase", max_retries=0)
def gift(customer_id: str, event: ServiceEvent) -> str:
    if event.payload["amount"] > 95:
        raise ValueError("no gift is large enough")
    return "mug" if event.payload["amount"] > 50 else "pen"


@feature(entity=Customer, trigger="visit", order="event_time")
def last_page(customer_id: str, event: ServiceEvent) -> str:
    return str(event.payload["page"])


@feature(entity=Customer, trigger="visit", ttl="30m")
def device(customer_id: str, event: ServiceEvent) -> str:
    return str(event.payload["device"])


@feature(entity=Customer, trigger="visit", default=0)
async def unread(customer_id: str, event: ServiceEvent) -> int:
    return (await unread.get(customer_id) or 0) + 1


@feature(
    entity=Customer,
    trigger="purchase",
    window=["1h", "24h"],
    aggregate=["sum", "count", "last(3)"],
)
def bought(customer_id: str, event: ServiceEvent) -> float | None:
    return float(event.payload["amount"])


@feature(entity=Customer, derived=True)
async def tier(customer_id: str) -> str:
    spent = await total_spend.get(customer_id) or 0.0
    return "gold" if spent > 150 and (await orders.get(customer_id) or 0) > 2 else "basic"


@feature(entity=Customer, refresh="6h", materialize=True, default="new")
async def segment(customer_id: str) -> str:
    return "large" if (await total_spend.get(customer_id) or 0.0) > 100 else "small"


summary = store.template_feature(
    "summary", entity=Customer, template="{tier} customer, {orders} orders, {total_spend:.2f} EUR"
)


@feature(entity=Ticket, trigger="ticket_opened")
def subject(ticket_id: str, event: ServiceEvent) -> str:
    return str(event.payload["subject"])


@feature(entity=Ticket, trigger=["ticket_opened", "ticket_closed"])
async def state(ticket_id: str, event: ServiceEvent) -> str:
    is_open = event.event_type == "ticket_opened"
    owner = event.payload["customer_id"]
    await open_tickets.set(owner, (await open_tickets.get(owner) or 0) + (1 if is_open else -1))
    return "open" if is_open else "closed"


@feature(entity=Ticket, trigger="ticket_opened")
async def urgency(ticket_id: str, event: ServiceEvent) -> str:
    spent = await total_spend.get(event.payload["customer_id"]) or 0.0
    return "high" if spent > 120 else "low"


@feature(entity=Article, trigger="article_saved")
async def keep_article(article_id: str, event: ServiceEvent) -> None:
    await store.index("help", article_id, event.payload["text"], {"lang": event.payload["lang"]})


search_help = store.index_retriever("search_help", index=pages, top_k=3)


@retriever(store, record=True)
async def search_web(query: str) -> list[str]:
    # Only a world that is lived has a web; an evaluation has what was recorded of it.
    return [f"{os.environ['PROOF_WEB']} has {len(query)} pages about it."]


@context(store, max_tokens=110, model="gpt-4o")
async def support(customer_id: str, question: str) -> list[ContextItem]:
    found = await search_help(question)
    return [
        ContextItem("You are a support agent.", priority=100, required=True),
        ContextItem.template("The customer: {summary}.", priority=90),
        ContextItem.template("Points: {points:.1f}, tickets: {open_tickets}.", priority=40),
        *(
            ContextItem(chunk.text, priority=60 - rank, source=chunk)
            for rank, chunk in enumerate(found)
        ),
        ContextItem.template("Note: {note}", priority=20),
        ContextItem(f"Question: {question}", required=True),
    ]


@context(store, freshness_sla="2h")
async def profile(customer_id: str) -> list[ContextItem]:
    recent = await bought["last(3)", "24h"].get(customer_id) or []
    return [
        ContextItem.template("Average order {average_order:.2f|unknown}.", priority=80),
        ContextItem.template("Bought {skus|nothing} through {channels|no channel}."),
        ContextItem.template("In the last hour {bought_sum_1h}, day {bought_count_24h}."),
        ContextItem(f"Amounts: {', '.join(map(str, recent))}"),
        ContextItem.template("Gift: {gift|none}, on {device|an unknown device}, {language}"),
    ]


@context(store, freshness_sla="10m", freshness_strict=True)
async def urgent(customer_id: str) -> list[ContextItem]:
    return [ContextItem.template("{orders} orders so far.")]


@context(store)
async def ticket(ticket_id: str, customer_id: str) -> list[ContextItem]:
    inner = await profile(customer_id)
    owner = await store.get_feature("ticket_customer_id", ticket_id)
    return [
        ContextItem.template("{subject|no subject}: {state|unknown}, {urgency|no urgency}"),
        ContextItem(f"It belongs to {owner}."),
        ContextItem(inner.content, priority=5, source=inner),
    ]


@context(store, max_tokens=70, model="gpt-4o-mini")
async def chat(customer_id: str, question: str) -> list[ContextItem]:
    return [
        ContextItem("You are a kind shop.", role="system", required=True),
        ContextItem.template("Segment {segment}, tier {tier}.", role="system", priority=50),
        ContextItem.template("They were on {last_page|no page}.", role="system", priority=30),
        ContextItem(
            "Earlier: " + "we spoke of parcels and refunds. " * 3, role="user", priority=10
        ),
        *(ContextItem(page.text, role="user", priority=15) for page in await search_web(question)),
        ContextItem(question, role="user", required=True),
    ]
