"""Counting: equal to OpenAI's own, for any text, and by the right encoding for each model."""

from __future__ import annotations

import subprocess
import sys
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.tokens import Tokenizer, _RecentCache, tokenizer_for
from tests.core.token_texts import ESTIMATE, EXACT, fresh_count, special_tokens, texts

O200K, CL100K = EXACT

# Counted with tiktoken 0.14.
KNOWN = [
    ("", 0, 0),
    ("a", 1, 1),
    (" ", 1, 1),
    ("\n\n", 1, 1),
    ("…", 1, 1),
    ("hello world", 2, 2),
    ("Hello, world!\n", 4, 4),
    ("tiktoken is great!", 6, 6),
    ("antidisestablishmentarianism", 6, 6),
    ("2 + 2 = 4", 7, 7),
    ("1234567890", 4, 4),
    ("don't DON'T it's IT'S", 5, 8),
    ("  indented\n\tand tabbed  \n\n", 8, 8),
    ("\r\n\r\n//\n", 2, 2),
    (" " * 80, 2, 1),
    ("x" * 64, 8, 8),
    ("The quick brown fox jumps over the lazy dog. " * 20, 201, 201),
    ('def f(x: int) -> str:\n    return f"{x!r}"\n', 17, 17),
    ('{"order_id": 7919, "amount": 12.50}', 16, 16),
    ("SELECT user_id, count(*) FROM orders GROUP BY 1;", 13, 13),
    ("https://example.com/a/b?c=1#d", 12, 12),
    ("你好\uff0c世界。今天天气很好。", 9, 16),
    ("お誕生日おめでとう", 8, 9),
    ("안녕하세요 세계", 3, 9),
    ("Привет, мир", 4, 6),
    ("नमस्ते दुनिया", 5, 13),
    ("مرحبا بالعالم", 4, 10),
    ("👩‍💻 shipped 🚀🚀", 10, 14),
    ("🇩🇪🇯🇵", 8, 12),
    ("<|endoftext|>", 7, 7),
    ("a<|im_start|>system<|im_end|>b", 15, 15),
    ("<|fim_prefix|><|endofprompt|>", 12, 13),
    ("\x00\x01\x1f", 3, 3),
    ("\ufeffe\u0301\u200d", 4, 5),
]


@pytest.mark.parametrize("tokenizer", EXACT, ids=lambda tokenizer: tokenizer.name)
def test_no_special_token_is_more_than_its_text(tokenizer: Tokenizer) -> None:
    special = special_tokens(tokenizer)
    assert "<|endoftext|>" in special
    for token in special:
        text = f"a {token} b"
        assert tokenizer.count(text) == fresh_count(tokenizer, text), token


@pytest.mark.parametrize(("text", "o200k", "cl100k"), KNOWN)
def test_counts_are_those_of_tiktoken(text: str, o200k: int, cl100k: int) -> None:
    assert (O200K.count(text), CL100K.count(text)) == (o200k, cl100k)


@given(texts, st.integers(1, 30), st.sampled_from(EXACT))
def test_a_cached_count_equals_a_fresh_one(text: str, times: int, tokenizer: Tokenizer) -> None:
    long = text * times
    assert tokenizer.count(long) == tokenizer.count(long) == fresh_count(tokenizer, long)


def test_a_lone_surrogate_counts_as_its_replacement() -> None:
    assert O200K.count("a\ud83db") == O200K.count("a\ufffdb")
    assert O200K.count("\ud83d\ude00") == O200K.count("😀")


def test_the_cache_of_counts_is_bounded_and_evicts_the_least_recently_used() -> None:
    recent: _RecentCache[str, int] = _RecentCache(2)
    for key in ("a", "b", "a", "c"):
        recent.put(key, 1)
    assert [recent.get(key) for key in ("a", "b", "c")] == [1, None, 1]


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("The parcel left the warehouse on Monday. ", 250_000),
        ("x", 130_000),
        (" ", 10_000),
        ("\n", 70_000),
        ("汉字和标点。", 1_000_000),
        ("👩‍💻", 2_000_000),
        ("ACGT", 500_000),
    ],
)
def test_a_million_characters_are_counted_in_a_moment(kind: str, most: int) -> None:
    text = kind * (1_000_000 // len(kind))
    started = thread_time()
    assert 0 < O200K.count(text) <= most
    assert thread_time() - started < 10


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-4o", "gpt-4o-mini", "gpt-4o-2024-08-06", "gpt-4o:extended", "chatgpt-4o-latest"),
        *("gpt-4.1", "gpt-4.1-nano", "gpt-4.5-preview", "gpt-5", "gpt-5-mini-2025-08-07"),
        *("gpt-5.1", "gpt-5.2-pro", "gpt-5.3-codex", "gpt-oss-120b", "GPT-4o", "openai/gpt-4o"),
        *("o1", "o1-preview", "o3", "o3-mini", "o4-mini", "o4-mini-deep-research"),
        *("azure/gpt-5", "openrouter/openai/o3", "ft:gpt-4o-mini-2024-07-18:acme::abc123"),
    ],
)
def test_newer_openai_models_are_counted_exactly_by_o200k(model: str) -> None:
    assert tokenizer_for(model) == O200K


@pytest.mark.parametrize(
    "model",
    [
        *("gpt-4", "gpt-4-0613", "gpt-4-32k", "gpt-4-turbo", "gpt-4-1106-preview", "gpt-3.5"),
        *("gpt-3.5-turbo", "gpt-3.5-turbo-16k", "gpt-35-turbo", "ft:gpt-3.5-turbo:acme::1"),
        *("text-embedding-3-small", "text-embedding-3-large", "text-embedding-ada-002"),
        *("davinci-002", "babbage-002", "azure/gpt-4"),
    ],
)
def test_older_openai_models_are_counted_exactly_by_cl100k(model: str) -> None:
    assert tokenizer_for(model) == CL100K


@pytest.mark.parametrize(
    "model",
    [
        *(None, "", "claude-sonnet-4-5", "gemini-2.5-pro", "llama-3.3-70b", "mistral-large"),
        *("gpt-4.2", "gpt-40", "gpt-7", "o2", "o10", "my-gpt-4o", "text-davinci-003", "gpt2"),
    ],
)
def test_other_models_are_estimated_with_a_margin(model: str | None) -> None:
    assert tokenizer_for(model) == ESTIMATE


@given(st.integers(0, 10**9), st.integers(0, 300))
def test_a_budget_and_its_usable_part_agree(tokens: int, margin: int) -> None:
    tokenizer = Tokenizer("cl100k_base", exact=margin == 0, margin_percent=margin)
    budget = tokenizer.budget_for(tokens)
    assert tokenizer.usable(budget) >= tokens
    assert tokens == 0 or tokenizer.usable(budget - 1) < tokens


def test_nothing_is_loaded_before_something_is_counted() -> None:
    modules = "headwater.contexts.budget, headwater.core.prices"
    script = f"import sys, {modules}; print('splintr' in sys.modules)"
    command = [sys.executable, "-c", script]
    assert subprocess.check_output(command, text=True, timeout=100).strip() == "False"


@given(texts, st.integers(4, 40))
def test_the_fitting_beginning_has_at_most_the_limit(text: str, limit: int) -> None:
    length = CL100K.fitting(text, limit)

    assert CL100K.recount(text[:length]) <= limit
    assert length > 0 or not text
