"""Counting the tokens of a request: its texts, and what a provider adds around them."""

from __future__ import annotations

from functools import cache, lru_cache

import msgspec

from headwater.core.models import UNKNOWN, Model, ModelTable, default_models
from headwater.core.prices import context_window
from headwater.core.tokens import Tokenizer, tokenizer_of
from headwater.messages.images import image_tokens
from headwater.messages.parts import (
    Blob,
    Grade,
    Part,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.texts import is_image_block, json_text, part_text
from headwater.messages.tool_types import tool_type

_CACHED_MODELS = 256


class RequestCounter(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the parts of a request; the counts are additive, except for texts of one message.

    The tokenizer counts the texts of a message, joined. Of text alone the count is the provider's
    own if the grade is ``exact``; everything else is estimated, by at least what was recorded.
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
    model: Model
    window: int | None = None
    """The tokens of a request and its answer together, if the model is known."""

    def part_tokens(self, part: Part | Tool) -> int:
        """Return the tokens of a tool, or of a part that is not text."""
        count, model = self.tokenizer.count, self.model
        match part:
            case Tool():
                is_typed = model.provider == "openai"
                return count(tool_type(part) if is_typed else part_text(part))
            case ToolCall():
                # The provider names the tool again where its result is.
                return model.call_tokens + 2 * count(part.name) + count(json_text(part.arguments))
            case ToolResult():
                return self._result_tokens(part.response)
            case Blob() | Uri():
                return image_tokens(part, model.image)
            case Reasoning():
                return count(part.content or part_text(part))
            case TextPart():
                return count(part.content)

    def _result_tokens(self, response: object) -> int:
        """Return the tokens of a tool's result; an image in it costs what its address would."""
        count = self.tokenizer.count
        if isinstance(response, str):
            return count(response)
        if not isinstance(response, list):
            return count(json_text(response))
        images = [block for block in response if is_image_block(block)]
        others = [block for block in response if not is_image_block(block)]
        return count(json_text(others)) + len(images) * image_tokens(Uri(uri=""), self.model.image)

    def part_grade(self, part: Part | Tool) -> Grade:
        """Return the grade of the count of a part; that of a request is the worst of its parts."""
        return self.grade if isinstance(part, TextPart) else "estimate"


class Counters:
    """The counters of models, by a table of models."""

    def __init__(self, models: ModelTable) -> None:
        self.models = models
        self.counter_for = lru_cache(_CACHED_MODELS)(self._counter_for)

    def _counter_for(self, model: str | None) -> RequestCounter:
        """Return the counter of a model."""
        found = self.models.find(model)
        tokenizer = tokenizer_of(found)
        if not tokenizer.exact:
            # Around messages there is more than text, so the margin may be larger than for text.
            tokenizer = msgspec.structs.replace(tokenizer, margin_percent=found.margin_percent)
        return RequestCounter(
            tokenizer=tokenizer,
            grade="exact" if tokenizer.exact and found.family != UNKNOWN else "estimate",
            source=f"{tokenizer.name}, models of {self.models.as_of}",
            request_tokens=found.request_tokens,
            message_tokens=found.message_tokens,
            tools_tokens=found.tools_tokens,
            model=found,
            window=found.window or context_window(model),
        )


@cache
def default_counters() -> Counters:
    """Return the counters without a setting."""
    return Counters(default_models())


def counter_for(model: str | None) -> RequestCounter:
    """Return the counter of a model, without a setting."""
    return default_counters().counter_for(model)
