"""Parsing of a request's path, query and body."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

import msgspec
from starlette.types import Message, Receive, Scope

from headwater.core.tracing import RequestHeaders
from headwater.errors import FieldError
from headwater.errors.hints import nearest, quoted
from headwater.http.routing.request_errors import (
    REFUSAL,
    MalformedError,
    MediaTypeError,
    TooLargeError,
)

_WHOLE_FLOAT = re.compile(r"^Expected `int(?: \| null)?`, got `float` - at `\$\.(\w+)`$")
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`")
_INVALID_CHOICE = re.compile(r"Invalid enum value '(.*)'")
_FIELD = re.compile(r"(?:required field|unknown field) `(.*?)`|at `\$\.?(.*?)`$")

_MAX_LENGTH_DIGITS = 20

T = TypeVar("T", bound=msgspec.Struct)


class Upload(NamedTuple):
    """An undecoded body, for routes that accept several formats."""

    data: bytes
    media_type: str


def quoted_path(scope: Scope) -> str:
    """Return the path below the mount point, as it was sent.

    An encoded slash stays inside its segment.
    """
    raw: bytes | None = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else quote(scope["path"])
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


def unquote_segment(segment: str) -> str:
    """Decode one segment of the path."""
    if "%" not in segment:
        return segment
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedError("the path is not UTF-8; percent-encode it as UTF-8") from error


def header_last_event_id(headers: RequestHeaders) -> str | None:
    """Return the ``Last-Event-ID`` of a request, or None if it is missing."""
    for name, value in headers:
        if name == b"last-event-id":
            return value.decode("latin-1").strip() or None
    return None


def parse_query(scope: Scope) -> list[tuple[str, str]]:
    """Return the names and values of the query, in order.

    Starlette's ``QueryParams`` replaces bytes that are not UTF-8, and an id would become another.
    """
    query: bytes = scope["query_string"]
    if not query:
        return []
    try:
        text = query.decode()
        pairs = [part.partition("=") for part in text.split("&") if part]
        if "%" in text or "+" in text:
            return [(_unquote_plus(name), _unquote_plus(value)) for name, _, value in pairs]
        return [(name, value) for name, _, value in pairs]
    except UnicodeDecodeError as error:
        raise MalformedError("the query is not UTF-8; percent-encode it as UTF-8") from error


def _unquote_plus(text: str) -> str:
    return unquote(text.replace("+", " "), errors="strict")


async def read_upload(
    scope: Scope, receive: Receive, accepted: Sequence[str], limit: int
) -> Upload:
    """Read the body; raise if its media type is not accepted or it exceeds the limit."""
    media_type = check_head(scope, accepted, TooLargeError(limit))
    return Upload(await _read_body(scope, receive, limit), media_type)


def check_head(scope: Scope, accepted: Sequence[str], too_large: TooLargeError) -> str:
    """Return the media type of a body; raise if it, or the length, is not accepted."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    declared = headers.get(b"content-type", b"").decode("latin-1")
    media_type = declared.partition(";")[0].strip().lower()
    if media_type and media_type not in accepted:
        raise MediaTypeError(declared, accepted)
    length = headers.get(b"content-length", b"")
    # Python refuses to convert thousands of digits, also if they are zeros.
    if len(length) > _MAX_LENGTH_DIGITS:
        raise MalformedError(f"Content-Length has more than {_MAX_LENGTH_DIGITS} digits")
    if length.isdigit() and int(length) > too_large.limit:
        raise too_large
    return media_type


async def _read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    has_more = True
    while has_more:
        message = await receive()
        part = part_of(message, scope)
        size += len(part)
        if size > limit:
            raise TooLargeError(limit)
        parts.append(part)
        has_more = message.get("more_body", False)
    return b"".join(parts)


def part_of(message: Message, scope: Scope) -> bytes:
    """Return a part of a body; raise if the client has disconnected."""
    if message["type"] == "http.disconnect":
        gone = MalformedError("the client disconnected before the end of the body")
        raise scope.get(REFUSAL, gone)
    part: bytes = message.get("body", b"")
    return part


def decode_json(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body into its declared type; raise an error that names the invalid field."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        field = _WHOLE_FLOAT.search(str(error))
        if field and (whole := _with_integer(data, field[1])) is not None:
            return decode_json(whole, decoder)
        raise _field_error(str(error), decoder.type) from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the body is not JSON: {error}") from error


def _with_integer(data: bytes | msgspec.Raw, field: str) -> bytes | None:
    """Return a body with a field such as 1.0 as an integer, which JSON does not distinguish."""
    body = msgspec.json.decode(data)
    if not body[field].is_integer():
        return None
    return msgspec.json.encode(body | {field: int(body[field])})


def _field_error(problem: str, kind: type[msgspec.Struct]) -> FieldError:
    unknown = _UNKNOWN_FIELD.search(problem)
    if unknown:
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        return FieldError.unknown("unknown field", unknown[1], known)
    found = _FIELD.search(problem)
    field = (found[1] or found[2] or "") if found else ""
    value = _INVALID_CHOICE.match(problem)
    if value:
        choices = _choices(kind, field)
        if choices:
            hint = nearest(value[1], choices)
            return FieldError(f"unknown {field} {quoted(value[1])}; {hint}", field)
    return FieldError(problem, field)


def _choices(kind: type[msgspec.Struct], field: str) -> list[str]:
    """Return the values of a field that takes some texts only."""
    hint = get_type_hints(kind).get(field)
    one_of = (each for each in (hint, *get_args(hint)) if get_origin(each) is Literal)
    return [choice for each in one_of for choice in get_args(each)]


def convert_parameter(text: str, kind: Any, name: str) -> Any:
    """Convert a parameter of the path or the query to its declared type."""
    try:
        # Strict for times, because msgspec would read "2020" as seconds and not as a year.
        return msgspec.convert(text, kind, strict=_has_datetime(kind))
    except msgspec.ValidationError as error:
        raise FieldError(f"parameter {name!r}: {error}", name) from error


def _has_datetime(kind: Any) -> bool:
    return any(datetime in (one, *get_args(one)) for one in (kind, *get_args(kind)))
