"""Counting the tokens of a request: its texts, and what a provider adds around them."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.core.tokens import Tokenizer, tokenizer_for
from headwater.messages.parts import Part, Tool
from headwater.messages.texts import part_text

Grade = Literal["exact", "provider", "estimate"]
"""How a count was made: by the model's own tokenizer, by the provider, or by an estimate."""


class RequestCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the parts of a request; the counts are additive, except for texts of one message.

    The tokenizer counts the texts of a message, joined.
    """

    tokenizer: Tokenizer
    grade: Grade
    source: str
    """Where the numbers come from, such as ``o200k_base`` and the date of the table."""
    request_tokens: int
    """The tokens of a request without messages."""
    message_tokens: int
    """The tokens of a message without parts: its role and its ends."""
    tools_tokens: int
    """The tokens that a request with tools has in addition to those of each tool."""
    window: int | None = None
    """The tokens of a request and its answer together, if the model is known."""

    def part_tokens(self, part: Part | Tool) -> int:
        """Return the tokens of a tool, or of a part that is not text."""
        return self.tokenizer.count(part_text(part))


def counter_for(model: str | None) -> RequestCounter:
    """Return the counter of a model."""
    tokenizer = tokenizer_for(model)
    return RequestCounter(
        tokenizer=tokenizer,
        grade="exact" if tokenizer.exact else "estimate",
        source=tokenizer.name,
        request_tokens=3,
        message_tokens=4,
        tools_tokens=12,
    )
