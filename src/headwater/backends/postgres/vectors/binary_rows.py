"""Rows in the binary format of COPY, with vectors and terms that the driver cannot encode."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from io import BytesIO
from struct import pack, unpack

from headwater.backends.postgres.vectors.stored_text import escape
from headwater.ports import Embedding

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
