"""What the copilot of a bank knows: customers, their tickets, a model of risk, and pages.

headwater features list         what is declared here, and when it is computed
headwater features show NAME    one of them, with its next runs
"""

from pathlib import Path

from events import (
    ChatMessage,
    Customer,
    CustomerJoined,
    Deposit,
    Model,
    Payment,
    Ticket,
    TicketClosed,
    TicketOpened,
    store,
)
from risk_model import UNTRAINED, probability, signals

from headwater import ContextItem, Event, Index, context, feature

HERE = Path(__file__).parent
MORNINGS = "cron: 0 6 * * mon-fri Europe/Berlin"
WEEKEND = "75h"

store.source("customers", HERE / "customers.csv")
store.source("standing_orders", HERE / "standing_orders.csv")
store.source("reviews", HERE / "reviews.csv")
pages = Index(store, "pages", embedder="lexical")


@feature(entity=Customer, trigger="customer_joined", owner="onboarding", tags="personal")
def full_name(customer_id: str, event: Event[CustomerJoined]) -> str:
    """The name on the contract."""
    return event.payload.full_name


@feature(
    entity=Customer,
    trigger=["deposit", "payment"],
    default=0.0,
    freshness="caught_up",
    freshness_sla="5m",
    owner="accounts",
    unit="EUR",
)
async def balance(customer_id: str, event: Event[Deposit | Payment]) -> float:
    """The money on the account."""
    amount = event.payload.amount
    change = amount if isinstance(event.payload, Deposit) else -amount
    return round((await balance.get(customer_id) or 0.0) + change, 2)


@feature(
    entity=Customer,
    trigger="payment",
    window=["24h", "30d"],
    aggregate=["sum", "count"],
    owner="accounts",
    unit="EUR",
)
def spending(customer_id: str, event: Event[Payment]) -> float:
    """What the customer pays."""
    return event.payload.amount


@feature(
    entity=Customer,
    trigger="payment",
    window="24h",
    aggregate="distinct",
    owner="fraud",
)
def merchants(customer_id: str, event: Event[Payment]) -> str:
    """Where the customer pays."""
    return event.payload.merchant


@feature(
    entity=Customer,
    trigger="chat_message",
    window="1h",
    aggregate="last(6)",
    owner="copilot",
    tags="personal",
)
def said(customer_id: str, event: Event[ChatMessage]) -> str:
    """The last turns of the conversation."""
    return f"{event.payload.role}: {event.payload.text}"


segment = store.sql_feature(
    "segment",
    str,
    entity=Customer,
    sql="SELECT customer_id, segment AS value FROM customers",
    refresh=MORNINGS,
    materialize=True,
    default="private",
    freshness="caught_up",
    freshness_sla=WEEKEND,
    description="The kind of customer, from the data warehouse.",
    owner="marketing",
)

standing_orders = store.sql_feature(
    "standing_orders",
    float,
    entity=Customer,
    sql="""
        SELECT customer_id, CAST(sum(monthly) AS double precision) AS value
        FROM standing_orders GROUP BY customer_id
    """,
    refresh="1h",
    materialize=True,
    default=0.0,
    freshness="caught_up",
    freshness_sla="3h",
    description="What leaves the account every month.",
    owner="accounts",
    unit="EUR/month",
)

open_tickets = store.stored_feature(
    "open_tickets",
    int,
    entity=Customer,
    default=0,
    description="Tickets that nobody has answered yet.",
    owner="service",
)

language = store.stored_feature(
    "language",
    str,
    entity=Customer,
    default="English",
    description="The language that the customer asked for.",
    owner="service",
    tags="personal",
)

weights = store.stored_feature(
    "weights",
    list[float],
    entity=Model,
    default=UNTRAINED,
    description="Of the model of overdrafts: constant, months that the money lasts, share spent.",
    owner="risk",
)


@feature(entity=Customer, derived=True, owner="risk", tags=["model", "pii-free"])
async def overdraft_risk(customer_id: str) -> float:
    """The probability of an overdraft within 30 days, by the model that `training.py` trains."""
    money = await balance.get(customer_id) or 0.0
    spent = await spending["sum", "30d"].get(customer_id) or 0.0
    fixed = await standing_orders.get(customer_id) or 0.0
    model = await weights.get("overdraft") or UNTRAINED
    return round(float(probability(model, signals(money, spent, fixed))), 3)


@feature(
    entity=Customer,
    refresh=MORNINGS,
    materialize=True,
    default=0,
    freshness="caught_up",
    freshness_sla=WEEKEND,
    owner="risk",
    unit="EUR",
)
async def credit_line(customer_id: str) -> int:
    """What the account may be overdrawn by today."""
    risk = await overdraft_risk.get(customer_id) or 0.0
    limit = 5_000 if await segment.get(customer_id) == "business" else 1_000
    return 0 if risk > 0.5 else 10 * round(limit * (1 - risk) / 10)


profile = store.template_feature(
    "profile",
    entity=Customer,
    template=(
        "{full_name|a customer} ({segment}, speaks {language}) has {balance} EUR, "
        "may overdraw by {credit_line} EUR and has {open_tickets} open tickets."
    ),
    owner="copilot",
)


@feature(entity=Ticket, trigger="ticket_opened", owner="service", tags="personal")
def subject(ticket_id: str, event: Event[TicketOpened]) -> str:
    """What the ticket is about."""
    return event.payload.subject


@feature(entity=Ticket, trigger=["ticket_opened", "ticket_closed"], owner="service")
async def state(ticket_id: str, event: Event[TicketOpened | TicketClosed]) -> str:
    """Whether the ticket is open; the customer's number of open tickets follows it."""
    is_open = isinstance(event.payload, TicketOpened)
    before = await open_tickets.get(event.payload.customer_id) or 0
    await open_tickets.set(event.payload.customer_id, before + (1 if is_open else -1))
    return "open" if is_open else "closed"


ticket_line = store.template_feature(
    "ticket_line", entity=Ticket, template="{subject}: {state}", owner="copilot"
)

search_pages = store.index_retriever("search_pages", index=pages, top_k=3)


@context(store, max_tokens=700, model="gpt-4o-mini")
async def copilot(customer_id: str, question: str) -> list[ContextItem]:
    """What a model is given to answer a customer."""
    rules = "You are the copilot of a bank. Answer from the pages below, briefly and kindly."
    turns = "\n".join(await said["last(6)", "1h"].get(customer_id) or [])
    return [
        ContextItem(rules, required=True, role="system"),
        ContextItem.template("{profile}", priority=90, role="system"),
        ContextItem(f"The conversation so far:\n{turns}", priority=80, role="system"),
        *(
            ContextItem(chunk.text, priority=60 - rank, role="system", source=chunk)
            for rank, chunk in enumerate(await search_pages(question))
        ),
        ContextItem(question, required=True, role="user"),
    ]
