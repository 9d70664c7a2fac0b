"""Point-in-time reads of tables, from the open store, from an export, or from both."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater.backends.duckdb.exported_history import ExportedHistory
from headwater.declarations.feature_handles import FeatureRef
from headwater.declarations.features import FeatureDef
from headwater.features.call_scope import track_source
from headwater.history.frames.kinds import is_sql, open_frame
from headwater.history.frames.rows import relation_of
from headwater.history.past_reads import PastQueries
from headwater.history.point_in_time import (
    HistoryRequest,
    PastSources,
    needs_store,
    read_history,
)
from headwater.model.catalog import CatalogState
from headwater.model.progress import OnStep
from headwater.model.values import EVERYTHING
from headwater.store.runtime import Runtime
from headwater.store.validation import requested


class FrameOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``get_historical_features``."""

    at: str
    known: bool
    with_as_of: bool
    output: str | Path | None
    exported: str | Path | None
    progress: OnStep | None


class _Past(msgspec.Struct, frozen=True):
    """The versions of features that are read, and from where."""

    features: Sequence[FeatureDef]
    sources: PastSources


async def read_frame(
    runtime: Runtime, frame: Any, features: Sequence[FeatureRef], options: FrameOptions
) -> Any:
    """Return a table with the values that features had at the time of each row."""
    definitions = requested(runtime.registry, features)
    is_query = is_sql(frame)
    if options.exported is None:
        past = await _stored(runtime, features)
    else:
        export = ExportedHistory(options.exported)
        is_open = is_query or needs_store(definitions, known=options.known)
        sources = (await _stored(runtime, features)).sources if is_open else None
        past = await _exported(export, definitions, runtime, sources)
    if is_query:
        track_source(*EVERYTHING)
        engine = await runtime.open()
        frame = relation_of(await engine.backends.offline.query(frame, engine.registry.sources))
    request = HistoryRequest(
        features=past.features,
        at=options.at,
        known=options.known,
        with_as_of=options.with_as_of,
        progress=options.progress,
    )
    output = None if options.output is None else Path(options.output)
    return await read_history(open_frame(frame, output), request, past.sources)


async def _stored(runtime: Runtime, features: Sequence[FeatureRef]) -> _Past:
    engine = await runtime.open()
    offline = engine.backends.offline

    async def earliest() -> datetime | None:
        return (await engine.catalog.follow()).pruned.history

    await engine.catalog.follow()
    queries = PastQueries(engine.backends, engine.registry, engine.clock)
    return _Past(
        requested(engine.registry, features),
        PastSources(offline, engine.reader, queries, earliest, engine.registry.past_names),
    )


async def _exported(
    export: ExportedHistory,
    features: Sequence[FeatureDef],
    runtime: Runtime,
    sources: PastSources | None,
) -> _Past:
    """Read stored values from an export; only computed ones and queries need the store.

    A store that is open knows the names that features were given since the export.
    """

    async def earliest() -> datetime | None:
        return export.manifest().earliest

    engine, declared = runtime.current(), runtime.registry.features
    present: CatalogState | None = None
    if engine is not None:
        await engine.catalog.try_to_follow()
        present = engine.catalog.state
    past = sources or PastSources(export)
    return _Past(
        export.versions_of(features, declared, present),
        msgspec.structs.replace(
            past, history=export, earliest=earliest, names=export.names(declared, present)
        ),
    )
