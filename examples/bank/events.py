"""The things of a bank, what happens to them, and the store that keeps it."""

from typing import Annotated, Literal

from msgspec import Meta

from headwater import FeatureStore, entity, event

store = FeatureStore()


@entity(store)
class Customer:
    """A person or a company with an account."""

    customer_id: str


@entity(store, belongs_to={"customer_id": Customer})
class Ticket:
    """A request that a person of the bank answers."""

    ticket_id: str


@entity(store)
class Model:
    """A trained model; its weights are a feature, so that a new training needs no deployment."""

    model_id: str


Amount = Annotated[float, Meta(gt=0, description="In EUR.")]


@event(store, "customer_joined")
class CustomerJoined:
    full_name: str


@event(store, "deposit")
class Deposit:
    amount: Amount


@event(store, "payment")
class Payment:
    amount: Amount
    merchant: str
    category: str = "other"


@event(store, "ticket_opened")
class TicketOpened:
    customer_id: str
    subject: str


@event(store, "ticket_closed")
class TicketClosed:
    customer_id: str
    solution: str = ""


@event(store, "chat_message")
class ChatMessage:
    role: Literal["customer", "copilot"]
    text: Annotated[str, Meta(min_length=1, max_length=2_000)]
