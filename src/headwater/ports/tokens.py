"""Counting the tokens of whole requests."""

from __future__ import annotations

from typing import Protocol

from headwater.messages.parts import Grade, ModelRequest


class TokenCounter(Protocol):
    """Counts what a model gets: messages, tools and everything that is sent around them.

    Equal requests have equal counts, and the second one costs no call.
    """

    @property
    def grade(self) -> Grade:
        """How the count is made."""

    @property
    def source(self) -> str:
        """Where the count comes from, such as ``anthropic`` or a ``tokenizer.json``."""

    async def count(self, request: ModelRequest) -> int:
        """Return the tokens of a request.

        Raises:
            InvalidInputError: The model cannot take these messages.
            TokenCountError: The count is not to be had at present; the estimate stays.
        """

    async def close(self) -> None:
        """Close the connections, if there are any."""
