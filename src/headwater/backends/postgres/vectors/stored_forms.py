"""Texts, metadata, vectors and terms in the forms that Postgres can hold.

A text in Postgres cannot contain U+0000. The escapes keep the order of texts, so that ids are
sorted and values compared in their stored form.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from struct import pack, unpack
from typing import Any

import msgspec

from headwater.core.codec import encode_custom
from headwater.ports import Embedding

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


_HEADER = b"PGCOPY\n\xff\r\n\0" + pack("!ii", 0, 0)
_END = pack("!h", -1)
_JSONB_VERSION = b"\x01"
# Limits of a tsvector: the size of a lexeme, of all of them, and the positions of one.
_LONGEST_TERM = 1_000
_MOST_TERM_BYTES = 1 << 19
MOST_POSITIONS = 255


def copied(rows: Iterable[Sequence[bytes]]) -> BytesIO:
    """Return rows as the data of a COPY."""
    parts = [_HEADER]
    for row in rows:
        parts.append(pack("!h", len(row)))
        for field in row:
            parts.append(pack("!i", len(field)))
            parts.append(field)
    parts.append(_END)
    return BytesIO(b"".join(parts))


def integer(value: int) -> bytes:
    return pack("!i", value)


def bigint(value: int) -> bytes:
    return pack("!q", value)


def jsonb(value: bytes) -> bytes:
    return _JSONB_VERSION + value


def vector(embedding: Embedding) -> bytes:
    """Return an embedding as a ``vector``."""
    numbers = _floats(embedding)
    if sys.byteorder == "little":
        numbers.byteswap()
    return pack("!HH", len(numbers), 0) + numbers.tobytes()


def half_vector(embedding: Embedding) -> bytes:
    """Return an embedding as a ``halfvec``."""
    numbers = _floats(embedding)
    return pack(f"!HH{len(numbers)}e", len(numbers), 0, *numbers)


def _floats(embedding: Embedding) -> array[float]:
    numbers = array("f", embedding)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def read_vector(sent: bytes) -> Embedding:
    """Return the embedding in a ``vector``."""
    return _embedding(sent, "f")


def read_half_vector(sent: bytes) -> Embedding:
    """Return the embedding in a ``halfvec``."""
    return _embedding(sent, "e")


def _embedding(sent: bytes, kind: str) -> Embedding:
    count = int.from_bytes(sent[:2], "big")
    numbers = array("f", unpack(f"!4x{count}{kind}", sent))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def term_vector(terms: Iterable[str]) -> bytes:
    """Return terms as a ``tsvector``; a term has as many positions as occurrences."""
    parts: list[bytes] = []
    size = 0
    for term, count in Counter(map(lexeme, filter(None, terms))).items():
        frequency = min(count, MOST_POSITIONS)
        size += len(term) + 2 * frequency + 4
        if size > _MOST_TERM_BYTES:
            break
        parts.append(
            pack(f"!{len(term) + 1}sH{frequency}H", term, frequency, *range(1, frequency + 1))
        )
    return pack("!I", len(parts)) + b"".join(parts)


def lexeme(term: str) -> bytes:
    """Return the form in which a term is stored and looked up."""
    stored = escape(term).encode()
    return stored if len(stored) <= _LONGEST_TERM else b"\x01" + sha256(stored).hexdigest().encode()
