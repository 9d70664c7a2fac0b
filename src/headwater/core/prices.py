"""Prices: the cost of a context's tokens as model input, in billionths of a US dollar."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MILLION = 1_000_000
_NANO = 1_000_000_000


def cost_nano_usd(
    model: str | None, tokens: int, at: datetime, rates: Mapping[str, int] | None = None
) -> int | None:
    """Return the cost of input tokens at a time, or None if the price is unknown.

    `rates` has custom prices by model, in nano-USD for a million tokens. All others need the extra
    ``prices``.
    """
    if model is None:
        return None
    rate = custom_rate(model, rates) if rates else None
    if rate is None:
        rate = _rate(model, tokens, at)
    return None if rate is None else (rate * tokens + _MILLION // 2) // _MILLION


def custom_rate(model: str, rates: Mapping[str, int]) -> int | None:
    """Return the custom price of a model, or that of ``model`` for ``provider/model``."""
    rate = rates.get(model)
    return rates.get(model.rpartition("/")[2]) if rate is None else rate


def load_prices(model: str) -> None:
    """Load the table of prices, which the first lookup would do otherwise."""
    _find(model)


def _rate(model: str, tokens: int, at: datetime) -> int | None:
    """Return the price of a million tokens in a request of this size, from the table."""
    priced = _find(model)
    price = None if priced is None else priced.get_prices(at).input_mtok
    if price is None:
        return None
    if not isinstance(price, Decimal):
        # A larger request may have another price, which then applies to all of its tokens.
        reached = [tier.price for tier in price.tiers if tokens > tier.start]
        price = reached[-1] if reached else price.base
    return int(price * _NANO)


@lru_cache(256)
def _find(model: str) -> Any:
    """Return a model of the table, by its name or as ``provider/model``."""
    if not find_spec("genai_prices"):
        return None
    # Imported on first use: loading takes a while, and most processes need no prices.
    table = import_module("genai_prices.data_snapshot").get_snapshot()
    provider, _, name = model.partition("/")
    # Names that several providers use, such as those of embeddings, need the provider.
    for reference, of in ((model, None), (name, provider), (model, "openai")):
        try:
            return table.find_provider_model(reference, None, of, None)[1]
        except LookupError:
            continue
    return None
