"""What all renderers share: losses, and the turns of a request with calls and results paired."""

from __future__ import annotations

from typing import Literal, NamedTuple

Provider = Literal["openai", "openai_responses", "anthropic", "gemini"]
"""The shapes of a request, by the API that takes them."""


class RenderLoss(NamedTuple):
    """Something that a provider cannot be sent as it was declared, and where it stands.

    `message` and `part` are places in the request; `message` is None for a tool, whose place among
    the tools is `part`.
    """

    name: str
    provider: Provider
    message: int | None
    part: int
