"""A seeded history, and a life of it: the same events, writes and contexts at the same moments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal

from headwater import FeatureStore, FreshnessSLAError, Settings, TokenBudgetError
from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store
from headwater.testing import ManualClock

FEATURES = Path(__file__).with_name("features.py")
CUSTOMERS, TICKETS, PRODUCTS = 12, 16, 5
_OWN = ("purchase", "refund", "visit")
CHANNELS = ("web", "shop", "phone")
QUESTIONS = (
    "How long does a refund take?",
    "Where is my parcel?",
    "Can I return shoes?",
    "When is the shop open?",
)
_WORDS = tuple(
    re.findall(
        r"\w+",
        "parcel refund shoes shop open week card return delivery days money order price paid sent "
        "late closed morning evening courier address letter receipt exchange size colour leather",
    )
)
_MILLISECOND = timedelta(milliseconds=1)
_BEFORE_NOW, _LONGEST = timedelta(days=9), timedelta(days=8)

Kind = Literal["publish", "set", "index", "unindex", "drain", "assemble"]


@dataclass(frozen=True)
class Step:
    """What happens at a moment after the beginning of a world."""

    at: timedelta
    kind: Kind
    name: str = ""
    key: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    event_id: str | None = None
    late: timedelta = timedelta()


@dataclass(frozen=True)
class Seen:
    """What a model was shown in one life of a world, or why it was shown nothing."""

    context_id: str | None
    name: str
    outcome: str
    """The hash of the text, `refused`, or the name of an error."""
    freshness: str = ""
    tokens: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def shown(self) -> tuple[str, str, int]:
        """Everything but the ids, to be compared with another life."""
        return self.outcome, self.freshness, self.tokens


def beginning() -> datetime:
    """Return the midnight at which worlds begin: days ago, so that nothing is in the future."""
    return (datetime.now(UTC) - _BEFORE_NOW).replace(hour=0, minute=0, second=0, microsecond=0)


def history(seed: int, contexts: int) -> list[Step]:
    """Return a history with so many contexts; equal seeds give equal histories."""
    random = Random(seed)
    pause = min(timedelta(minutes=2), _LONGEST / (contexts * 3))
    now, steps = timedelta(), list(_opening(random))
    published: list[Step] = []
    opened: set[str] = set()
    assembled = 0
    while assembled < contexts:
        now += timedelta(milliseconds=1 + int(pause * random.uniform(0, 2) / _MILLISECOND))
        chance = random.random()
        if chance < 0.4:
            steps.append(_assembly(random, now))
            assembled += 1
        elif chance < 0.72:
            step = _event(random, now + _MILLISECOND, len(steps), opened)
            published.append(step)
            # What other entities read or write is handled alone: of what is handled at the same
            # moment of this clock, nobody could tell later which came first.
            is_shared = step.name not in _OWN
            steps += [Step(now, "drain")] if is_shared else []
            now += 2 * _MILLISECOND
            steps += [step, Step(now, "drain")] if is_shared else [step]
        elif chance < 0.74 and published:
            again = random.choice(published[-20:])
            steps.append(replace(again, at=now, late=now - again.at + again.late))
        elif chance < 0.92:
            steps.append(Step(now, "drain"))
        elif chance < 0.96:
            steps.append(_write(random, now))
        elif assembled < contexts * 0.4:
            steps.append(_document(random, now))
    return steps


def _opening(random: Random) -> Iterator[Step]:
    """Yield the first steps: prices, pages and a worker that has handled them."""
    for number in range(PRODUCTS):
        price = {"price": round(random.uniform(1, 9), 3)}
        yield Step(timedelta(), "publish", "price_set", f"p{number}", price, f"price-{number}")
    for number in range(8):
        text = {"text": _text(random), "lang": random.choice(["en", "de"])}
        yield Step(timedelta(), "publish", "article_saved", f"a{number}", text, f"article-{number}")
    yield Step(timedelta(milliseconds=1), "drain")


def _text(random: Random) -> str:
    sentences = (" ".join(random.choices(_WORDS, k=9)).capitalize() + "." for _ in range(6))
    return "\n\n".join(sentences)


def _assembly(random: Random, now: timedelta) -> Step:
    name = random.choice(["support", "support", "profile", "urgent", "ticket", "chat"])
    values: dict[str, Any] = {"customer_id": f"c{random.randrange(CUSTOMERS)}"}
    if name in {"support", "chat"}:
        values["question"] = random.choice(QUESTIONS)
    if name == "ticket":
        values["ticket_id"] = f"t{random.randrange(TICKETS)}"
    return Step(now, "assemble", name, values=values)


def _event(random: Random, now: timedelta, number: int, opened: set[str]) -> Step:
    late = timedelta(minutes=random.uniform(1, 150)) if random.random() < 0.15 else timedelta()
    late = min(late, now)
    kind = random.choices(
        ["purchase", "refund", "visit", "price_set", "ticket_opened", "ticket_closed"],
        [9, 2, 6, 1, 2, 1],
    )[0]
    customer = f"c{random.randrange(CUSTOMERS)}"
    payload: dict[str, Any]
    if kind == "price_set":
        key, payload = f"p{random.randrange(PRODUCTS)}", {"price": round(random.uniform(1, 9), 3)}
    elif kind.startswith("ticket"):
        key = f"t{random.randrange(TICKETS)}"
        payload = {"customer_id": customer, "subject": " ".join(random.choices(_WORDS, k=2))}
        kind = "ticket_closed" if key in opened else "ticket_opened"
        opened.symmetric_difference_update({key})
    elif kind == "visit":
        page, device = random.choice(_WORDS), random.choice(["phone", "laptop"])
        key, payload = customer, {"page": page, "device": device}
    else:
        sku, channel = f"p{random.randrange(PRODUCTS)}", random.choice(CHANNELS)
        amount = round(random.uniform(2, 100), 3)
        key, payload = customer, {"amount": amount, "sku": sku, "channel": channel}
    return Step(now, "publish", kind, key, payload, f"event-{number}", late)


def _write(random: Random, now: timedelta) -> Step:
    customer = f"c{random.randrange(CUSTOMERS)}"
    if random.random() < 0.5:
        return Step(now, "set", "language", customer, {"value": random.choice(["en", "de", "fr"])})
    return Step(now, "set", "note", customer, {"value": " ".join(random.choices(_WORDS, k=4))})


def _document(random: Random, now: timedelta) -> Step:
    article = f"a{random.randrange(10)}"
    if random.random() < 0.2:
        return Step(now, "unindex", key=article)
    text = {"text": _text(random), "lang": random.choice(["en", "de"])}
    if random.random() < 0.5:
        return Step(now, "index", key=article, values=text)
    return Step(now, "publish", "article_saved", article, text, f"article-{now}")


async def live(
    features: Path, settings: Settings, begin: datetime, steps: Sequence[Step]
) -> list[Seen]:
    """Live a history with a features file in an empty store; return what was shown, in order."""
    store = load_store(features)
    clock = ManualClock(begin)
    await runtime_of(store).rebind(settings, clock)
    seen: list[Seen] = []
    os.environ["PROOF_WEB"] = "The web"
    try:
        for step in steps:
            if (pause := begin + step.at - clock.now()) > timedelta():
                clock.advance(pause)
            await _take(store, begin, step, seen)
    finally:
        del os.environ["PROOF_WEB"]
        await store.close()
    return seen


async def _take(store: FeatureStore, begin: datetime, step: Step, seen: list[Seen]) -> None:
    match step.kind:
        case "publish":
            happened = begin + step.at - step.late
            await store.publish(
                step.name,
                step.key,
                dict(step.values),
                timestamp=happened,
                event_id=step.event_id,
            )
        case "set":
            await store.set_feature(step.name, step.key, step.values["value"])
        case "index":
            lang = {"lang": step.values["lang"]}
            await store.index("help", step.key, step.values["text"], lang)
        case "unindex":
            await store.unindex("help", step.key)
        case "drain":
            await store.drain()
        case "assemble":
            seen.append(await assemble(store, step))


async def assemble(store: FeatureStore, step: Step) -> Seen:
    """Assemble the context of a step."""
    try:
        made = await store.assemble(step.name, step.values)
    except FreshnessSLAError as refusal:
        return Seen(refusal.context_id, step.name, "refused", "refused")
    except TokenBudgetError as error:
        return Seen(None, step.name, type(error).__name__)
    reads = made.lineage.features
    values = {f"{read.feature}/{read.entity_id}": read.value for read in reads}
    return Seen(
        made.context_id,
        step.name,
        made.content_hash,
        made.freshness_status,
        made.tokens,
        values,
        made.content,
    )
