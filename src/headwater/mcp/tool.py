"""A tool: what a model is told about it, the scope that it needs, and its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import mcp_types
import msgspec

from headwater.errors import FieldError
from headwater.mcp.results import ToolResult
from headwater.model.callers import AccessScope

T = TypeVar("T", bound=msgspec.Struct)


class StoreTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool over a verb of the store."""

    name: str
    title: str
    scope: AccessScope
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    call: Callable[[Mapping[str, Any]], Awaitable[ToolResult]]
    is_read_only: bool = True
    context: str | None = None
    """The context that the tool assembles, if it assembles only one."""

    def listing(self) -> mcp_types.Tool:
        """Return the tool as clients see it."""
        return mcp_types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.input_schema,
            output_schema=self.output_schema,
            annotations=mcp_types.ToolAnnotations(
                title=self.title,
                read_only_hint=self.is_read_only,
                # A record is added, never changed. Repeating a call adds another.
                destructive_hint=False,
                idempotent_hint=self.is_read_only,
                open_world_hint=False,
            ),
        )


def converted(arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Return the arguments of a call as a Struct; raise FieldError if they do not fit it."""
    for name in arguments:
        if name not in kind.__struct_fields__:
            raise FieldError.unknown("unknown argument", name, kind.__struct_fields__, name)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in arguments:
            raise FieldError(f"the argument {field.name!r} is required", field.name)
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise FieldError(f"invalid arguments: {error}") from error


def check_encodable(arguments: Mapping[str, Any]) -> None:
    """Raise FieldError if a value in the arguments could not be answered as JSON."""
    try:
        msgspec.json.encode(arguments)
    except (UnicodeEncodeError, RecursionError) as error:
        raise FieldError(
            "a text in the arguments has a lone surrogate, or they are nested too deeply; send "
            "plain JSON"
        ) from error
