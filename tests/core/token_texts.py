"""Texts that tokenizers find hard, and a count that shares nothing with ours but the encoding."""

from __future__ import annotations

from functools import cache

import splintr
from hypothesis import strategies as st

from headwater.core.tokens import Tokenizer

EXACT = [Tokenizer(name, exact=True, margin_percent=0) for name in ("o200k_base", "cl100k_base")]
ESTIMATE = Tokenizer("cl100k_base", exact=False, margin_percent=30)

SEPARATORS = ["\n\n", "\n", " ", "", ", ", "\n---\n", "/", "'", "|", "\t", "s"]

_PIECES = [
    *("a", "word", "Words", "don't", "'s", "supercalifragilistic", "42", "1234567", "É", "ß", "x1"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2028"),
    *(".", "...", ",", "/", "//", "'", '"', "…", "-", "{", "}", "<|endoftext|>", "</s>"),
    *(
        "你好",
        "世界。",
        "はい、",
        "한국어",
        "नमस्ते",
        "مرحبا",
        "👩‍💻",
        "🚀",
        "e\u0301",
        "\ufeff",
        "\u200d",
    ),
    *("\ud83d", "\ude00", "\x00"),
]

words = st.lists(st.sampled_from(["one", "two", "three", "Müller", "42", "世界"]), max_size=12)
texts = st.one_of(
    words.map(" ".join),
    st.lists(st.sampled_from(_PIECES), max_size=8).map("".join),
    st.text(max_size=12),
)


def fresh_count(tokenizer: Tokenizer, text: str) -> int:
    """Tokens counted past all that is remembered."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return len(_encoding(tokenizer.name).encode_ordinary(whole))


def special_tokens(tokenizer: Tokenizer) -> list[str]:
    """All that its vocabulary knows."""
    return list(_encoding(tokenizer.name).special_tokens())


@cache
def _encoding(name: str) -> splintr.AnyTokenizer:
    return splintr.Tokenizer.from_pretrained(name)
