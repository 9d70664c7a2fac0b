"""Training sees what serving saw, and the trained model scores cards: `pytest` in this folder."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import fraud
import joblib
import pytest
from fraud import INPUTS, store
from past import events
from train import fit, training_set

from headwater import ServiceEvent
from headwater.testing import ManualClock, temporary


@pytest.fixture
async def clock() -> AsyncIterator[ManualClock]:
    """Yield the clock of a store in which the past of ten cards happened."""
    past = [
        ServiceEvent(**{**each, "timestamp": datetime.fromisoformat(each["timestamp"])})
        for each in events(cards=10)
    ]
    clock = ManualClock(past[-1].timestamp + timedelta(minutes=1))
    async with temporary(store, clock=clock):
        await store.bus.publish_many(past)
        await store.drain()
        yield clock


async def pay(card: str, amount: float, shop: str) -> dict[str, object]:
    """Pay with a card; return what the model is then given."""
    payload = {"payment_id": f"{card}-{shop}", "amount": amount, "shop": shop}
    await store.publish("payment", card, payload)
    await store.drain()
    return dict((await store.get_features(INPUTS, [card]))[card])


async def test_a_training_set_has_what_was_served_at_each_payment(clock: ManualClock) -> None:
    served = []
    for amount, shop in ((20.0, "grocer"), (90.0, "kiosk"), (300.0, "jeweller")):
        clock.advance("10m")
        served.append(await pay("card-1", amount, shop))
    rows, _ = await training_set()
    assert rows[-3:].tolist() == [list(each.values()) for each in served]


async def test_a_label_does_not_change_what_was_known_before_it(clock: ManualClock) -> None:
    await pay("card-1", 300.0, "jeweller")
    before, labels = await training_set()
    assert not labels[-1]
    clock.advance("9d")
    await store.publish("chargeback", "card-1", {"payment_id": "card-1-jeweller"})
    await store.drain()
    after, labels = await training_set()
    assert labels[-1]
    assert (after == before).all()


async def test_a_theft_scores_higher_than_a_purchase(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fraud, "MODEL", tmp_path / "model.joblib")
    fraud.model.cache_clear()
    assert await store.get_feature("fraud_score", "card-1") is None
    joblib.dump(fit(*await training_set()), fraud.MODEL)
    fraud.model.cache_clear()
    await pay("card-1", 20.0, "grocer")
    usual = await store.get_feature("fraud_score", "card-1")
    for shop in ("kiosk", "phones", "jeweller"):
        clock.advance("5m")
        await pay("card-1", 200.0, shop)
    assert await store.get_feature("fraud_score", "card-1") > 0.5 > 0.1 > usual
