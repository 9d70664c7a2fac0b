"""Requests as the providers take them: one renderer for each API, and what each cannot express."""

from __future__ import annotations

from typing import get_args

from headwater.messages.parts import ModelRequest
from headwater.messages.turns import Provider, RenderLoss

PROVIDERS: tuple[Provider, ...] = get_args(Provider)
_BY_PREFIX: tuple[tuple[tuple[str, ...], tuple[Provider, ...]], ...] = (
    (("gpt", "chatgpt", "o1", "o3", "o4"), ("openai", "openai_responses")),
    (("claude",), ("anthropic",)),
    (("gemini",), ("gemini",)),
)


def providers_of(model: str | None) -> tuple[Provider, ...]:
    """Return the APIs that serve a model, by its name; all of them for an unknown one."""
    name = (model or "").lower().rpartition("/")[2].removeprefix("ft:")
    for prefixes, providers in _BY_PREFIX:
        if name.startswith(prefixes):
            return providers
    return PROVIDERS


def losses(request: ModelRequest, provider: Provider | None = None) -> tuple[RenderLoss, ...]:
    """Return what a provider cannot express of a request; without one, all that serve its model."""
    return ()
