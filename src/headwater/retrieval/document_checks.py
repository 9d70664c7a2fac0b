"""Checks of documents before they are indexed."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.core.short_repr import is_printable
from headwater.errors import InvalidInputError
from headwater.model.values import LONGEST_ID, check_utf8, is_whole_number
from headwater.settings.groups import IndexSettings

_LARGEST = 2**63
_MAX_DEPTH = 32

_encode = msgspec.json.Encoder().encode


class PlainDocument(NamedTuple):
    """A document that was checked; ``version`` is that of a stored one that is indexed again."""

    id: str
    text: str
    metadata: dict[str, Any]
    version: int | None = None


def checked_document(
    document_id: object, text: object, metadata: object, limits: IndexSettings
) -> PlainDocument:
    """Return a document as it is stored; raise InvalidInputError if it cannot be."""
    name = checked_id(document_id)
    plain = _checked_metadata(name, metadata, limits)
    return PlainDocument(name, _checked_text(name, text, limits), plain)


def checked_id(document_id: object) -> str:
    """Return the id of a document as stored, which is text."""
    if type(document_id) is not str and is_whole_number(document_id):
        return str(int(document_id))
    if not isinstance(document_id, str):
        raise InvalidInputError(
            "the id of a document is a text or a whole number, not the "
            f"{type(document_id).__name__} {reprlib.repr(document_id)}"
        )
    # The limits of the ids of entities.
    if not 0 < len(document_id) <= LONGEST_ID or not is_printable(document_id):
        raise InvalidInputError(
            f"the id of a document is printable text of 1 to {LONGEST_ID} characters, not "
            f"{reprlib.repr(document_id)}"
        )
    return str(document_id)


def _checked_text(document: str, text: object, limits: IndexSettings) -> str:
    """Return the text of a document as it is stored."""
    if not isinstance(text, str):
        raise InvalidInputError(
            f"the text of document {document!r} is a text, not a {type(text).__name__}; use "
            "unindex to remove a document"
        )
    check_utf8(text, f"the text of document {document!r}")
    size = len(text) if text.isascii() else len(text.encode())
    if size > limits.max_document_bytes:
        raise InvalidInputError(
            f"the text of document {document!r} has {size} bytes, more than the maximum of "
            f"{limits.max_document_bytes}; divide it into several documents, or raise "
            "indexes.max_document_bytes"
        )
    return str(text)


def _checked_metadata(document: str, metadata: object, limits: IndexSettings) -> dict[str, Any]:
    """Return a copy of metadata, in the types of JSON."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidInputError(
            f"the metadata of document {document!r} is a mapping such as {{'lang': 'en'}}, not "
            f"{reprlib.repr(metadata)}"
        )
    where = f"the metadata of document {document!r}"
    plain = {
        _key(key, where): _plain(value, f"{where}: {key!r}") for key, value in metadata.items()
    }
    size = len(_encode(plain)) if plain else 0
    if size > limits.max_metadata_bytes:
        raise InvalidInputError(
            f"{where} has {size} bytes, more than the maximum of {limits.max_metadata_bytes}; "
            "store large data elsewhere, or raise indexes.max_metadata_bytes"
        )
    return plain


def _key(key: object, where: str) -> str:
    if type(key) is not str or not key or key.startswith("$"):
        raise InvalidInputError(
            f"{where}: the key {reprlib.repr(key)} is not a text, is empty or begins with '$'; "
            "rename it"
        )
    return _text(key, f"{where}: {key!r}")


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value in the types of JSON; raise InvalidInputError if it has another."""
    if type(value).__module__ == "numpy":
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int) and -_LARGEST <= value < _LARGEST:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if depth < _MAX_DEPTH and isinstance(value, list | tuple):
        return [_plain(element, where, depth + 1) for element in value]
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {
            _key(key, where): _plain(element, where, depth + 1) for key, element in value.items()
        }
    raise InvalidInputError(
        f"{where} is {reprlib.repr(value)}, which JSON cannot hold; use texts, finite numbers "
        "within 64 bits, true, false, None, lists and mappings, and write a time as text"
    )


def _text(text: str, where: str) -> str:
    check_utf8(text, where)
    return str(text)
