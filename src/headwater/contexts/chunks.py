"""What a search gives, as chunks: taken where it runs, kept and copied without any change."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import deepcopy
from itertools import islice
from types import NoneType
from typing import Any

import msgspec

from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.declarations import Chunk
from headwater.errors import InvalidInputError

Packed = tuple[str, str | None, str | None, Any]
"""A chunk as it is kept: its text, its id, the digits of its score, its tagged metadata."""

_FIELDS = frozenset(Chunk.__struct_fields__)
_UNCHANGEABLE = frozenset({str, int, float, bool, NoneType})
_WANTED = "texts, mappings with 'text', or headwater.Chunk"


def taken(given: Any, most: int | None) -> Any:
    """The chunks in what a search gave, at most so many, or what is to be awaited for them.

    Whatever is made one by one is made here.
    """
    if inspect.isawaitable(given):
        return given
    if isinstance(given, AsyncGenerator):
        return _gathered(given, most)
    if given is None:
        return []
    if isinstance(given, str | Mapping | Chunk) or not isinstance(given, Iterable):
        raise TypeError(f"it must return a list of {_WANTED}, not {type(given).__name__}")
    return [_chunk(place, item) for place, item in enumerate(islice(given, most))]


async def _gathered(given: AsyncGenerator[object, None], most: int | None) -> list[object]:
    items: list[object] = []
    async with aclosing(given):
        async for item in given:
            items.append(item)
            if len(items) == most:
                break
    return items


def _chunk(place: int, item: object) -> Chunk:
    try:
        chunk = _made(item)
    except (InvalidInputError, msgspec.ValidationError) as error:
        raise ValueError(
            f"result {place}, of type {type(item).__name__}, is no chunk: {error}; return {_WANTED}"
        ) from error
    try:
        to_tagged(chunk.text, "/text")
        _tagged(chunk.metadata)
    except InvalidInputError as error:
        raise ValueError(f"result {place} cannot be kept as it is: {error}") from error
    return chunk


def _made(item: object) -> Chunk:
    if isinstance(item, Chunk):
        return item
    if isinstance(item, str):
        return Chunk(text=item)
    if isinstance(item, Mapping):
        return _of_mapping(item)
    return msgspec.convert(item, Chunk, from_attributes=True)


def _of_mapping(item: Mapping[Any, Any]) -> Chunk:
    """A chunk whose metadata has everything that no other field has."""
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
    """Metadata as it is kept, refused where it would come back as something else."""
    if not metadata:
        return metadata
    tagged = to_tagged(metadata, "/metadata")
    for name, value in metadata.items():
        if type(value) not in _UNCHANGEABLE:
            _check_fields(value, name)
    return tagged


def _check_fields(value: object, name: object) -> None:
    """Refuses what a record holds as a mapping of its fields."""
    if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        raise InvalidInputError(
            f"/metadata/{name}: a {type(value).__qualname__} would come back as a dict; pass a "
            "dict of its fields"
        )
    if isinstance(value, dict):
        for part in (*value, *value.values()):
            _check_fields(part, name)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _check_fields(part, name)


def pack(chunks: Iterable[Chunk]) -> list[Packed]:
    """Chunks as they are kept."""
    return [
        (
            chunk.text,
            chunk.id,
            None if chunk.score is None else repr(chunk.score),
            _tagged(chunk.metadata),
        )
        for chunk in chunks
    ]


def unpack(kept: Iterable[Packed]) -> list[Chunk]:
    """The chunks that were kept; raises ValueError or InvalidInputError for what are none."""
    return [
        Chunk(
            text=text,
            id=chunk_id,
            score=None if score is None else float(score),
            metadata=from_tagged(metadata) if metadata else {},
        )
        for text, chunk_id, score, metadata in kept
    ]


def copied(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The same chunks for another one, who may change their metadata."""
    return [
        msgspec.structs.replace(chunk, metadata=_copy(chunk.metadata)) if chunk.metadata else chunk
        for chunk in chunks
    ]


def _copy(metadata: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if type(value) in _UNCHANGEABLE else deepcopy(value)
        for name, value in metadata.items()
    }
