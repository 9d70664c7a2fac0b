"""Responses in the form that their client asked for: not at all if it has them, or compressed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable

from headwater.http.routing.responses import NOT_MODIFIED, SMALLEST_COMPRESSED, ApiResponse

_INLINE_BYTES = 32_768  # takes less time than a thread hop and a switch of threads
_GZIP_WBITS = 31
_FASTEST = 1
_NOT_OF_THE_BODY = (b"content-length", b"content-type")


async def negotiate(
    response: ApiResponse, request_headers: Iterable[tuple[bytes, bytes]]
) -> ApiResponse:
    """Return the response, 304 in place of it, or its compressed form.

    Compression cannot reveal a secret by the size of a response (BREACH): browsers do not add keys
    to requests, so a page that could measure responses has the key already.
    """
    headers = dict(request_headers)
    response.raw_headers.append((b"vary", b"Accept-Encoding"))
    if response.etag is not None:
        if has_current(headers.get(b"if-none-match", b""), response.etag):
            return _not_modified(response)
        response.raw_headers.append((b"etag", response.etag))
    if len(response.body) < SMALLEST_COMPRESSED or not accepts_gzip(
        headers.get(b"accept-encoding", b"")
    ):
        return response
    body = bytes(response.body)
    if len(body) <= _INLINE_BYTES:
        _replace_body(response, _compress(body))
    else:
        _replace_body(response, await asyncio.to_thread(_compress, body))
    return response


def has_current(if_none_match: bytes, etag: bytes) -> bool:
    """Return whether a client that sent this header has the content of an ETag."""
    given = [each.strip().removeprefix(b"W/") for each in if_none_match.split(b",")]
    return etag in given or given == [b"*"]


def _not_modified(response: ApiResponse) -> ApiResponse:
    found = ApiResponse(b"", NOT_MODIFIED)
    found.raw_headers = [
        *(each for each in response.raw_headers if each[0] not in _NOT_OF_THE_BODY),
        (b"etag", response.etag or b""),
    ]
    return found


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Return whether gzip is among the accepted encodings, and not with the weight 0."""
    weights: dict[bytes, bytes] = {}
    for each in accept_encoding.lower().replace(b" ", b"").split(b","):
        name, _, weight = each.partition(b";q=")
        weights[name] = weight
    weight = weights.get(b"gzip", weights.get(b"*", b"0"))
    return weight.strip(b"0.") != b"" or weight == b""


def _compress(body: bytes) -> bytes:
    return zlib.compress(body, _FASTEST, wbits=_GZIP_WBITS)


def _replace_body(response: ApiResponse, body: bytes) -> None:
    """Replace the body by its compressed form, whose ETag is weak: other bytes, equal meaning."""
    response.body = body
    response.raw_headers = [
        (b"content-length", b"%d" % len(body)) if name == b"content-length"
        else (name, b"W/" + value) if name == b"etag"
        else (name, value)
        for name, value in response.raw_headers
    ]  # fmt: skip
    response.raw_headers.append((b"content-encoding", b"gzip"))
