"""Requests as the providers take them: one renderer for each API, and what each cannot express."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from msgspec.structs import replace

from headwater.core.logging import log
from headwater.core.models import default_models
from headwater.messages.anthropic import render_anthropic
from headwater.messages.gemini import render_gemini
from headwater.messages.openai import render_chat, render_responses
from headwater.messages.parts import Blob, ModelRequest, Part, TextPart
from headwater.messages.turns import Block, Provider, Rendered, RenderLoss

PROVIDERS: tuple[Provider, ...] = get_args(Provider)


def providers_of(model: str | None) -> tuple[Provider, ...]:
    """Return the APIs that serve a model, by its name; all of them for an unknown one."""
    provider = default_models().find(model).provider
    if provider == "openai":
        return ("openai", "openai_responses")
    return (provider,) if provider is not None else PROVIDERS


def render(request: ModelRequest, provider: Provider) -> Rendered:
    """Return a request as a provider takes it, and what of it cannot be expressed."""
    return _RENDERERS[provider](request)


def body(request: ModelRequest, provider: Provider, **fields: str) -> Block:
    """Return a request as a provider takes it; a log record has what cannot be expressed."""
    rendered = render(request, provider)
    if rendered.losses:
        names = ", ".join(sorted({loss.name for loss in rendered.losses}))
        log.warning("request not fully expressed", provider=provider, losses=names, **fields)
    return rendered.body


def losses(request: ModelRequest, provider: Provider | None = None) -> tuple[RenderLoss, ...]:
    """Return what a provider cannot express of a request; without one, all that serve its model.

    It renders the request without the bytes of its images, and plain text not at all.
    """
    if _is_plain(request):
        return ()
    request = _without_bytes(request)
    providers = providers_of(request.model) if provider is None else (provider,)
    return tuple(loss for name in providers for loss in render(request, name).losses)


def _is_plain(request: ModelRequest) -> bool:
    """Return True if every provider can express a request: unmarked texts, the system's first."""
    started = False
    for message in request.messages:
        if message.role == "system":
            if started:
                return False
        elif message.role == "tool":
            return False
        else:
            started = True
        for part in message.parts:
            if type(part) is not TextPart or part.cache:
                return False
    return not any(tool.cache for tool in request.tools)


def _without_bytes(request: ModelRequest) -> ModelRequest:
    """Return a request with empty images, because their bytes take the most time to render."""
    if not any(isinstance(part, Blob) for message in request.messages for part in message.parts):
        return request
    messages = tuple(
        replace(message, parts=tuple(_without_content(part) for part in message.parts))
        for message in request.messages
    )
    return replace(request, messages=messages)


def _without_content(part: Part) -> Part:
    return replace(part, content=b"") if isinstance(part, Blob) else part


_RENDERERS: dict[Provider, Callable[[ModelRequest], Rendered]] = {
    "openai": render_chat,
    "openai_responses": render_responses,
    "anthropic": render_anthropic,
    "gemini": render_gemini,
}
