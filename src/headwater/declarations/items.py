"""The parts of a context: items, and chunks that retrievers return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import NoneType
from typing import Any, Literal, Self, TypedDict, Unpack, get_args

import msgspec
from msgspec.structs import replace

from headwater.core.canonical_json import LARGEST
from headwater.core.templates import Template, parse_template
from headwater.errors import InvalidInputError
from headwater.messages.conversations import plan_conversation
from headwater.messages.images import mime_type_of
from headwater.messages.parsing import Dumpable, messages_of
from headwater.messages.parts import (
    Blob,
    Message,
    Part,
    Reasoning,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.texts import part_text
from headwater.model.values import check_utf8

WhenMissing = Literal["empty", "drop"]


class Chunk(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A piece of text that a retriever returned; of an index, also where it comes from."""

    text: str
    id: str | None = None
    score: float | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    document: str | None = None
    position: int | None = None
    content_hash: str | None = None
    version: int | None = None
    """The version of the document that brought this chunk."""
    indexed_at: datetime | None = None

    def __post_init__(self) -> None:
        kinds = (
            type(self.text),
            type(self.id),
            type(self.metadata),
            type(self.document),
            type(self.position),
            type(self.content_hash),
            type(self.version),
            type(self.indexed_at),
        )
        # The types of most chunks; a search creates many.
        if kinds not in _USUAL:
            _check_types("Chunk", self, _CHUNK)
        for text in (self.id, self.document, self.content_hash):
            if text is not None and not text.isascii():
                _check_identifiers(self)
        if self.score is not None and type(self.score) is not float:
            msgspec.structs.force_setattr(self, "score", _number(self.score))
        if self.indexed_at is not None and self.indexed_at.tzinfo is None:
            raise InvalidInputError(
                "indexed_at of a Chunk needs a time zone, for example datetime.now(UTC)"
            )


class ContextItem(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A part of a context; items with the lowest ``priority`` are dropped first.

    The content is literal text. Only ``ContextItem.template(…)`` resolves ``{feature}``, for the
    parameter of the context that has the name of the entity's id field.

    If an item of a context has a role, the context is messages: neighbours of one role are one
    message, and items without a role are of the user. Items of one ``group`` are kept or dropped
    together. With ``cache``, a provider may cache the request up to the end of this item.
    """

    content: str
    priority: int = 0
    required: bool = False
    source: Any = None
    truncate: bool = False
    section: str | None = None
    parsed: Template | None = None
    role: Role | None = None
    part: Part | Tool | None = None
    """What the item is if it is not plain text; ``content`` is its form in a record."""
    turn: int | None = None
    """The number of its message in a conversation: neighbours with another one are not joined."""
    group: str | None = None
    cache: bool = False
    tokens: int | None = None
    """The tokens of an image, if the caller knows them."""
    when_missing: WhenMissing = "empty"
    """Whether a template is left out if a feature in it has neither a value nor a fallback."""

    def __post_init__(self) -> None:
        # One condition for valid items, because a context creates many.
        if not (
            type(self.content) is str
            and type(self.priority) is int
            and -LARGEST <= self.priority <= LARGEST
            and type(self.required) is type(self.truncate) is bool
            and (self.section is None or type(self.section) is str)
            and (self.role is None or self.role in _ROLES)
            and (self.group is None or type(self.group) is str)
        ):
            _check_types("ContextItem", self, _ITEM)
            if abs(self.priority) > LARGEST:
                raise InvalidInputError(
                    f"priority of a ContextItem is a whole number within ±(2^53-1), which a record "
                    f"can hold, not {self.priority}"
                )
            if self.role is not None and self.role not in _ROLES:
                roles = ", ".join(_ROLES)
                raise InvalidInputError(
                    f"role of a ContextItem is one of {roles}, not {self.role!r}"
                )

    @classmethod
    def template(
        cls,
        text: str,
        *,
        priority: int = 0,
        required: bool = False,
        source: Any = None,
        truncate: bool = False,
        section: str | None = None,
        role: Role | None = None,
        group: str | None = None,
        cache: bool = False,
        when_missing: WhenMissing = "empty",
    ) -> Self:
        """Return an item whose ``{feature}`` references are resolved for the context's entity.

        A reference may have a format and a fallback, such as ``{balance:,.2f|unknown}``. If a
        feature has no value and no fallback, its place is empty; with ``when_missing="drop"``, the
        whole item is left out, also if it is required.
        """
        if when_missing not in get_args(WhenMissing):
            raise InvalidInputError(
                f"when_missing of a ContextItem is 'empty' or 'drop', not {when_missing!r}"
            )
        return cls(
            text,
            priority,
            required,
            source,
            truncate,
            section,
            parse_template(text),
            role=role,
            group=group,
            cache=cache,
            when_missing=when_missing,
        )

    @classmethod
    def tool_call(
        cls, name: str, arguments: Any = None, *, id: str, **options: Unpack[ItemOptions]
    ) -> Self:
        """Return a call of a tool by the model; its result is kept or dropped together with it."""
        given = {} if arguments is None else arguments
        call = ToolCall(id=_text(id, "id"), name=_text(name, "name"), arguments=given)
        return cls._of(call, "assistant", options)

    @classmethod
    def tool_result(
        cls, id: str, content: Any, *, is_error: bool = False, **options: Unpack[ItemOptions]
    ) -> Self:
        """Return what a tool returned for the call with this id: text or a JSON value.

        With ``is_error``, the tool has failed, and the content says why.
        """
        if type(is_error) is not bool:
            raise InvalidInputError(
                f"is_error of a tool's result is true or false, not {is_error!r}"
            )
        result = ToolResult(id=_text(id, "id"), response=content, is_error=is_error)
        return cls._of(result, "tool", options)

    @classmethod
    def tool(
        cls,
        name: str,
        schema: Mapping[str, Any] | None = None,
        description: str = "",
        **options: Unpack[ItemOptions],
    ) -> Self:
        """Return the definition of a tool; ``schema`` is the JSON schema of its arguments."""
        if type(description) is not str or not isinstance(schema, Mapping | None):
            raise InvalidInputError(
                "a tool has a name, a JSON schema of its arguments as a mapping, and a description "
                f"as text, not {type(schema).__qualname__} and {type(description).__qualname__}"
            )
        parameters = {"type": "object", "properties": {}} if schema is None else dict(schema)
        tool = Tool(name=_text(name, "name"), description=description, parameters=parameters)
        return cls._of(tool, None, options)

    @classmethod
    def image(
        cls,
        image: bytes | str,
        tokens: int | None = None,
        *,
        mime_type: str | None = None,
        role: Role = "user",
        **options: Unpack[ItemOptions],
    ) -> Self:
        """Return an image: its bytes, or its URL. ``tokens`` replaces the counted number."""
        part: Part
        if isinstance(image, str):
            part = Uri(uri=_text(image, "image"), mime_type=mime_type)
        elif isinstance(image, bytes) and len(image) <= _LARGEST_IMAGE:
            part = Blob(content=image, mime_type=mime_type or mime_type_of(image))
        else:
            size = f" of {len(image):,} bytes" if isinstance(image, bytes) else ""
            raise InvalidInputError(
                f"an image is at most {_LARGEST_IMAGE:,} bytes or the text of a URL, not "
                f"{type(image).__qualname__}{size}; make it smaller, or pass its URL"
            )
        if tokens is not None and (type(tokens) is not int or not 0 <= tokens <= LARGEST):
            raise InvalidInputError(f"tokens of an image are a whole number, not {tokens!r}")
        return cls._of(part, role, options, tokens)

    @classmethod
    def reasoning(
        cls, block: str | Mapping[str, Any] | Dumpable, **options: Unpack[ItemOptions]
    ) -> Self:
        """Return a block of reasoning: its text, or the provider's own object, sent unchanged."""
        if isinstance(block, str):
            return cls._of(Reasoning(content=block), "assistant", options)
        fields = block.model_dump(exclude_none=True) if isinstance(block, Dumpable) else block
        if not isinstance(fields, Mapping):
            kind = type(block).__qualname__
            raise InvalidInputError(f"a block of reasoning is text or an object, not {kind}")
        text = fields.get("thinking") or fields.get("text")
        part = Reasoning(content=text if isinstance(text, str) else "", block=dict(fields))
        return cls._of(part, "assistant", options)

    @classmethod
    def conversation(
        cls,
        messages: object,
        *,
        priority: int = 0,
        keep_last: int = 6,
        section: str | None = None,
        source: Any = None,
    ) -> list[Self]:
        """Return the messages of a conversation as items, which are dropped from its beginning.

        Args:
            messages: A list in the shape of OpenAI, Anthropic or Gemini, or neutral: dicts, or
                objects of the providers' clients.
            priority: That of the newest messages; older ones have one less with every turn.
            keep_last: How many messages at the end are required, with what belongs to them.
            section: The section of the items; give two conversations of one context different ones.
            source: The source of the items.

        A question and its answer are kept or dropped together, and so are a call and its results.
        Messages of the system are required.

        >>> history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
        >>> [item.role for item in ContextItem.conversation(history)]
        ['user', 'assistant']

        Raises:
            InvalidInputError: A message has none of the shapes, or a result has no call before it.
        """
        if type(keep_last) is not int or keep_last < 0:
            raise InvalidInputError(f"keep_last is a whole number from 0, not {keep_last!r}")
        planned = plan_conversation(messages_of(messages), keep_last)
        return [
            item
            for turn, (message, unit, age) in enumerate(planned)
            for item in cls._of_message(
                message,
                priority=priority - age,
                required=age == 0,
                source=source,
                section=section,
                group=f"{section or 'conversation'}:{unit}",
                turn=turn,
            )
        ]

    @classmethod
    def _of_message(cls, message: Message, **options: Unpack[ItemOptions]) -> Iterator[Self]:
        """Yield the items of a message; texts that follow each other are one."""
        text = ""
        for part in message.parts:
            marked: ItemOptions = {**options, "cache": part.cache}
            if isinstance(part, TextPart):
                text += part.content
                if part.cache and text:
                    yield cls(text, role=message.role, **marked)
                    text = ""
                continue
            if text:
                yield cls(text, role=message.role, **options)
                text = ""
            yield cls._of(replace(part, cache=False), message.role, marked)
        if text:
            yield cls(text, role=message.role, **options)

    @classmethod
    def _of(
        cls, part: Part | Tool, role: Role | None, options: ItemOptions, tokens: int | None = None
    ) -> Self:
        try:
            # What a provider is sent is what the record has, such as dates as texts.
            if (field := _JSON_FIELDS.get(type(part))) is not None:
                plain = msgspec.to_builtins(getattr(part, field), str_keys=True)
                part = replace(part, **{field: plain})
            content = part_text(part)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"a ContextItem holds what JSON can express, and this is not: {error}"
            ) from error
        return cls(content, role=role, part=part, tokens=tokens, **options)


class ItemOptions(TypedDict, total=False):
    """The options that items of every kind have."""

    priority: int
    required: bool
    source: Any
    section: str | None
    group: str | None
    turn: int | None
    cache: bool


_ROLES = get_args(Role)
_JSON_FIELDS: dict[type, str] = {ToolCall: "arguments", ToolResult: "response"}
_JSON_FIELDS |= {Reasoning: "block", Tool: "parameters"}
"""The field of a part that may have any JSON value."""
_LARGEST_IMAGE = 20_000_000
"""Providers take no larger ones, and the record holds a copy."""

_Kinds = tuple[tuple[str, tuple[type, ...], str], ...]
"""Fields, the types that each may have, and these types in words."""

_ITEM: _Kinds = (
    ("content", (str,), "plain text"),
    ("priority", (int,), "a whole number"),
    ("required", (bool,), "true or false"),
    ("truncate", (bool,), "true or false"),
    ("section", (str, NoneType), "plain text or None"),
    ("group", (str, NoneType), "plain text or None"),
)
_CHUNK: _Kinds = (
    ("text", (str,), "plain text"),
    ("id", (str, NoneType), "plain text or None"),
    ("metadata", (dict,), "a dict"),
    ("document", (str, NoneType), "plain text or None"),
    ("position", (int, NoneType), "a whole number or None"),
    ("content_hash", (str, NoneType), "plain text or None"),
    ("version", (int, NoneType), "a whole number or None"),
    ("indexed_at", (datetime, NoneType), "a datetime or None"),
)
_USUAL = {
    (str, str, dict, str, int, str, int, datetime),
    (str, str, dict, *(NoneType,) * 5),
    (str, NoneType, dict, *(NoneType,) * 5),
}


def _check_types(what: str, value: object, fields: _Kinds) -> None:
    for field, kinds, expected in fields:
        content = getattr(value, field)
        if type(content) not in kinds:
            raise InvalidInputError(
                f"{field} of a {what} is {expected}, not {type(content).__qualname__}"
            )


def _check_identifiers(chunk: Chunk) -> None:
    for field in ("id", "document", "content_hash"):
        check_utf8(getattr(chunk, field) or "", f"{field} of a Chunk")


def _text(value: object, what: str) -> str:
    if type(value) is not str or not value:
        raise InvalidInputError(f"{what} of a ContextItem is text, not {value!r}")
    return value


def _number(score: Any) -> float:
    """Return a score as a Python float, because records do not support NumPy's."""
    try:
        if not isinstance(score, str | bytes):
            return float(score)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInputError(f"score of a Chunk is a number or None, not {type(score).__qualname__}")
