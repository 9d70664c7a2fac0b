"""A features file with every kind of feature, as a function of what a deployment may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

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
from headwater.declarations.contexts import ContextFunction

RECENT = timedelta(seconds=90)
"""For how long a value of ``recent`` counts."""

CACHED = timedelta(seconds=60)
"""For how long what was found in the directory is cached."""

SLA = timedelta(seconds=40)
"""The age that the card of a user allows."""

WAITING_SLA = timedelta(seconds=2)
"""For how long an event may wait for ``total``."""

KEYS = (
    "total",
    "last",
    "recent",
    "score",
    "price",
    "rank",
    "lazy",
    "scores",
    "cached",
    "logged",
    "tier",
    "aged",
    "slow_tier",
    "line",
    "page",
)
"""The features of a user, by the names that they had first."""

OF_EVENTS = ("total", "last", "recent", "price", "reused")
"""Those that follow events."""

OF_TIME = ("score", "rank", "lazy", "scores", "cached", "logged")
"""Those that applications, schedules and readers write."""

ON_CARD = ("total", "last", "recent", "price", "score", "scores")
"""Those whose freshness is compared with the model."""


class Declared(NamedTuple):
    """What differs between two features files."""

    total: str = "total"
    """The name of the feature ``total``."""
    default: int = 0
    weight: int = 1
    """The version of the function of ``total``."""
    unit: Literal["cents", "euros"] = "cents"
    """The type of ``price``, an int or a float, into which old values are converted."""
    cured: bool = False
    """Whether the function of ``total`` takes bad events, too."""
    reused: bool = False
    """Whether ``total`` is also the name of another feature, since the first one was renamed."""

    def name(self, key: str) -> str:
        """Return the name that a feature has in this file."""
        return self.total if key == "total" else key

    def names(self) -> dict[str, str]:
        """Return the names of the features of every file, by their first ones."""
        return {key: self.name(key) for key in KEYS}

    def all_names(self) -> dict[str, str]:
        """Return the names of all features."""
        return self.names() | ({"reused": "total"} if self.reused else {})


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts by their length."""
    return [[1.0, float(len(text))] for text in texts]


class Contexts(NamedTuple):
    """The contexts of a user."""

    summary: ContextFunction[[str]]
    """All features, and the notes of all users."""
    card: ContextFunction[[str]]
    """Features with an SLA, and a cached search outside of the store."""


def declare(store: FeatureStore, declared: Declared, directory: Mapping[str, int]) -> Contexts:
    """Declare all features, an index, and the contexts that are returned."""

    @entity(store)
    class User:
        user_id: str

    _declare_triggered(store, User, declared)
    _declare_amounts(User, declared)
    _declare_scheduled(store, User, declared)
    _declare_on_demand(store, User, declared)
    _declare_derived(store, User, declared)
    Index(store, "notes", embedder=embedded, dimensions=2)

    @retriever(store, index="notes", top_k=9, mode="text")
    def find_notes(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        names = declared.names()
        values = (await store.get_features(list(names.values()), [user_id]))[user_id]
        notes = await find_notes("note")
        read = {key: values[name] for key, name in names.items()}
        return [ContextItem(text) for text in described(read, [note.text for note in notes])]

    @retriever(store, cache_ttl=CACHED)
    def look_up(user_id: str) -> list[str]:
        return [entry(user_id, directory.get(user_id))]

    @context(store, freshness_sla=SLA)
    async def card(user_id: str) -> list[ContextItem]:
        found = await look_up(user_id)
        await store.get_features([declared.name(key) for key in ON_CARD], [user_id])
        return [ContextItem(chunk.text) for chunk in found]

    return Contexts(summary, card)


def entry(user_id: str, number: int | None) -> str:
    """Return what the directory has about a user."""
    return "nobody" if number is None else f"{user_id} has number {number}"


def described(values: dict[str, Any], notes: Sequence[str]) -> list[str]:
    """Return the items of the context that reads these values and finds these notes."""
    return [*(f"{key}: {value!r}" for key, value in values.items()), *sorted(notes)]


def _declare_triggered(store: FeatureStore, user: type, declared: Declared) -> None:
    @feature(
        entity=user,
        name=declared.total,
        trigger="buy",
        default=declared.default,
        freshness="caught_up",
        freshness_sla=WAITING_SLA,
        max_retries=0,
    )
    async def total(user_id: str, event: ServiceEvent) -> int:
        if event.payload["bad"] and not declared.cured:
            raise ValueError("a bad event")
        before = int(await store.get_feature(declared.total, user_id))
        return before + declared.weight * int(event.payload["amount"])

    @feature(entity=user, trigger="buy", order="event_time")
    def last(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=user, trigger="buy", ttl=RECENT)
    def recent(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @feature(entity=user, trigger="never")
    def score(user_id: str, event: ServiceEvent) -> float | None: ...

    @feature(entity=user, trigger="note", order="event_time")
    async def noted(user_id: str, event: ServiceEvent) -> str:
        text = f"note {event.payload['text']} of {user_id}"
        await store.index("notes", event.payload["document"], f"note {event.payload['text']}")
        return text


def declare_moved(store: FeatureStore, declared: Declared) -> None:
    """Declare ``price``, with its present type, for another entity."""

    @entity(store)
    class Account:
        account_id: str

    def cents(account_id: str, event: ServiceEvent) -> int:
        return 100 * int(event.payload["amount"])

    def euros(account_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    if declared.unit == "cents":
        feature(entity=Account, name="price", trigger="buy")(cents)
    else:
        feature(entity=Account, name="price", trigger="buy", convert=in_euros)(euros)


def _declare_amounts(user: type, declared: Declared) -> None:
    def reused(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    if declared.reused:
        feature(entity=user, name="total", trigger="buy")(reused)

    def cents(user_id: str, event: ServiceEvent) -> int:
        return 100 * int(event.payload["amount"])

    def euros(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    if declared.unit == "cents":
        feature(entity=user, name="price", trigger="buy")(cents)
    else:
        feature(entity=user, name="price", trigger="buy", convert=in_euros)(euros)


def in_euros(cents: int) -> float:
    """Convert a price."""
    return cents / 100


def _declare_scheduled(store: FeatureStore, user: type, declared: Declared) -> None:
    @feature(entity=user, refresh="1m", materialize=True)
    async def rank(user_id: str) -> int:
        return -int(await store.get_feature(declared.total, user_id))

    @feature(entity=user, refresh="1m")
    def lazy(user_id: str) -> str:
        return f"{store.clock.now():%H:%M:%S}"

    @feature(
        entity=user,
        refresh="5m",
        materialize=True,
        default=0,
        freshness="caught_up",
        freshness_sla="1d",
        sql="SELECT entity_id AS user_id, count(*) AS value FROM feature_history"
        " WHERE feature = 'score' GROUP BY entity_id",
    )
    def scores(user_id: str) -> int: ...  # type: ignore[empty-body]


def _declare_on_demand(store: FeatureStore, user: type, declared: Declared) -> None:
    @feature(entity=user, ttl="80s")
    async def cached(user_id: str) -> str:
        return f"{await store.get_feature('last', user_id)} at {store.clock.now():%H:%M:%S}"

    @feature(entity=user, log=True)
    async def logged(user_id: str) -> tuple[int, datetime]:
        return int(await store.get_feature(declared.total, user_id)), store.clock.now()


def _declare_derived(store: FeatureStore, user: type, declared: Declared) -> None:
    @feature(entity=user, derived=True)
    async def tier(user_id: str) -> str | None:
        names = [declared.total, "recent"]
        values = (await store.get_features(names, [user_id]))[user_id]
        if values["recent"] is None:
            return None
        return "gold" if values[declared.total] > 9 else "silver"

    @feature(entity=user, derived=True)
    async def aged(user_id: str) -> int | None:
        moment = await store.get_feature("recent", user_id)
        return None if moment is None else (store.clock.now() - moment).seconds

    @feature(entity=user, derived=True, ttl="70s")
    async def slow_tier(user_id: str) -> str:
        return f"{await store.get_feature('tier', user_id)} {user_id}"

    @feature(entity=user, template=f"{{tier}} {{{declared.total}}}", default="new")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="[{line}] {rank} {score} {logged}")
    def page(user_id: str) -> str: ...  # type: ignore[empty-body]
