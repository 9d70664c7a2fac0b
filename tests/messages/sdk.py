"""The types of the providers' own clients: a body that is not one of them is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from google.genai.types import GenerateContentConfig, _GenerateContentParameters
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from headwater.messages.turns import Provider

MODELS: dict[Provider, str] = {
    "openai": "gpt-5.6",
    "openai_responses": "gpt-5.6",
    "anthropic": "claude-opus-5",
    "gemini": "gemini-3.8-flash",
}
_ADAPTERS: dict[Provider, TypeAdapter[Any]] = {
    "openai": TypeAdapter(CompletionCreateParamsNonStreaming),
    "openai_responses": TypeAdapter(ResponseCreateParamsNonStreaming),
    "anthropic": TypeAdapter(MessageCreateParamsNonStreaming),
}


def check(provider: Provider, body: dict[str, Any]) -> None:
    """Raise if a body is not what the provider's client takes, or has more fields."""
    body = {"model": MODELS[provider]} | body
    if provider == "gemini":
        _GenerateContentParameters.model_validate(body)
        GenerateContentConfig.model_validate(body.get("config", {}))
    else:
        assert _read(_ADAPTERS[provider].validate_python(body)) == body


def _read(value: Any) -> Any:
    """Return what pydantic validates only while it is read: the items of iterables."""
    if isinstance(value, dict):
        return {name: _read(item) for name, item in value.items()}
    if isinstance(value, list | tuple | Iterator):
        return [_read(item) for item in value]
    return value
