"""The parts of a context: items, and chunks that retrievers return."""

from __future__ import annotations

from datetime import datetime
from types import NoneType
from typing import Any, Self

import msgspec

from headwater.core.canonical_json import LARGEST
from headwater.core.templates import Template, parse_template
from headwater.errors import InvalidInputError
from headwater.model.values import check_utf8


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
        for field in _IDENTIFIERS:
            text = getattr(self, field)
            if text is not None and not text.isascii():
                check_utf8(text, f"{field} of a Chunk")
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
    """

    content: str
    priority: int = 0
    required: bool = False
    source: Any = None
    truncate: bool = False
    section: str | None = None
    parsed: Template | None = None

    def __post_init__(self) -> None:
        # One condition for valid items, because a context creates many.
        if not (
            type(self.content) is str
            and type(self.priority) is int
            and -LARGEST <= self.priority <= LARGEST
            and type(self.required) is type(self.truncate) is bool
            and (self.section is None or type(self.section) is str)
        ):
            _check_types("ContextItem", self, _ITEM)
            if abs(self.priority) > LARGEST:
                raise InvalidInputError(
                    f"priority of a ContextItem is a whole number within ±(2^53-1), which a record "
                    f"can hold, not {self.priority}"
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
    ) -> Self:
        """Return an item whose ``{feature}`` references are resolved for the context's entity."""
        return cls(text, priority, required, source, truncate, section, parse_template(text))


_Kinds = tuple[tuple[str, tuple[type, ...], str], ...]
"""Fields, the types that each may have, and these types in words."""

_ITEM: _Kinds = (
    ("content", (str,), "plain text"),
    ("priority", (int,), "a whole number"),
    ("required", (bool,), "true or false"),
    ("truncate", (bool,), "true or false"),
    ("section", (str, NoneType), "plain text or None"),
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
_IDENTIFIERS = ("id", "document", "content_hash")
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


def _number(score: Any) -> float:
    """Return a score as a Python float, because records do not support NumPy's."""
    try:
        if not isinstance(score, str | bytes):
            return float(score)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInputError(f"score of a Chunk is a number or None, not {type(score).__qualname__}")
