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
from headwater.messages.parts import Blob, ModelRequest, Part, Role, TextPart, ToolCall, ToolResult
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

    It renders the request without the bytes of its images, and usual ones not at all.
    """
    providers = providers_of(request.model) if provider is None else (provider,)
    # Gemini wants calls to have signatures.
    if _is_plain(request, calls="gemini" not in (request.model or "")):
        return ()
    request = _without_bytes(request)
    return tuple(loss for name in providers for loss in render(request, name).losses)


def _is_plain(request: ModelRequest, *, calls: bool) -> bool:
    """Return True if a request certainly loses nothing, much faster than by rendering it.

    That is so for unmarked texts, the system's first, and for calls that their results follow.
    """
    started = False
    unanswered: set[str] = set()
    calls = calls and bool(request.tools)
    for message in request.messages:
        role = message.role
        if (role == "system" and started) or (role != "tool" and unanswered):
            return False
        started = started or role != "system"
        for part in message.parts:
            if part.cache or not _is_usual(part, role, unanswered):
                return False
        if unanswered and not calls:
            return False
    return not unanswered and not any(tool.cache for tool in request.tools)


def _is_usual(part: Part, role: Role, unanswered: set[str]) -> bool:
    if type(part) is TextPart:
        return role != "tool"
    if type(part) is ToolCall:
        is_new = part.id not in unanswered
        unanswered.add(part.id)
        return is_new and role == "assistant" and type(part.arguments) is dict
    if type(part) is ToolResult and role == "tool" and part.id in unanswered:
        unanswered.remove(part.id)
        return not part.is_error and not isinstance(part.response, list)
    return False


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
