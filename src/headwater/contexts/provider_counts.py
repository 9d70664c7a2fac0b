"""Counting the tokens of whole requests: by a provider's endpoint, or by a chat template."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import httpx
import msgspec

from headwater.core.clock import Clock
from headwater.core.http_urls import without_credentials
from headwater.core.models import Model
from headwater.core.models import Provider as ModelProvider
from headwater.errors import TokenCountError
from headwater.messages.chat_templates import load_chat_template
from headwater.messages.parts import Grade, ModelRequest
from headwater.messages.rendering import render
from headwater.messages.turns import Provider
from headwater.settings.groups import TokenSettings
from headwater.settings.schema import Settings

_CACHED_COUNTS = 1_024
_LARGEST_ANSWER = 65_536
_encode = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct):
    """The count, under the name that one of the providers gives it."""

    input_tokens: int | None = None
    total_tokens: int | None = msgspec.field(default=None, name="totalTokens")


_decode = msgspec.json.Decoder(_Answer).decode


class _Endpoint(NamedTuple):
    """Where and how a provider is asked; `{model}` in the path is the name of the model."""

    api: Provider
    path: str
    body: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    headers: Callable[[str], dict[str, str]]
    variable: str


def _responses_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _only(body, "model", "input", "instructions", "tools")


def _anthropic_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _only(body, "model", "messages", "system", "tools")


def _gemini_body(body: Mapping[str, Any]) -> Mapping[str, Any]:
    config = body.get("config", {})
    name = str(body["model"]).rpartition("/")[2]
    counted = {"model": f"models/{name}", "contents": body["contents"]}
    if "tools" in config:
        counted["tools"] = config["tools"]
    if "system_instruction" in config:
        counted["system_instruction"] = {"parts": [{"text": config["system_instruction"]}]}
    # Only as a whole request its system instruction and its tools are counted.
    return {"generate_content_request": counted}


def _only(body: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return {name: body[name] for name in names if name in body}


_ENDPOINTS: dict[ModelProvider, _Endpoint] = {
    "openai": _Endpoint(
        "openai_responses",
        "/responses/input_tokens",
        _responses_body,
        lambda key: {"authorization": f"Bearer {key}"},
        "OPENAI_API_KEY",
    ),
    "anthropic": _Endpoint(
        "anthropic",
        "/v1/messages/count_tokens",
        _anthropic_body,
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
        "ANTHROPIC_API_KEY",
    ),
    "gemini": _Endpoint(
        "gemini",
        "/models/{model}:countTokens",
        _gemini_body,
        lambda key: {"x-goog-api-key": key},
        "GEMINI_API_KEY",
    ),
}


class ProviderCounter:
    """A provider's own count of a request; counts are cached by the hash of what is sent."""

    grade: Grade = "provider"

    def __init__(self, provider: ModelProvider, settings: Settings) -> None:
        tokens = settings.tokens
        self.source: str = provider
        self._endpoint = _ENDPOINTS[provider]
        # The key of OpenAI itself is for its own address only.
        is_openai = tokens.openai_url == TokenSettings().openai_url
        openai_key = settings.embeddings.openai_api_key if is_openai else ""
        self._url, self._key = {
            "openai": (tokens.openai_url, tokens.openai_api_key or openai_key),
            "anthropic": (tokens.anthropic_url, tokens.anthropic_api_key),
            "gemini": (tokens.gemini_url, tokens.gemini_api_key),
        }[provider]
        self._timeout = tokens.timeout
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._client: httpx.AsyncClient | None = None

    async def count(self, request: ModelRequest) -> int:
        """Return the provider's count; raise TokenCountError if there is none."""
        body = self._endpoint.body(render(request, self._endpoint.api).body)
        content = _encode(body)
        digest = sha256(content).digest()
        tokens = self._counts.get(digest)
        if tokens is None:
            tokens = await self._ask(content, str(body.get("model") or request.model))
            self._counts[digest] = tokens
            if len(self._counts) > _CACHED_COUNTS:
                self._counts.popitem(last=False)
        else:
            self._counts.move_to_end(digest)
        return tokens

    async def _ask(self, content: bytes, model: str) -> int:
        endpoint = self._endpoint
        if not self._key:
            raise TokenCountError(self.source, "there is no API key", f"set {endpoint.variable}")
        path = endpoint.path.format(model=model.rpartition("/")[2])
        url, auth = without_credentials(httpx.URL(self._url.rstrip("/") + path))
        if self._client is None:
            self._client = httpx.AsyncClient()
        headers = {**endpoint.headers(self._key), "content-type": "application/json"}
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._client.stream(
                    "POST", url, content=content, headers=headers, auth=auth, timeout=self._timeout
                ) as response,
            ):
                answer = b""
                async for part in response.aiter_bytes():
                    answer += part
                    if len(answer) > _LARGEST_ANSWER:
                        break
        except (httpx.HTTPError, TimeoutError) as error:
            problem = str(error) or f"no answer within {self._timeout:g} s"
            raise TokenCountError(
                self.source, problem, "check the network, or raise tokens.timeout"
            ) from error
        return self._read(response.status_code, answer)

    def _read(self, status: int, answer: bytes) -> int:
        if status != httpx.codes.OK:
            # The answer may quote texts of the request, so only its status is told.
            raise TokenCountError(
                self.source, f"it answered with {status}", "check the key and the model"
            )
        try:
            counts = _decode(answer)
        except msgspec.DecodeError as error:
            counts = _Answer()
            problem = f"its answer cannot be read: {error}"
        else:
            problem = "its answer has no count"
        tokens = counts.total_tokens if counts.input_tokens is None else counts.input_tokens
        if tokens is None:
            raise TokenCountError(self.source, problem, f"check tokens.{self.source}_url")
        return tokens

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


class TemplateCounter:
    """The count of a request by the chat template and the tokenizer of an open model."""

    grade: Grade = "exact"

    def __init__(self, folder: str, model: Model, clock: Clock) -> None:
        self._template = load_chat_template(folder)
        self.source = self._template.tokenizer.name
        self._model = model
        self._clock = clock

    async def count(self, request: ModelRequest) -> int:
        """Return the tokens of the rendered request, counted in a thread."""
        return await asyncio.to_thread(
            self._template.count, request, self._clock.now(), self._model.image
        )

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def counter_of(
    model: Model, settings: Settings, clock: Clock
) -> ProviderCounter | TemplateCounter | None:
    """Return what counts whole requests to a model, or None if nothing does.

    It reads the files of an open model, so call it in a thread.
    """
    if model.folder is not None:
        return TemplateCounter(model.folder, model, clock)
    return None if model.provider is None else ProviderCounter(model.provider, settings)
