"""The plan of a made-up week in the shop: what happens at which time. Pure and seeded."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Literal

import msgspec

from headwater.messages.parts import Message, TextPart
from headwater.model.new_outcomes import NewOutcome
from headwater.model.outcomes import Response, Usage

VISITS_PER_DAY = 65
VISITS_OF_THE_LAST_HOUR = 25
"""More than usual, so that pages about the present have something to show."""
_HOURS = (2, 1, 1, 1, 1, 2, 4, 7, 9, 11, 12, 13, 14, 12, 11, 11, 12, 13, 15, 18, 20, 16, 10, 5)
"""How busy the hours of a day are, in UTC."""
_DEVICES = ("phone", "phone", "phone", "laptop", "laptop", "tablet")
_LARGE_PAYMENT = 320.0

Milestone = Literal["release", "worker stops", "worker starts", "feed changes", "redaction"]
_MILESTONES: tuple[tuple[float, timedelta, Milestone], ...] = (
    (0.5, timedelta(), "release"),
    (0.8, timedelta(), "redaction"),
    (1, timedelta(hours=-9), "feed changes"),
)
"""Turning points, each with its time: a share of the whole time, and an offset."""


_STAND_IN = "first-page"
"""The model of the shop, which is none: it answers with the first page that it was given."""


def answers_to(messages: Sequence[Message]) -> tuple[str, str]:
    """Return what the stand-in for a model answers to a request, and what it could say instead.

    These are the first and the second paragraph of the help pages in the request.
    """
    *pages, _question = messages[-1].text.split("\n\n")
    paragraphs = [page for page in pages if page.endswith(".")]
    first, second, *_ = [*paragraphs, "I do not know.", "Please call us."]
    return first, second


class Event(msgspec.Struct, frozen=True):
    """An event to be published; a late one happened some time before."""

    event_type: str
    entity_id: str
    payload: dict[str, Any]
    late: timedelta = timedelta()


class Question(msgspec.Struct, frozen=True):
    """A context to be assembled, and the customer's rating of the answer."""

    context: str
    params: dict[str, Any]
    interaction: dict[str, Any] | None = None
    max_tokens: int | None = None
    is_helpful: bool | None = None
    is_limited: bool = False
    """Whether the provider of the model first refuses the call."""

    def rating(self, context_id: str) -> Event:
        """Return the event of the customer's rating of the answer."""
        rated = {"context_id": context_id, "helpful": self.is_helpful} | (self.interaction or {})
        return Event("answer_rated", self.context, rated)

    def outcomes(self, messages: Sequence[Message], tokens: int) -> Iterator[NewOutcome]:
        """Yield what became of the context: an answer, and often its rating and a correction."""
        if self.context != "support":
            return
        if self.is_limited:
            yield {"error": Response(error_type="RateLimitError", model_asked=_STAND_IN)}
        answer, other = answers_to(messages)
        words = len(answer.split())
        yield {
            "answer": Response(
                messages=(Message(role="assistant", parts=(TextPart(content=answer),)),),
                provider="local",
                model=_STAND_IN,
                finish_reasons=("stop",),
                usage=Usage(input=tokens, output=4 * words // 3),
                latency_ms=180.0 + 21 * words,
                first_token_ms=180.0,
            )
        }
        if self.is_helpful is not None:
            yield {"score": "helpful", "flag": self.is_helpful, "judge": "human"}
        if self.is_helpful is False:
            yield {"correction": other, "judge": "human", "actor": "support team"}


class Mail(msgspec.Struct, frozen=True):
    """A text that another program assembles and records."""

    content: str
    inputs: dict[str, Any]


class Happening(msgspec.Struct, frozen=True):
    """One thing that happens at a time."""

    at: datetime
    what: Event | Question | Mail | Milestone


def plan(end: datetime, days: int, seed: int = 16) -> list[Happening]:
    """Return all that happens in the days before a moment, in order."""
    shop, start = Shop(seed), end - timedelta(days=days)
    happenings = [*shop.opening(start)]
    for day in range(days):
        happenings += shop.day(start + timedelta(days=day))
    length = end - start
    happenings += shop.outage(_at_hour(start + 0.6 * length, 17))
    happenings += [
        Happening(start + share * length + offset, what) for share, offset, what in _MILESTONES
    ]
    for _ in range(VISITS_OF_THE_LAST_HOUR):
        happenings += shop.visit(end - timedelta(hours=shop.share()))
    happenings += shop.sale(start + 0.52 * length)
    return sorted(
        (happening for happening in happenings if happening.at < end),
        key=lambda happening: happening.at,
    )


class Shop:
    """Customers who visit a shop, as a seed decides."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._customers = _rows("customers.csv")
        self._visits = [int(customer["visits"]) for customer in self._customers]
        self._products = _rows("products.csv")
        self._story = tomllib.loads(_text("story.toml"))
        self._orders = count(20_001 + 1_000 * seed)
        self._tickets = count(1_000 * seed + 41)
        self._signed_up: set[str] = set()

    def share(self) -> float:
        """Return a number from 0 to 1."""
        return self._random.random()

    def know_everybody(self) -> None:
        """Let no customer sign up again."""
        self._signed_up.update(customer["user_id"] for customer in self._customers)

    def opening(self, start: datetime) -> Iterator[Happening]:
        """Yield the events that a new shop begins with."""
        for country, per_kg in self._story["rates"].items():
            yield Happening(start, Event("rate_set", country, {"per_kg": per_kg}))
        for name, article in self._story["articles"].items():
            yield Happening(start, _saved(name, article["topic"], article["text"]))
        for customer in self._customers:
            if int(customer["past_orders"]):
                yield self._sign_up(start, customer)
        for product in self._products:
            yield Happening(start, _priced(product, 1))
        yield from self._count_stock(start)

    def sale(self, at: datetime) -> Iterator[Happening]:
        """Yield a sale of everything for camping, and the help pages that change with it."""
        for product in self._products:
            if product["category"] == "camping":
                yield Happening(at, _priced(product, 0.8))
        for name, article in self._story["articles"].items():
            if "changed" in article:
                yield Happening(at, _saved(name, article["topic"], article["changed"]))

    def outage(self, at: datetime) -> Iterator[Happening]:
        """Yield an evening without a worker; orders are reviewed, and the values are too old."""
        yield Happening(at, "worker stops")
        by_visits = sorted(self._customers, key=lambda person: -int(person["visits"]))
        for number, customer in enumerate(by_visits[:4]):
            order = f"K-{next(self._orders)}"
            review = {"user_id": customer["user_id"], "order": order, "amount": 1249.0}
            when = at + timedelta(hours=3, minutes=11 * number, seconds=7.3)
            yield Happening(when, Question("fraud_brief", review, {"order": order}))
        yield Happening(at + timedelta(hours=4), "worker starts")

    def day(self, start: datetime) -> Iterator[Happening]:
        """Yield a day from a moment on: the morning's count of the stock, mail, and visits."""
        random = self._random
        yield from self._count_stock(_at_hour(start, 6))
        yield self._mail(_at_hour(start, 9))
        for product in self._products:
            yield self._shop_sale(_at_hour(start, random.uniform(8, 18)), product)
        hours = random.choices(range(24), _HOURS, k=VISITS_PER_DAY)
        for at in sorted(_at_hour(start, hour + random.random()) for hour in hours):
            yield from self.visit(at)

    def visit(self, at: datetime) -> Iterator[Happening]:
        """Yield what a customer does in some minutes: looks around, and may buy and ask."""
        random = self._random
        (customer,) = random.choices(self._customers, self._visits)
        user = customer["user_id"]
        if user not in self._signed_up:
            yield self._sign_up(at, customer)
            at = self._later(at)
            yield Happening(at, Question("onboarding", {"user_id": user}))
        device = random.choice(_DEVICES)
        seen = random.sample(self._products, random.randint(2, 7))
        for product in seen:
            at = self._later(at)
            viewed = {"sku": product["sku"], "device": device}
            late = timedelta(hours=3) if random.random() < 0.01 else timedelta()
            yield Happening(at, Event("page_viewed", user, viewed, late))
        order = f"K-{next(self._orders)}"
        if random.random() < 0.4:
            yield from self._purchase(self._later(at), customer, random.choice(seen), order)
        if random.random() < 0.3:
            yield from self._talk(self._later(at), user, device, order)

    def _sign_up(self, at: datetime, customer: dict[str, str]) -> Happening:
        self._signed_up.add(customer["user_id"])
        payload = {key: customer[key] for key in ("name", "country", "language")}
        return Happening(at, Event("signed_up", customer["user_id"], payload))

    def _count_stock(self, at: datetime) -> Iterator[Happening]:
        for product in self._products:
            units = {"units": max(0, self._random.randint(-15, 45))}
            yield Happening(at, Event("stock_counted", product["sku"], units))

    def _purchase(
        self, at: datetime, customer: dict[str, str], product: dict[str, str], order: str
    ) -> Iterator[Happening]:
        random, user = self._random, customer["user_id"]
        amount = float(product["price"]) * random.choice((1, 1, 1, 2))
        to = {"order": order, "country": customer["country"], "kg": float(product["kg"])}
        yield Happening(at, Event("checkout", user, to))
        is_odd = random.random() < 0.1
        for _ in range(random.randint(2, 5) if is_odd else 0):
            at = self._later(at)
            card = random.choice(("US", "RO", "BR", "ID"))
            yield Happening(at, _payment(user, order, amount, card, ok=False))
        at = self._later(at)
        if random.random() < 0.02:
            # A payment provider writes some amounts as its own country does.
            written = f"{amount:,.2f}".translate(str.maketrans(",.", ".,"))
            yield Happening(at, _payment(user, order, written, customer["country"], ok=True))
        else:
            yield Happening(at, _payment(user, order, amount, customer["country"], ok=True))
        if is_odd or amount >= _LARGE_PAYMENT:
            review = {"user_id": user, "order": order, "amount": amount}
            when = at + timedelta(seconds=random.uniform(1, 9))
            yield Happening(when, Question("fraud_brief", review, {"order": order}))
        bought = {
            "order": order,
            "sku": product["sku"],
            "category": product["category"],
            "amount": amount,
        }
        at = self._later(at)
        yield Happening(at, Event("purchase", user, bought))
        if random.random() < 0.12:
            later = at + timedelta(hours=random.uniform(8, 60))
            yield Happening(later, Event("refund", user, {"order": order, "amount": amount}))

    def _talk(self, at: datetime, user: str, device: str, order: str) -> Iterator[Happening]:
        """Yield the turns of a conversation; most answers are rated."""
        random, ticket = self._random, f"T-{next(self._tickets)}"
        topic = random.choice(self._story["questions"])
        texts = random.sample(topic["texts"], random.choice((1, 1, 2)))
        for turn, text in enumerate(texts, 1):
            question = text.format(order=order)
            yield Happening(at, Event("message_sent", user, {"ticket": ticket, "text": question}))
            at += timedelta(seconds=random.uniform(1, 5))
            yield Happening(
                at,
                Question(
                    "support",
                    {"user_id": user, "question": question},
                    {"ticket": ticket, "turn": turn},
                    max_tokens=260 if device == "phone" else None,
                    is_helpful=random.random() < 0.78 if random.random() < 0.6 else None,
                    is_limited=ticket.endswith("7") and turn == 1,
                ),
            )
            at = self._later(at)

    def _shop_sale(self, at: datetime, product: dict[str, str]) -> Happening:
        lines = f'[{{"sku": "{product["sku"]}", "units": {self._random.randint(1, 4)}}}]'
        if self._random.random() < 0.03:
            lines = lines[:-8]  # a till lost its connection
        sale = {"shop": "Husum", "lines": lines}
        return Happening(at, Event("shop_sale", product["sku"], sale))

    def _mail(self, at: datetime) -> Happening:
        titles = ", ".join(product["title"] for product in self._random.sample(self._products, 3))
        content = f"This week at Kestrel: {titles}. Delivery is free until Sunday."
        return Happening(at, Mail(content, {"list": "newsletter", "day": f"{at:%A}"}))

    def _later(self, at: datetime) -> datetime:
        return at + timedelta(seconds=self._random.uniform(4, 70))


def _priced(product: dict[str, str], share: float) -> Event:
    return Event("price_set", product["sku"], {"price": round(share * float(product["price"]), 2)})


def _saved(name: str, topic: str, text: str) -> Event:
    return Event("article_saved", name, {"topic": topic, "text": text.strip()})


def _payment(user: str, order: str, amount: float | str, card: str, *, ok: bool) -> Event:
    paid = {"order": order, "amount": amount, "card_country": card, "ok": ok}
    return Event("payment_attempted", user, paid)


def _at_hour(start: datetime, hour: float) -> datetime:
    """Return the first time after a moment at which a clock shows this hour, in UTC."""
    midnight = start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    moment = midnight + timedelta(hours=hour, microseconds=417_301)
    return moment if moment >= start else moment + timedelta(days=1)


def _rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(_text(name).splitlines()))


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
