"""Families of windows of every kind, and their values by brute force: plain lists, Fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from math import ceil, isclose, sqrt
from operator import itemgetter
from typing import Any, NamedTuple, TypedDict

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.core.clock import MICROSECOND, to_micros
from headwater.core.durations import to_timedelta
from headwater.declarations.contexts import ContextFunction

NUMBERS = ("count", "sum", "avg", "min", "max", "stddev", "distinct", "rate", "p50", "p95")
PLACES = ("count", "distinct", "first", "last", "last(3)", "min", "max")
CARDS = ("count", "sum", "max", "distinct", "last(2)")
PLANS: tuple[tuple[tuple[str, ...], str | None], ...] = (
    (("1m", "10m"), None),
    (("1h", "1d"), None),
    (("90s", "5m", "2h"), "30s"),
    (("10m", "1h"), None),
    (("20m",), "20m"),
)
"""Windows and hops: of a part of a second, of a minute and more, shared, and as long as they.

Windows of one name have one hop, so that what was served is known whatever was declared since.
"""
OTHER = "other"
MISSING = -1.0
"""The default of ``amount``."""


class Card(TypedDict):
    """A payment by card or in another way."""

    category: str
    price: float
    kind: str


class Declared(NamedTuple):
    """What differs between two features files."""

    plan: int = 0
    max_keys: int = 2
    kind: str | None = "card"
    """The payments that ``cards`` selects; all, if None."""
    cured: bool = False
    """Whether the function of ``items`` takes bad events, too."""

    @property
    def windows(self) -> tuple[tuple[str, ...], str | None]:
        """The windows of all families, and their hop."""
        return PLANS[self.plan]


class Contribution(NamedTuple):
    """What an event, or a row of an import, contributes to a family."""

    at: int
    written_at: int
    value: Any
    is_imported: bool = False


AGGREGATES = {"amount": NUMBERS, "items": NUMBERS, "places": PLACES, "cards": CARDS}
"""The families of a user and their aggregates."""


def members(declared: Declared, families: Iterable[str] = tuple(AGGREGATES)) -> list[str]:
    """Return the names of the features of families."""
    return [
        f"{family}_{aggregate.replace('(', '').replace(')', '')}_{window}"
        for family in families
        for window in declared.windows[0]
        for aggregate in AGGREGATES[family]
    ]


def contributed(family: str, payload: dict[str, Any]) -> Any:
    """Return what an event contributes to a family; None if nothing."""
    if family == "cards":
        keys = ("category", "price", "kind")
        return {key: payload[key] for key in keys} if payload["kind"] else None
    return payload[{"amount": "price", "items": "items", "places": "place"}[family]]


def declare(store: FeatureStore, declared: Declared) -> ContextFunction[[str]]:
    """Declare all families, and the context that is returned, which reads all their features."""

    @entity(store)
    class User:
        user_id: str

    spans, hop = declared.windows

    @feature(entity=User, trigger="buy", window=spans, hop=hop, aggregate=NUMBERS, default=MISSING)
    def amount(user_id: str, event: ServiceEvent) -> float | None:
        value: float | None = contributed("amount", event.payload)
        return value

    @feature(entity=User, trigger="buy", window=spans, hop=hop, aggregate=NUMBERS, max_retries=0)
    def items(user_id: str, event: ServiceEvent) -> int:
        if event.payload["bad"] and not declared.cured:
            raise ValueError("a bad event")
        return int(contributed("items", event.payload))

    @feature(entity=User, trigger="buy", window=spans, hop=hop, aggregate=PLACES)
    async def places(user_id: str, event: ServiceEvent) -> str:
        return str(contributed("places", event.payload))

    @feature(
        entity=User,
        trigger="buy",
        window=spans,
        hop=hop,
        aggregate=CARDS,
        value="price",
        by="category",
        where={"kind": declared.kind} if declared.kind else None,
        max_keys=declared.max_keys,
    )
    def cards(user_id: str, event: ServiceEvent) -> Card | None:
        card: Card | None = contributed("cards", event.payload)
        return card

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        values = (await store.get_features(members(declared), [user_id]))[user_id]
        return [ContextItem(described(values))]

    return summary


def described(values: dict[str, Any]) -> str:
    """Return the text of the context that reads these values."""
    return "\n".join(f"{name}: {value!r}" for name, value in sorted(values.items()))


def expected(
    declared: Declared, family: str, contributions: Sequence[Contribution], moment: datetime
) -> dict[str, Callable[[Any], bool]]:
    """Return what each feature of a family should be at a moment, as a check of what it is."""
    spans, hop = declared.windows
    now = to_micros(moment)
    checks = {}
    for span in spans:
        length = _micros(span)
        step = _hop(length) if hop is None else _micros(hop)
        covered = sorted(
            (each for each in contributions if each.at // step >= (now - length) // step),
            key=itemgetter(0, 1),
        )
        for aggregate in AGGREGATES[family]:
            name = f"{family}_{aggregate.replace('(', '').replace(')', '')}_{span}"
            if family == "cards":
                checks[name] = _keyed(declared, aggregate, covered, length)
            else:
                values = [each.value for each in covered]
                checks[name] = _plain(family, aggregate, values, length)
    return checks


def _micros(duration: str) -> int:
    return to_timedelta(duration) // MICROSECOND


def _hop(length: int) -> int:
    usual = [_micros(hop) for hop in ("1m", "5m", "15m", "1h", "6h", "1d")]
    return max([hop for hop in usual if hop <= length / 24], default=length // 24)


def _plain(family: str, aggregate: str, values: list[Any], length: int) -> Callable[[Any], bool]:
    check = _check(aggregate, values, length, is_int=family == "items")
    if check is None:
        return lambda found: bool(found == (MISSING if family == "amount" else None))
    return check


def _keyed(
    declared: Declared, aggregate: str, covered: Sequence[Contribution], length: int
) -> Callable[[Any], bool]:
    chosen = [
        each for each in covered if declared.kind is None or each.value["kind"] == declared.kind
    ]
    keys = sorted({each.value["category"] for each in chosen} - {OTHER})[: declared.max_keys]
    groups: dict[str, list[Any]] = {}
    for each in chosen:
        key = each.value["category"]
        groups.setdefault(key if key in keys else OTHER, []).append(each.value["price"])
    checks = {
        key: _check(aggregate, values, length, is_int=False) for key, values in groups.items()
    }
    return lambda found: (
        found.keys() == checks.keys()
        and all(check is not None and check(found[key]) for key, check in checks.items())
    )


def _check(
    aggregate: str, values: list[Any], length: int, *, is_int: bool
) -> Callable[[Any], bool] | None:
    """Return the check of an aggregate of values, in the order of their times; None if it has none.

    A percentile may be one per cent from the value of its rank. All others are exact.
    """
    if aggregate in ("p50", "p95"):
        if not values:
            return None
        true = sorted(values)[ceil(int(aggregate[1:]) * len(values) / 100) - 1]
        return lambda found: type(found) is float and isclose(found, true, rel_tol=0.0101)
    value = _number(aggregate, values, length, is_int=is_int)
    if value is None and values:
        value = _value(aggregate, values)
    if value is None:
        return None
    return lambda found: type(found) is type(value) and found == value


def _number(aggregate: str, values: list[Any], length: int, *, is_int: bool) -> int | float | None:
    count = len(values)
    if aggregate == "count":
        return count
    if aggregate == "distinct":
        return len(set(values))
    if aggregate == "rate":
        return count * 1_000_000 / length
    if aggregate not in ("sum", "avg", "stddev"):
        return None
    exact = sum(map(Fraction, values), Fraction(0))
    total = int(exact) if is_int else float(exact)
    if aggregate == "sum":
        return total
    if aggregate == "avg":
        return total / count if count else None
    squares = sum((Fraction(value) ** 2 for value in values), Fraction(0))
    return sqrt((squares - exact**2 / count) / (count - 1)) if count > 1 else None


def _value(aggregate: str, values: list[Any]) -> Any:
    """Return an aggregate that is one of the values, or some of them."""
    if aggregate in ("min", "max"):
        return min(values) if aggregate == "min" else max(values)
    if aggregate in ("first", "last"):
        return values[0 if aggregate == "first" else -1]
    return values[-int(aggregate[5:-1]) :] if aggregate.startswith("last") else None
