"""Prices: those of the table, or one's own; none where none is known."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import prices
from headwater.core.prices import BilledTokens, Rate, cost_nano_usd, usage_cost_nano_usd

AT = datetime(2026, 10, 1, 12, tzinfo=UTC)


@given(
    st.sampled_from(["gpt-4o", "gpt-4.1-nano", "o3", "claude-sonnet-4-5", "gemini-2.5-pro"]),
    st.integers(0, 2_000_000),
)
def test_the_cost_is_that_of_the_table(model: str, tokens: int) -> None:
    usage = Usage(input_tokens=tokens)
    price = calc_price(usage, model_ref=model, genai_request_timestamp=AT).input_price
    cost = cost_nano_usd(model, tokens, AT)
    assert cost is not None
    assert abs(cost - price * 10**9) <= Decimal("0.5")


def test_a_cost_is_a_whole_number_of_billionths_of_a_dollar() -> None:
    assert cost_nano_usd("gpt-4o", 2_000, AT) == 5_000_000
    assert type(cost_nano_usd("gpt-4o", 1, AT)) is int


@pytest.mark.parametrize("model", ["openai/gpt-4o", "azure/gpt-4o", "gpt-4o-2024-08-06"])
def test_a_model_may_be_named_with_its_provider_or_its_date(model: str) -> None:
    assert cost_nano_usd(model, 1_000, AT) == cost_nano_usd("gpt-4o", 1_000, AT)


def test_embeddings_have_a_price() -> None:
    assert cost_nano_usd("text-embedding-3-small", 1_000, AT) == 20_000


@pytest.mark.parametrize("model", [None, "", "/", "my-own-model", "my/own-model"])
def test_an_unknown_model_has_no_cost_rather_than_none_to_pay(model: str | None) -> None:
    assert cost_nano_usd(model, 1_000, AT) is None
    assert cost_nano_usd(model, 0, AT) is None


@given(st.integers(0, 10**9), st.integers(0, 10**12))
def test_a_configured_rate_comes_first_and_is_rounded(tokens: int, rate: int) -> None:
    for model in ("gpt-4o", "my-own-model"):
        cost = cost_nano_usd(model, tokens, AT, {model: rate})
        assert cost is not None
        assert abs(cost - Decimal(rate) * tokens / 1_000_000) <= Decimal("0.5")


def test_a_rate_of_zero_is_a_cost_of_zero() -> None:
    assert cost_nano_usd("my-own-model", 1_000, AT, {"my-own-model": 0}) == 0


def test_without_the_extra_only_custom_prices_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prices, "find_spec", lambda _: None)
    prices._find.cache_clear()  # noqa: SLF001 - as in a new process
    try:
        assert cost_nano_usd("gpt-4o", 1_000, AT) is None
        assert cost_nano_usd("gpt-4o", 1_000_000, AT, {"gpt-4o": 7}) == 7
    finally:
        prices._find.cache_clear()  # noqa: SLF001


@given(
    st.sampled_from(["gpt-4o", "gpt-5.6-sol", "o3", "claude-sonnet-4-5", "gemini-2.5-pro"]),
    st.tuples(*[st.integers(0, 500_000)] * 4),
)
def test_the_cost_of_a_call_is_that_of_the_table(
    model: str, tokens: tuple[int, int, int, int]
) -> None:
    fresh, output, read, written = tokens
    usage = BilledTokens(fresh + read + written, output, read, written)
    table = Usage(
        input_tokens=usage.input,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    price = calc_price(table, model_ref=model, genai_request_timestamp=AT).total_price
    cost = usage_cost_nano_usd(model, usage, AT)
    assert cost is not None
    assert abs(cost - price * 10**9) <= Decimal("0.5")


def test_cached_input_costs_less_than_fresh_input() -> None:
    fresh = usage_cost_nano_usd("gpt-4o", BilledTokens(10_000), AT)
    cached = usage_cost_nano_usd("gpt-4o", BilledTokens(10_000, cache_read=9_000), AT)
    assert fresh == cost_nano_usd("gpt-4o", 10_000, AT) == 25_000_000
    assert cached == 13_750_000


def test_cached_tokens_beyond_the_input_are_not_billed_twice() -> None:
    everything = usage_cost_nano_usd("gpt-4o", BilledTokens(100, cache_read=100), AT)
    assert usage_cost_nano_usd("gpt-4o", BilledTokens(100, 0, 500, 500), AT) == everything


def test_custom_prices_of_a_call_come_first() -> None:
    rates = {"mine": Rate(1_000_000, output=4_000_000, cache_read=100_000, cache_write=1_250_000)}
    usage = BilledTokens(1_000, output=100, cache_read=500, cache_write=200)
    assert usage_cost_nano_usd("mine", usage, AT, rates) == 300 + 50 + 250 + 400
    assert usage_cost_nano_usd("host/mine", usage, AT, rates) == 1_000
    only_input = {"mine": Rate(1_000_000)}
    assert usage_cost_nano_usd("mine", BilledTokens(1_000, 0, 500), AT, only_input) == 1_000
    assert usage_cost_nano_usd("mine", usage, AT, only_input) is None


@pytest.mark.parametrize("model", [None, "", "my-own-model"])
def test_a_call_of_an_unknown_model_has_no_cost(model: str | None) -> None:
    assert usage_cost_nano_usd(model, BilledTokens(1_000, 10), AT) is None
