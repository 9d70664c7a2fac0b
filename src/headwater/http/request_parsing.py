"""What a request brings: its path, its query and its body, decoded and bounded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar, get_args
from urllib.parse import quote, unquote

import msgspec
from starlette.types import Receive, Scope

from headwater.errors.hints import closest
from headwater.http.problems import FieldError, MalformedError, MediaTypeError, TooLargeError

_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`")
_FIELD = re.compile(r"(?:required field|unknown field) `(.*?)`|at `\$\.?(.*?)`$")

T = TypeVar("T", bound=msgspec.Struct)


class Upload(NamedTuple):
    """A body as it was sent, for routes that take more than one form of it."""

    data: bytes
    media_type: str


def path_of(scope: Scope) -> str:
    """The path below the mount point, still quoted: an encoded slash stays in its segment."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.decode("latin-1") if raw else quote(scope["path"])
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


def unquoted(segment: str) -> str:
    """A segment of the path as it was meant."""
    if "%" not in segment:
        return segment
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedError("the path is not UTF-8") from error


def query_of(scope: Scope) -> list[tuple[str, str]]:
    """The query's names and values, in order."""
    query: bytes = scope["query_string"]
    if not query:
        return []
    try:
        pairs = [part.partition("=") for part in query.decode().split("&") if part]
        return [(_from_form(name), _from_form(value)) for name, _, value in pairs]
    except UnicodeDecodeError as error:
        raise MalformedError("the query is not UTF-8") from error


def _from_form(text: str) -> str:
    if "%" in text or "+" in text:
        return unquote(text.replace("+", " "), errors="strict")
    return text


async def read_upload(
    scope: Scope, receive: Receive, accepted: Sequence[str], limit: int
) -> Upload:
    """The body, refused when it is of another type or larger than the limit."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    declared = headers.get(b"content-type", b"").decode("latin-1")
    media_type = declared.partition(";")[0].strip().lower()
    if media_type and media_type not in accepted:
        raise MediaTypeError(declared, accepted)
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise TooLargeError(limit)
    return Upload(await _read_all(receive, limit), media_type)


async def _read_all(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise MalformedError("the request ended before its body did")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise TooLargeError(limit)
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def decode_json(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """A body in its declared type, or an error that names what is wrong."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise invalid(str(error), decoder.type) from error
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the body is not JSON: {error}") from error


def invalid(problem: str, kind: type[msgspec.Struct]) -> FieldError:
    """Our error for one of msgspec's, with the nearest name if a field is unknown."""
    unknown = _UNKNOWN_FIELD.search(problem)
    if unknown:
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        near = closest(unknown[1], known)
        hint = f"did you mean {near!r}?" if near else f"there is {', '.join(known)}"
        return FieldError(f"unknown field {unknown[1]!r}; {hint}", unknown[1], near)
    field = _FIELD.search(problem)
    return FieldError(problem, (field[1] or field[2] or "") if field else "")


def converted(text: str, kind: Any, name: str) -> Any:
    """A parameter of the path or the query in its declared type."""
    try:
        # A number is no moment: of seconds it might be one, but whoever writes 2020 means a year.
        return msgspec.convert(text, kind, strict=_is_moment(kind))
    except msgspec.ValidationError as error:
        raise FieldError(f"parameter {name!r}: {error}", name) from error


def _is_moment(kind: Any) -> bool:
    return any(datetime in (one, *get_args(one)) for one in (kind, *get_args(kind)))
