"""What retrievers return, as chunks, and the form of chunks in a cache."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.declarations.items import Chunk
from headwater.errors import InvalidInputError
from headwater.features.running_calls import IMMUTABLE, copy_values

_FIELDS = frozenset(Chunk.__struct_fields__)
_EXPECTED = "texts, mappings with 'text', or headwater.Chunk"


class PackedChunk(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A chunk in the cache: a score as its decimal digits, and metadata, tagged if necessary."""

    text: str
    id: str | None
    score: str | None
    metadata: Any
    is_tagged: bool
    document: str | None = None
    position: int | None = None
    content_hash: str | None = None
    version: int | None = None
    indexed_at: datetime | None = None


def to_chunks(results: Any, limit: int | None) -> Any:
    """Return at most ``limit`` results as chunks, or an awaitable of the results.

    Iterators and generators run here.
    """
    if inspect.isawaitable(results):
        return results
    if isinstance(results, AsyncGenerator):
        return _collect(results, limit)
    if results is None:
        raise TypeError("it returned None, as a function without `return` does; return a list")
    if isinstance(results, str | Mapping | Chunk) or not isinstance(results, Iterable):
        raise TypeError(f"it must return a list of {_EXPECTED}, not {type(results).__name__}")
    return [_chunk(place, item) for place, item in enumerate(islice(results, limit))]


async def _collect(results: AsyncGenerator[object, None], limit: int | None) -> list[object]:
    items: list[object] = []
    async with aclosing(results):
        async for item in results:
            items.append(item)
            if len(items) == limit:
                break
    return items


def _chunk(place: int, item: object) -> Chunk:
    try:
        chunk = _convert(item)
    except (InvalidInputError, msgspec.ValidationError) as error:
        raise ValueError(
            f"result {place} of type {type(item).__name__} is not a chunk: {error}; "
            f"return {_EXPECTED}"
        ) from error
    try:
        to_tagged(chunk.text, "/text")
        _tagged(chunk.metadata)
    except InvalidInputError as error:
        raise ValueError(f"result {place} cannot be stored in a record: {error}") from error
    return chunk


def _convert(item: object) -> Chunk:
    if isinstance(item, Chunk):
        return item
    if isinstance(item, str):
        return Chunk(text=item)
    if isinstance(item, Mapping):
        return _from_mapping(item)
    return msgspec.convert(item, Chunk, from_attributes=True)


def _from_mapping(item: Mapping[Any, Any]) -> Chunk:
    """Return a chunk whose metadata has the items that are not fields of a chunk."""
    if "text" not in item:
        raise InvalidInputError("it has no 'text'")
    if item.keys() <= _FIELDS:
        return Chunk(**item)
    fields = {name: item[name] for name in item.keys() & _FIELDS}
    rest = {name: value for name, value in item.items() if name not in _FIELDS}
    metadata = fields.get("metadata", {})
    if isinstance(metadata, Mapping):
        for name in rest.keys() & metadata.keys():
            raise InvalidInputError(f"it has {name!r} twice, once in its 'metadata'")
        fields["metadata"] = {**metadata, **rest}
    return Chunk(**fields)


def _tagged(metadata: dict[str, Any]) -> Any:
    """Return tagged metadata; raise InvalidInputError for a value that would change its type."""
    if not metadata:
        return metadata
    tagged = to_tagged(metadata, "/metadata")
    for name, value in metadata.items():
        if type(value) not in IMMUTABLE:
            _check_fields(value, name)
    return tagged


def _check_fields(value: object, name: object) -> None:
    """Raise InvalidInputError for an object that a record stores as a dict of its fields."""
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        raise InvalidInputError(
            f"/metadata/{name}: a {type(value).__qualname__} would come back as a dict; pass a "
            "dict of its fields"
        )
    if isinstance(value, dict):
        for item in (*value, *value.values()):
            _check_fields(item, name)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            _check_fields(item, name)


def pack(chunks: Iterable[Chunk]) -> list[PackedChunk]:
    """Return chunks as they are cached."""
    return [
        PackedChunk(
            chunk.text,
            chunk.id,
            None if chunk.score is None else repr(chunk.score),
            tagged := _tagged(chunk.metadata),
            tagged != chunk.metadata,
            *(chunk.document, chunk.position, chunk.content_hash, chunk.version, chunk.indexed_at),
        )
        for chunk in chunks
    ]


def unpack(packed: Iterable[PackedChunk]) -> list[Chunk]:
    """Return cached chunks; raise ValueError or InvalidInputError if they are invalid."""
    return [
        Chunk(
            text=chunk.text,
            id=chunk.id,
            score=None if chunk.score is None else float(chunk.score),
            metadata=from_tagged(chunk.metadata) if chunk.is_tagged else chunk.metadata,
            document=chunk.document,
            position=chunk.position,
            content_hash=chunk.content_hash,
            version=chunk.version,
            indexed_at=chunk.indexed_at,
        )
        for chunk in packed
    ]


def copied(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks whose metadata the caller may change."""
    return [
        msgspec.structs.replace(chunk, metadata=copy_values(chunk.metadata))
        if chunk.metadata
        else chunk
        for chunk in chunks
    ]
