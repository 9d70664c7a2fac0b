"""Prices: what a context's tokens cost as a model's input, in billionths of a US dollar."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any

_MILLION = 1_000_000
_NANO = 1_000_000_000


def cost_nano_usd(
    model: str | None, tokens: int, at: datetime, rates: Mapping[str, int] | None = None
) -> int | None:
    """The cost of so many input tokens at a moment; None if the model's price is not known.

    `rates` gives models a price of one's own, in nano-USD for a million tokens.
    """
    if model is None:
        return None
    rate = own_rate(model, rates) if rates else None
    if rate is None:
        rate = _rate(model, tokens, at)
    return None if rate is None else (rate * tokens + _MILLION // 2) // _MILLION


def own_rate(model: str, rates: Mapping[str, int]) -> int | None:
    """A price of one's own: that of the model, or of ``model`` for ``provider/model``."""
    rate = rates.get(model)
    return rates.get(model.rpartition("/")[2]) if rate is None else rate


def load_prices(model: str) -> None:
    """Loads the table, which the first look at a price would otherwise do."""
    _find(model)


def _rate(model: str, tokens: int, at: datetime) -> int | None:
    """What the table says a million tokens cost, in a request of so many, at a moment."""
    known = _find(model)
    price = None if known is None else known.get_prices(at).input_mtok
    if price is None:
        return None
    if not isinstance(price, Decimal):
        # A larger request may have another price, then for all of its tokens.
        reached = [tier.price for tier in price.tiers if tokens > tier.start]
        price = reached[-1] if reached else price.base
    return int(price * _NANO)


@lru_cache(256)
def _find(model: str) -> Any:
    """A model in the table, by its name or as ``provider/model``."""
    # Loaded when first asked: the table takes a while, and most of Headwater has no prices.
    table = import_module("genai_prices.data_snapshot").get_snapshot()
    provider, _, name = model.partition("/")
    # Names that OpenAI shares with others, such as those of embeddings, need the provider.
    for reference, of in ((model, None), (name, provider), (model, "openai")):
        try:
            return table.find_provider_model(reference, None, of, None)[1]
        except LookupError:
            continue
    return None
