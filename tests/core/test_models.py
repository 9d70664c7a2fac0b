"""The table of models: names, providers, windows, and the setting on top."""

from __future__ import annotations

from datetime import date

import pytest

from headwater.core.models import ModelOverride, ModelTable, default_models
from headwater.errors import InvalidInputError

find = default_models().find


@pytest.mark.parametrize(
    ("name", "family", "provider"),
    [
        ("gpt-4o-2024-08-06", "gpt-4o", "openai"),
        ("gpt-4o-mini", "gpt-4o-mini", "openai"),
        ("ft:gpt-4o-mini-2024-07-18:acme::abc", "gpt-4o-mini", "openai"),
        ("gpt-4", "gpt-4", "openai"),
        ("azure/gpt-35-turbo", "gpt-4", "openai"),
        ("gpt-5-nano", "gpt-5-mini", "openai"),
        ("o3", "gpt-5", "openai"),
        ("gpt-5.4", "gpt-6", "openai"),
        ("gpt-6-sol", "gpt-6", "openai"),
        ("gpt-6.1-terra", "gpt-6", "openai"),
        ("global.openai.gpt-6-astra", "gpt-6", "openai"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-3", "anthropic"),
        ("claude-3-5-sonnet-latest", "claude-3", "anthropic"),
        ("claude-opus-4-20250514", "claude-3", "anthropic"),
        ("claude-opus-4-7", "claude-4", "anthropic"),
        ("openrouter/anthropic/claude-opus-4.5", "claude-3", "anthropic"),
        ("anthropic/claude-sonnet-4.6:beta", "claude-3", "anthropic"),
        ("claude-fable-5-1", "claude-4", "anthropic"),
        ("models/gemini-2.5-pro", "gemini-2", "gemini"),
        ("gemini-4-argon", "gemini-3", "gemini"),
        ("meta-llama/Llama-3.1-8B", "unknown", None),
        ("gpt-7", "unknown", None),
        ("gpt-4ocean", "unknown", None),
        ("", "unknown", None),
        (None, "unknown", None),
    ],
)
def test_a_model_is_found_by_its_name(name: str | None, family: str, provider: str | None) -> None:
    model = find(name)
    assert (model.family, model.provider) == (family, provider)
    assert (model.encoding is not None) == (provider == "openai")


def test_a_window_is_that_of_the_model() -> None:
    assert find("gpt-4").window == 8_192
    assert find("gpt-4-turbo").window == 128_000
    assert find("gpt-5.1").window == 400_000
    assert find("gpt-6-luna").window == 1_050_000
    assert find("claude-sonnet-4-5").window == 200_000
    assert find("my-own-model").window is None


def test_the_table_has_a_date() -> None:
    table = default_models()
    assert table.as_of >= date(2026, 11, 17)
    assert table.version >= 1


def test_a_setting_adds_models_and_changes_known_ones() -> None:
    table = ModelTable(
        {
            "my-proxy": ModelOverride(family="gpt-5", window=64_000),
            "gpt-7": ModelOverride(encoding="o200k_base", provider="openai"),
            "gpt-7-mini": ModelOverride(encoding="cl100k_base"),
            "Meta-Llama/Llama-4": ModelOverride(folder="/models/llama-4", output=4_096),
            "gpt-4o": ModelOverride(encoding="estimate"),
        }
    )
    proxy = table.find("my-proxy")
    assert (proxy.family, proxy.window, proxy.request_tokens) == ("gpt-5", 64_000, 2)
    assert table.find("my-proxying").family == "unknown"
    assert table.find("gpt-7.1-sol").encoding == "o200k_base"
    assert table.find("gpt-7-mini-2027").encoding == "cl100k_base"
    llama = table.find("llama-4-scout")
    assert (llama.folder, llama.max_output) == ("/models/llama-4", 4_096)
    assert (table.find("gpt-4o").encoding, table.find("gpt-4o").margin_percent) == (None, 30)
    assert table.find("gpt-4o").window == 128_000
    assert table.find("gpt-4.1") == find("gpt-4.1")


def test_a_family_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"'gpt-9' of 'mine' is not a family.* gpt-4o, "):
        ModelTable({"mine": ModelOverride(family="gpt-9")})
