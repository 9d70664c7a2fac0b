"""Make up three months of payments, some of them by thieves: `python past.py`."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 90
SHOPS = ("grocer", "bakery", "petrol", "books", "cinema")
FENCES = ("jeweller", "phones", "kiosk", "petrol")


def payments(card: str, chance: Random) -> Iterator[tuple[datetime, float, str, bool]]:
    """Yield time, amount, shop and whether it is fraud: about every second day, and one theft."""
    usual = chance.uniform(10, 60)
    for day in range(DAYS):
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            at = START + timedelta(days=day, minutes=chance.randrange(8 * 60, 20 * 60))
            rare = 8 if chance.random() < 0.03 else 1  # a new bicycle, by the owner of the card
            yield at, chance.lognormvariate(0, 0.5) * usual * rare, chance.choice(SHOPS), False
    if chance.random() < 0.6:
        at = START + timedelta(days=chance.uniform(5, DAYS - 2))
        for shop in chance.sample(FENCES, chance.randint(2, 4)):
            at += timedelta(minutes=chance.uniform(1, 12))
            yield at, chance.uniform(1, 8) * usual, shop, True


def events(cards: int = 40, seed: int = 7) -> list[dict[str, Any]]:
    """Return events in the order of their time; a chargeback comes days after its payment."""
    made, chance = [], Random(seed)
    for card in (f"card-{number}" for number in range(1, cards + 1)):
        for number, (at, amount, shop, is_fraud) in enumerate(payments(card, chance)):
            payment: dict[str, Any] = {"payment_id": f"{card}-{number}"}
            paid = {**payment, "amount": round(amount, 2), "shop": shop}
            made.append((at, "payment", card, paid))
            if is_fraud:
                made.append((at + timedelta(days=9), "chargeback", card, payment))
    return [
        {"event_type": kind, "entity_id": card, "timestamp": at.isoformat(), "payload": payload}
        for at, kind, card, payload in sorted(made, key=lambda each: each[0])
    ]


if __name__ == "__main__":
    lines = [json.dumps(each) + "\n" for each in events()]
    Path("payments.jsonl").write_text("".join(lines))
    print(f"payments.jsonl has {len(lines)} events")
