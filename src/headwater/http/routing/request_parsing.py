"""Parsing of a request's path, query and body."""

from __future__ import annotations

import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

import msgspec
from starlette.types import Receive, Scope

from headwater.core.tracing import RequestHeaders
from headwater.errors import BackendError, FieldError, InvalidInputError
from headwater.errors.hints import nearest, quoted
from headwater.http.routing.request_errors import (
    REFUSAL,
    EncodingError,
    MalformedError,
    MediaTypeError,
    TooLargeError,
)
from headwater.model.history import CSV, PARQUET
from headwater.model.problems import NDJSON

_SUFFIXES = {PARQUET: ".parquet", CSV: ".csv", NDJSON: ".ndjson"}

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


class UploadedFile:
    """A body in a file of a folder of its own, which exists until it is closed."""

    def __init__(self, media_type: str) -> None:
        self._folder = TemporaryDirectory(prefix="headwater-")
        self.folder = Path(self._folder.name)
        self.path = self.folder / f"upload{_SUFFIXES[media_type]}"

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Leave the path out of the messages of errors, which the client reads."""
        try:
            yield
        except InvalidInputError as error:
            message = str(error)
            if str(self.path) not in message:
                raise
            raise InvalidInputError(message.replace(str(self.path), "the uploaded file")) from error


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
        text, pairs = query.decode(), []
        is_quoted = "%" in text or "+" in text
        for part in text.split("&"):
            name, _, value = part.partition("=")
            if is_quoted:
                name, value = _unquote_plus(name), _unquote_plus(value)
            if part:
                pairs.append((name, value))
        return pairs
    except UnicodeDecodeError as error:
        raise MalformedError("the query is not UTF-8; percent-encode it as UTF-8") from error


def _unquote_plus(text: str) -> str:
    return unquote(text.replace("+", " "), errors="strict")


async def read_upload(
    scope: Scope, receive: Receive, accepted: Sequence[str], limit: int
) -> Upload:
    """Read the body; raise if its media type is not accepted or it exceeds the limit."""
    too_large = TooLargeError(limit)
    headers: dict[bytes, bytes] = dict(scope["headers"])
    media_type = _check_head(headers, accepted, too_large)
    if _encoding(headers, "gzip") == "gzip":
        unpacked = _Unpacked(limit)
        await _receive_parts(unpacked.add, scope, receive, too_large)
        parts = unpacked.end()
    else:
        parts = []
        await _receive_parts(parts.append, scope, receive, too_large)
    return Upload(b"".join(parts).removeprefix(BOM_UTF8), media_type)


def _check_head(
    headers: Mapping[bytes, bytes], accepted: Sequence[str], too_large: TooLargeError
) -> str:
    """Return the media type of a body; raise if it, or the length, is not accepted."""
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


def _encoding(headers: Mapping[bytes, bytes], accepted: str) -> str:
    """Return how a body is compressed; raise EncodingError if this is not accepted."""
    if b"content-encoding" not in headers:
        return ""
    encoding = headers[b"content-encoding"].decode("latin-1").strip().lower()
    if encoding not in ("", "identity", accepted):
        raise EncodingError(encoding, accepted)
    return encoding


class _Unpacked:
    """A body that is decompressed as it arrives, and never further than the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = self._room = limit
        self._parts: list[bytes] = []
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)  # in the format of gzip

    def add(self, part: bytes) -> None:
        """Decompress a part; raise if the body is too large or not one gzip stream."""
        try:
            data = self._stream.decompress(part, self._room + 1)
        except zlib.error as error:
            raise MalformedError(f"the body is not gzip: {error}") from error
        self._room -= len(data)
        if self._room < 0:
            raise TooLargeError(self._limit, what="the decompressed body")
        if self._stream.unused_data:
            raise MalformedError("the body goes on after the end of its gzip stream")
        self._parts.append(data)

    def end(self) -> list[bytes]:
        """Return the parts; raise MalformedError if the stream is not complete."""
        if not self._stream.eof:
            raise MalformedError("the body ends before its gzip stream does")
        return self._parts


async def receive_file(
    scope: Scope, receive: Receive, accepted: Sequence[str], limit: int
) -> UploadedFile:
    """Write the body to a file; raise if its media type is not accepted or it is too large."""
    too_large = TooLargeError(limit, "http.max_upload_bytes")
    headers: dict[bytes, bytes] = dict(scope["headers"])
    media_type = _check_head(headers, accepted, too_large)
    # A small one, decompressed, could fill the disk.
    _encoding(headers, "identity")
    if not media_type:
        raise MediaTypeError(media_type, accepted)
    try:
        upload = UploadedFile(media_type)
        try:
            with upload.path.open("wb") as file:
                await _receive_parts(file.write, scope, receive, too_large)
        except BaseException:
            upload.close()
            raise
    except OSError as error:
        raise BackendError(
            f"cannot keep the uploaded file in {gettempdir()}: {error.strerror}; free space there, "
            "or set TMPDIR of the server to another folder"
        ) from error
    return upload


async def _receive_parts(
    write: Callable[[bytes], object], scope: Scope, receive: Receive, too_large: TooLargeError
) -> None:
    """Write each part of a body; raise if it is too large or the client disconnects."""
    size, has_more = 0, True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone = MalformedError("the client disconnected before the end of the body")
            raise scope.get(REFUSAL, gone)
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > too_large.limit:
            raise too_large
        write(part)
        has_more = message.get("more_body", False)


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
        names = [field.encode_name for field in msgspec.structs.fields(kind)]
        return FieldError.unknown("unknown field", unknown[1], names)
    named = _FIELD.search(problem)
    field = (named[1] or named[2] or "") if named else ""
    value = _INVALID_CHOICE.match(problem)
    hint = get_type_hints(kind).get(field) if value else None
    literals = [form for form in (hint, *get_args(hint)) if get_origin(form) is Literal]
    if value and literals:
        closest = nearest(value[1], [text for form in literals for text in get_args(form)])
        problem = f"unknown {field} {quoted(value[1])}; {closest}"
    return FieldError(problem, field)


def convert_parameter(text: str, kind: Any, name: str) -> Any:
    """Convert a parameter of the path or the query to its declared type."""
    try:
        # Strict for times, because msgspec would read "2020" as seconds and not as a year.
        has_time = any(datetime in (form, *get_args(form)) for form in (kind, *get_args(kind)))
        return msgspec.convert(text, kind, strict=has_time)
    except msgspec.ValidationError as error:
        raise FieldError(f"parameter {name!r}: {error}", name) from error
