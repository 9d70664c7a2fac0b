"""Evaluations in the process of a test: contexts of one features file, assembled by another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater import Context, FeatureStore, Settings
from headwater.backends.connect import connect
from headwater.contexts.evaluation.evaluator import Evaluated, Evaluator
from headwater.contexts.evaluation.variants import Changes, Code
from headwater.declarations.runtime import runtime_of
from headwater.model.evaluations import CohortEntry
from headwater.store.base_code import load_base
from headwater.store.evaluation_task import Variants
from headwater.store.loader import load_store
from headwater.testing import ManualClock

FEATURES = """
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature

store = FeatureStore()


@entity(store)
class Customer:
    customer_id: str


def money(amount: float) -> str:
    return f"{amount:.2f} EUR"


@feature(entity=Customer, trigger="purchase", default=0.0)
async def total(customer_id: str, event: ServiceEvent) -> float:
    return await total.get(customer_id) + event.payload["amount"]


@feature(entity=Customer, trigger="purchase", default=0)
async def orders(customer_id: str, event: ServiceEvent) -> int:
    return await orders.get(customer_id) + 1


@feature(entity=Customer, trigger="purchase", default="new")
async def tier(customer_id: str, event: ServiceEvent) -> str:
    return "gold" if await total.get(customer_id) > 100 else "silver"


@feature(entity=Customer)
async def average(customer_id: str) -> float:
    return await total.get(customer_id) / max(await orders.get(customer_id), 1)


@context(store, max_tokens=200)
async def greeting(customer_id: str) -> list[ContextItem]:
    return [ContextItem.template("A {tier} customer.", required=True)]


@context(store, max_tokens=200)
async def support(customer_id: str, question: str) -> list[ContextItem]:
    greeted = await greeting(customer_id)
    return [
        ContextItem("You are a support agent.", required=True, priority=10),
        ContextItem(greeted.content, source=greeted, priority=8),
        ContextItem("Spent " + money(await total.get(customer_id)), priority=5),
        ContextItem.template("Average {average:.1f}.", priority=4),
        ContextItem("Question: " + question, priority=9),
    ]
"""


class Former:
    """A store with the features file of before, in which contexts were recorded."""

    def __init__(self, folder: Path, settings: Settings, clock: ManualClock) -> None:
        self._folder = folder
        self._settings = settings
        self._clock = clock
        self.store: FeatureStore = None  # type: ignore[assignment]
        self.contexts: list[Context] = []

    async def open(self, text: str = FEATURES) -> FeatureStore:
        """Open the store of a features file."""
        file = self._folder / "features.py"
        file.write_text(text)
        self.store = load_store(file)
        await runtime_of(self.store).rebind(self._settings, self._clock)
        return self.store

    async def buy(self, customer: str, *amounts: float) -> None:
        """Let a customer buy something, and wait until it is handled."""
        for amount in amounts:
            await self.store.publish("purchase", customer, {"amount": amount})
            self._clock.advance("1s")
        await self.store.drain()
        self._clock.advance("1s")

    async def assemble(self, name: str, **inputs: Any) -> Context:
        """Assemble a context, which belongs to the cohort."""
        self.contexts.append(await self.store.assemble(name, inputs))
        self._clock.advance("1s")
        return self.contexts[-1]

    async def evaluate(
        self, text: str, options: Mapping[str, Any] | None = None
    ) -> Sequence[Evaluated]:
        """Evaluate another features file on the contexts so far."""
        (self._folder / "new").mkdir(exist_ok=True)
        file = self._folder / "new" / "features.py"
        file.write_text(text)
        new, runtime = load_base(file), runtime_of(self.store)
        await runtime_of(new).rebind(self._settings, self._clock)
        base = load_base(self._folder / "features.py")
        former, present = (Code.of(runtime_of(store).registry) for store in (base, new))
        changes = Changes(former, present, options or {})
        backends = await connect(self._settings, self._clock)
        try:
            await backends.erasures.refresh()
            variants = Variants(changes, backends, (base, new))
            is_private = runtime.settings.record.is_private
            evaluator = Evaluator(backends.records, changes, variants, is_private=is_private)
            return await evaluator.evaluate([*map(_entry, self.contexts)])
        finally:
            await backends.lifecycle.close()


def _entry(context: Context) -> CohortEntry:
    return CohortEntry(
        context_id=context.context_id,
        record_hash=context.record_hash,
        name=context.name,
        created_at=context.created_at,
        inputs={},
    )
