"""Texts and metadata in the forms that Postgres can hold.

A text in Postgres cannot contain U+0000. The escapes keep the order of texts, so that ids are
sorted and values compared in their stored form.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from headwater.core.codec import encode_custom

_ESCAPES = str.maketrans({"\0": "\x01\x01", "\x01": "\x01\x02"})
_encode = msgspec.json.Encoder(enc_hook=encode_custom, order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
# JSON writes larger floats with less digits than an integer of the same value has.
_LARGEST_WHOLE = float(1 << 64)


def escape(text: str) -> str:
    """Return a text without U+0000; of two texts, the smaller one has the smaller form."""
    return text.translate(_ESCAPES) if "\0" in text or "\x01" in text else text


def unescape(stored: str) -> str:
    """Return the text that was escaped."""
    if "\x01" not in stored:
        return stored
    return stored.replace("\x01\x01", "\0").replace("\x01\x02", "\x01")


def metadata_json(metadata: Mapping[str, Any]) -> bytes:
    """Return metadata as JSON; equal metadata have equal texts."""
    return _encode(metadata)


def read_metadata(stored: str) -> dict[str, Any]:
    return _decode(stored)


def fields_json(metadata: bytes) -> bytes:
    """Return the fields that filters can compare, as ``jsonb`` accepts and compares them."""
    decoded = _decode(metadata)
    fields: dict[str, Any] = {}
    for name, value in decoded.items():
        if isinstance(value, list):
            fields[escape(name)] = [item for item in map(comparable, value) if item is not ...]
        elif (scalar := comparable(value)) is not ...:
            fields[escape(name)] = scalar
    return _encode(fields)


def comparable(value: Any) -> Any:
    """Return a scalar in the form that is compared; ``...`` for any other value."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return int(value)
    return value if value is None or isinstance(value, int | float) else ...


def digest_of(text: str, metadata: bytes) -> bytes:
    """Return a digest of a document's text and of its metadata as JSON."""
    content = text.encode()
    return sha256(b"%d:%b%b" % (len(content), content, metadata)).digest()
