"""Prices: the cost of tokens of input and of whole calls, in billionths of a US dollar."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

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


class Rate(NamedTuple):
    """Custom prices of a model, in nano-USD for a million tokens; None where there is none."""

    input: int
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


class BilledTokens(NamedTuple):
    """What a call is billed for; `input` includes the tokens read from and written to a cache."""

    input: int
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


def usage_cost_nano_usd(
    model: str | None, usage: BilledTokens, at: datetime, rates: Mapping[str, Rate] | None = None
) -> int | None:
    """Return the cost of a call of a model at a time, or None if a price of it is unknown.

    A custom price comes first. One of input alone also counts for cached input, but not for output.
    """
    if model is None:
        return None
    # A provider that counts cached tokens apart from the others must not make the rest negative.
    read = min(usage.cache_read, usage.input)
    written = min(usage.cache_write, usage.input - read)
    rate = (rates or {}).get(model) or (rates or {}).get(model.rpartition("/")[2])
    if rate is not None:
        if usage.output and rate.output is None:
            return None
        cached = rate.input if rate.cache_read is None else rate.cache_read
        writing = rate.input if rate.cache_write is None else rate.cache_write
        cost = rate.input * (usage.input - read - written) + cached * read + writing * written
        return (cost + (rate.output or 0) * usage.output + _MILLION // 2) // _MILLION
    priced = _find(model)
    if priced is None:
        return None
    price = priced.get_prices(at)
    if price.input_mtok is None or (usage.output and price.output_mtok is None):
        return None
    tokens = import_module("genai_prices").Usage(
        input_tokens=usage.input,
        cache_read_tokens=read,
        cache_write_tokens=written,
        output_tokens=usage.output,
    )
    total: Decimal = price.calc_price(tokens)["total_price"]
    return round(total * _NANO)


def custom_rate(model: str, rates: Mapping[str, int]) -> int | None:
    """Return the custom price of a model, or that of ``model`` for ``provider/model``."""
    rate = rates.get(model)
    return rates.get(model.rpartition("/")[2]) if rate is None else rate


def context_window(model: str | None) -> int | None:
    """Return the tokens that a request and its answer may have, if the table knows the model."""
    priced = None if model is None else _find(model)
    window: int | None = None if priced is None else priced.context_window
    return window


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
