"""The searches of a record, as a replay makes them again: versions of indexes, and results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import asdict, astuple

from headwater.declarations.items import Chunk
from headwater.features.read_tracking import (
    FeatureKey,
    IndexSearched,
    RetrievalKey,
    TrackedRetrieval,
)
from headwater.features.running_calls import argument_key
from headwater.records.core import (
    Commitment,
    Core,
    FeatureRead,
    KeptResults,
    Result,
    Retrieval,
    disclosed,
)

_MILLISECOND = timedelta(milliseconds=1)


def searched_versions(core: Core) -> dict[RetrievalKey, list[str]]:
    """Return the versions of indexes that the record has for each call."""
    versions: dict[RetrievalKey, list[str]] = {}
    for key, call in _calls(core):
        if call.index is not None:
            versions.setdefault(key, []).append(call.index.version)
    return versions


def recorded_results(
    core: Core, names: Mapping[str, str | None]
) -> dict[RetrievalKey, list[TrackedRetrieval]]:
    """Return what each call found: of indexes, and of retrievers with ``record=True``.

    Of the latter alone, the metadata are recorded; of the others, ``read`` is None. Calls of which
    the record withholds anything are left out. ``names`` are the present names of the features in
    the record.
    """
    results: dict[RetrievalKey, list[TrackedRetrieval] | None] = {}
    for key, call in _calls(core):
        recorded, earlier = _recorded(call, core, names), results.setdefault(key, [])
        if recorded is None or earlier is None:
            results[key] = None
        else:
            earlier.append(recorded)
    return {key: calls for key, calls in results.items() if calls is not None}


def _calls(core: Core) -> Iterator[tuple[RetrievalKey, Retrieval]]:
    for call in core.retrievals:
        if not isinstance(call.arguments, Commitment):
            yield (call.retriever, argument_key(call.arguments)), call


def _recorded(
    call: Retrieval, core: Core, names: Mapping[str, str | None]
) -> TrackedRetrieval | None:
    index, kept = call.index, call.kept
    if kept is msgspec.UNSET:
        if index is None:
            return None
        kept = KeptResults(metadata=[{} for _ in call.results])
    reads = [core.features[place] for place in kept.features if place in range(len(core.features))]
    if _is_withheld(call, kept, reads):
        return None
    # Something behind the search had no moment if it is not fresh, and not too old either.
    is_incomplete = not call.fresh and call.age_ms <= (call.sla_ms or 0)
    return TrackedRetrieval(
        retriever=call.retriever,
        arguments=disclosed(call.arguments),
        chunks=list(map(_chunk, call.results, disclosed(kept.metadata))),
        searched_at=call.searched_at,
        oldest=None if is_incomplete else core.created_at - call.age_ms * _MILLISECOND,
        provenance=frozenset(),
        cache_hit=call.cache_hit,
        latency_us=call.latency_us,
        failed=call.failed,
        searched=None if index is None else IndexSearched(**asdict(index)),
        read=None if call.kept is msgspec.UNSET else frozenset(_keys(reads, names)),
    )


def _keys(reads: list[FeatureRead], names: Mapping[str, str | None]) -> Iterator[FeatureKey]:
    for read in reads:
        name = names[read.feature]
        if name is not None:
            yield read.entity, name, str(read.entity_id)


def _is_withheld(call: Retrieval, kept: KeptResults, reads: list[FeatureRead]) -> bool:
    """Return whether a record only commits to something that a search needs, or has it not."""
    metadata = kept.metadata
    if not isinstance(metadata, list) or len(metadata) != len(call.results):
        return True
    parts = [call.index, *call.results, *(result.origin for result in call.results)]
    values = [value for part in parts if part is not None for value in astuple(part)]
    values += [read.entity_id for read in reads]
    return any(isinstance(value, Commitment) for value in values)


def _chunk(result: Result, metadata: dict[str, Any]) -> Chunk:
    origin: dict[str, Any] = {} if result.origin is None else asdict(result.origin)
    score = None if result.score is None else float(result.score)
    text, id_ = disclosed(result.content), disclosed(result.id)
    return Chunk(text=text, id=id_, score=score, metadata=metadata, **origin)
