"""Requests as the text that an open model reads: its chat template and its tokenizer, from files.

The files are those that come with the model: ``tokenizer.json``, ``tokenizer_config.json`` and,
with some models, ``chat_template.jinja``. The template runs in a sandbox of jinja2, with the names
that transformers gives it, so the text is the one that a server of the model makes of the messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwater.core.encodings import folder_encoding
from headwater.core.models import ImageRule
from headwater.core.tokens import Tokenizer
from headwater.errors import ConfigError, InvalidInputError, MissingExtraError
from headwater.messages.images import image_tokens
from headwater.messages.parts import (
    Blob,
    Message,
    ModelRequest,
    Reasoning,
    TextPart,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.texts import json_text

_CONFIG = "tokenizer_config.json"
_LOADED_TEMPLATES = 16
# transformers marks answers of the model with it for training; here it is a plain block.
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_MISTAKES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a template raises that does not expect these messages, besides errors of jinja2."""


class ChatTemplate:
    """The chat template and the tokenizer of a model, from the files of a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        config = _read_config(Path(folder))
        self.tokenizer = Tokenizer(folder_encoding(folder), exact=True, margin_percent=0)
        self._variables = {
            name: value["content"] if isinstance(value, dict) else value
            for name, value in config.items()
            if name.endswith("_token") and isinstance(value, str | dict)
        }
        self._templates = _templates(Path(folder), config)
        self._environment = _environment()

    def render(self, request: ModelRequest, now: datetime) -> str:
        """Return the text of a request, up to where the model begins its answer.

        Args:
            request: The messages and the tools.
            now: The time of which some templates state the day.

        Raises:
            InvalidInputError: The template refuses the messages, such as two of one role.
        """
        tools = [{"type": "function", "function": _function(tool)} for tool in request.tools]
        source = self._templates["default"]
        if tools and "tool_use" in self._templates:
            source = self._templates["tool_use"]
        jinja2 = import_module("jinja2")
        try:
            template = self._environment.from_string(_GENERATION.sub(_plain_block, source))
            text: str = template.render(
                messages=list(_chat_messages(request)),
                tools=tools or None,
                documents=None,
                add_generation_prompt=True,
                strftime_now=now.strftime,
                **self._variables,
            )
        except (jinja2.TemplateError, *_MISTAKES) as error:
            raise InvalidInputError(
                f"the chat template in {self.folder} cannot render these messages: {error}; send "
                "messages of the roles and in the order that the model was trained with"
            ) from error
        return text

    def count(self, request: ModelRequest, now: datetime, image: ImageRule) -> int:
        """Return the tokens of a request; texts that look like special tokens are such tokens.

        That is what servers of open models do, which tokenise the whole text at once.
        """
        images = (
            image_tokens(part, image)
            for message in request.messages
            for part in message.parts
            if isinstance(part, Blob | Uri)
        )
        return self.tokenizer.recount_whole(self.render(request, now)) + sum(images)


@lru_cache(_LOADED_TEMPLATES)
def load_chat_template(folder: str) -> ChatTemplate:
    """Return the template and tokenizer of a folder; raise ConfigError if a file is missing."""
    for module in ("jinja2", "tokenizers"):
        if not find_spec(module):
            raise MissingExtraError("the chat template of an open model", "chat")
    return ChatTemplate(folder)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder / _CONFIG} cannot be read: {error}; give the folder of a model that has "
            f"tokenizer.json and {_CONFIG}"
        ) from error
    return config


def _templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    file = folder / "chat_template.jinja"
    found = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
    if isinstance(found, list):
        return {"default": "", **{entry["name"]: entry["template"] for entry in found}}
    if not isinstance(found, str):
        raise ConfigError(
            f"the model in {folder} has no chat template: there is neither chat_template.jinja nor "
            f"chat_template in {_CONFIG}"
        )
    return {"default": found}


def _environment() -> Any:
    sandbox = import_module("jinja2.sandbox")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the arguments of transformers
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Return JSON that is not escaped for HTML, unlike that of jinja2."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise ValueError(message)


def _plain_block(match: re.Match[str]) -> str:
    return f"{{%{match[1]} {'endif' if match[2] else 'if true'} {match[3]}%}}"


def _function(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }


def _chat_messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    """Yield messages in the form of OpenAI's, except that arguments of calls are objects."""
    names: dict[str, str] = {}
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
        rest = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                response = part.response
                yield {
                    "role": "tool",
                    "tool_call_id": part.id,
                    "name": names.get(part.id, ""),
                    "content": response if isinstance(response, str) else json_text(response),
                }
        if rest:
            yield _chat_message(Message(role=message.role, parts=tuple(rest)))


def _chat_message(message: Message) -> dict[str, Any]:
    rendered: dict[str, Any] = {"role": message.role, "content": message.text}
    if any(isinstance(part, Blob | Uri) for part in message.parts):
        rendered["content"] = [
            {"type": "text", "text": part.content}
            if isinstance(part, TextPart)
            else {"type": "image"}
            for part in message.parts
            if isinstance(part, TextPart | Blob | Uri)
        ]
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if calls:
        rendered["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
    thoughts = [part.content for part in message.parts if isinstance(part, Reasoning)]
    if thoughts:
        rendered["reasoning_content"] = "".join(thoughts)
    return rendered
