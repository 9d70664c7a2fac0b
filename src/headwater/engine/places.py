"""The places that keep data of an entity: how each is erased, pruned, exported and made private.

``forget`` walks this list, tests find every text that a store was given in one of its places or in
none, and the reference is generated from it. A new table, key or file belongs here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from headwater.contexts.recorded.search import ContextQuery
from headwater.core.logging import log
from headwater.declarations.features import EntityDef
from headwater.engine.backfill.backfills import backfills_folder
from headwater.engine.engine import Engine
from headwater.engine.worker.contention import CONTENDED
from headwater.features.derivation_cache import CACHED_DERIVATIONS
from headwater.features.refresh_outcomes import REFRESH_OUTCOMES, RefreshOutcomes
from headwater.history.backfill.erasing import erase
from headwater.model.callers import current_actor
from headwater.ports import DeadLetterQuery
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS
from headwater.retrieval.retrievers import CACHED_SEARCHES

Private = Literal["clear", "partly", "hashed", "absent"]
"""What is stored without `record.include_content`: all of it, all but what a context was given or
found, hashes in its place, or nothing."""

Kept = Literal["history", "events", "records"]

_PAGE = 500
_LETTERS = 1_000_000


class Erased(msgspec.Struct, frozen=True):
    """An entity that is erased."""

    entity: EntityDef
    entity_id: str
    kept: frozenset[str]
    """The types whose events are about other entities, which may have the same id."""


class Erasure(msgspec.Struct, frozen=True):
    """An entity and what belongs to it, to erase or in a dry run to count, and why."""

    engine: Engine
    erased: Sequence[Erased]
    reason: str
    dry_run: bool


Erase = Callable[[Erasure], Awaitable[Mapping[str, int | Sequence[str]]]]
"""Erases entities from a place, and returns its part of the report; it can be repeated."""


async def _erase_dead_letters(erasure: Erasure) -> Mapping[str, int]:
    """Discard the dead letters of the events of entities."""
    stored, count = erasure.engine.backends.dead_letters, 0
    for each in erasure.erased:
        letters = await stored.letters(DeadLetterQuery(entity_id=each.entity_id, limit=_LETTERS))
        ids = [letter.id for letter in letters if letter.event.event_type not in each.kept]
        if ids and not erasure.dry_run:
            await stored.discard(ids)
        count += len(ids)
    return {"dead_letters": count}


async def _erase_records(erasure: Erasure) -> Mapping[str, int]:
    """Redact all values of the contexts that read an entity, and of their outcomes."""
    recorded, counts = erasure.engine.recorded, Counter(records=0, outcomes=0)
    because, seen = (erasure.reason, current_actor()), set[str]()
    for each in erasure.erased:
        async for context_id in _contexts_of(erasure.engine, each):
            if context_id in seen:  # it read several of them
                continue
            seen.add(context_id)
            record = await recorded.record_of(context_id)
            pointers = [disclosure.pointer for disclosure in record.disclosures]
            counts["records"] += bool(pointers)
            if pointers and not erasure.dry_run:
                await recorded.redact_values(
                    record.context_id, pointers, *because, everywhere=False
                )
            counts["outcomes"] += await recorded.outcomes.erase(
                record.context_id, *because, dry_run=erasure.dry_run
            )
    return counts


async def _contexts_of(engine: Engine, erased: Erased) -> AsyncIterator[str]:
    """Yield the ids of the contexts that read an entity."""
    query, cursor = ContextQuery(entity=erased.entity.name, entity_id=erased.entity_id), None
    while True:
        page = await engine.recorded.find(query, _PAGE, cursor)
        for summary in page.contexts:
            yield summary.context_id
        cursor = page.next_cursor
        if cursor is None:
            return


async def _erase_history_and_events(erasure: Erasure) -> Mapping[str, int | Sequence[str]]:
    """Remove the past values of entities, and their events."""
    counts, refs = Counter(history=0, events=0), set[str]()
    for each in erasure.erased:
        removed = await erasure.engine.backends.offline.forget(
            each.entity.name, each.entity_id, keep=each.kept, dry_run=erasure.dry_run
        )
        counts.update(history=removed.history, events=removed.events)
        refs |= removed.refs
    return {**counts, "lake_refs": sorted(refs)}


async def _erase_backfill_folders(erasure: Erasure) -> Mapping[str, int]:
    """Remove the events and failures of entities from the folders of backfills on this machine."""
    folder = backfills_folder(erasure.engine)
    if not erasure.dry_run and folder.exists():
        for job_folder in sorted(folder.iterdir()):
            for each in erasure.erased:
                if not await asyncio.to_thread(erase, job_folder, each.entity_id):
                    log.info(
                        "running backfill keeps erased events until it ends", folder=str(job_folder)
                    )
                    break
    return {}


async def _erase_values(erasure: Erasure) -> Mapping[str, int]:
    """Remove the current values of entities."""
    online, count = erasure.engine.backends.online, 0
    for each in erasure.erased:
        if erasure.dry_run:
            (cells,) = await online.get(each.entity.name, [each.entity_id])
            count += len(cells)
        else:
            count += await online.forget(each.entity.name, each.entity_id)
    return {"values": count}


async def _erase_files(erasure: Erasure) -> Mapping[str, int]:
    """Remove what the rows of the earlier steps left in files."""
    if not erasure.dry_run:
        await erasure.engine.backends.lifecycle.scrub()
    return {}


async def _erase_outcomes(erasure: Erasure) -> Mapping[str, int]:
    """Withhold the errors of refreshes, which may quote a value."""
    if not erasure.dry_run:
        engine = erasure.engine
        scheduled = [
            feature.name for feature in engine.registry.features.values() if feature.refresh
        ]
        await RefreshOutcomes(engine.backends.notes, engine.clock).withhold_errors(scheduled)
    return {}


async def _erase_contended(erasure: Erasure) -> Mapping[str, int]:
    """Drop the note about entities that are fought over."""
    if not erasure.dry_run:
        await erasure.engine.backends.notes.drop(CONTENDED)
    return {}


async def _erase_caches(erasure: Erasure) -> Mapping[str, int]:
    """Drop everything that may have been computed from an entity.

    A search may have found it, a text can be guessed from its embedding, and values of other
    entities are cached with the inputs that they were computed from.
    """
    if not erasure.dry_run:
        await erasure.engine.backends.cache.drop(
            CACHED_SEARCHES, CACHED_EMBEDDINGS, CACHED_DERIVATIONS
        )
        await erasure.engine.reader.follow_drops()
    return {}


class DataPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that keeps data of entities, and what becomes of it.

    ``where`` names tables, keys and files of both environments: ``sqlite:``, ``file:`` (in the
    home), ``redis:`` (without prefix and partition), ``postgres:``, or ``other:`` for what is
    outside of the store. `*` stands for any text.
    """

    name: str
    keeps: str
    where: tuple[str, ...]
    erased: str
    erase: Erase | None = None
    """The step of an erasure; places may share one."""
    pruned: str
    kept: Kept | None = None
    """The part of `headwater prune` that removes what is old; None if no part does."""
    exported: str
    private: Private

    def has(self, location: str) -> bool:
        """Return whether a table, a key or a file belongs to this place."""
        return any(fnmatchcase(location, pattern) for pattern in self.where)


def _cached(*beginnings: str) -> tuple[str, ...]:
    """Return the cached values whose keys begin with one of some texts, in both environments."""
    return tuple(
        f"{backend}:cache:{beginning}*"
        for backend in ("sqlite", "redis")
        for beginning in beginnings
    )


# In the order of an erasure. What belongs to an entity is found by the owner's id in history, so
# history comes after all that has the ids of what belongs: a repeated erasure finds it until then.
# The step of history also copies to Postgres that values were removed, so it follows them. What is
# computed before the end of an erasure may be made of the entity, so the caches come late; the last
# step removes what the others left in files.
PLACES = (
    DataPlace(
        name="dead letters",
        keeps="events that a feature could not handle, with error and traceback",
        where=("sqlite:dead_letters", "redis:dlq", "redis:dlq:moved", "redis:unhandled:*"),
        erased="discarded",
        erase=_erase_dead_letters,
        pruned="never; redrive or discard them",
        exported="`headwater dlq list`",
        private="partly",
    ),
    DataPlace(
        name="records",
        keeps="the parameters, values, searches and texts of contexts",
        where=("sqlite:records", "postgres:_records"),
        erased="every value is redacted in the contexts that read the entity; hashes stay",
        erase=_erase_records,
        pruned="`--records`",
        kept="records",
        exported="`headwater context export`",
        private="hashed",
    ),
    DataPlace(
        name="outcomes",
        keeps="answers, scores, corrections and errors of contexts; labels also as keyed hashes",
        where=("sqlite:outcomes", "postgres:_outcomes"),
        erased="every value is redacted in the outcomes of contexts that read the entity; "
        "numbers and names of scores and models stay",
        erase=_erase_records,
        pruned="`--records`",
        kept="records",
        exported="`headwater context export`",
        private="hashed",
    ),
    DataPlace(
        name="search keys of records",
        keeps="keyed hashes of what a context read",
        where=("sqlite:record_keys", "sqlite:waiting_keys", "postgres:_record_keys"),
        erased="stay: without the key they reveal nothing",
        pruned="`--records`",
        kept="records",
        exported="–",
        private="hashed",
    ),
    DataPlace(
        name="erasures",
        keeps="keyed hashes of erased entities, with the time",
        where=("sqlite:erasures", "redis:erasures", "postgres:_erasures"),
        erased="stay: they keep the entity from coming back, and reveal nothing without the key",
        pruned="never",
        exported="–",
        private="hashed",
    ),
    DataPlace(
        name="backfills",
        keeps="the events that an unfinished backfill replays, and its results",
        where=("file:backfills/*",),
        erased="removed on this machine, by a running backfill at its end",
        erase=_erase_backfill_folders,
        pruned="when the version is switched or cancelled",
        exported="–",
        private="clear",
    ),
    DataPlace(
        name="current values",
        keeps="the values of each entity, also of on-demand features with a `ttl`; the tiles of "
        "windows",
        where=("sqlite:entities", "redis:entity:*", "redis:ids:*"),
        erased="removed with the id",
        erase=_erase_values,
        pruned="never; computed values end with their `ttl`",
        exported="`headwater features get`",
        private="clear",
    ),
    DataPlace(
        name="history",
        keeps="every value that a feature had, and what events contributed to windows",
        where=(
            *("sqlite:history", "file:segments/history-*"),
            *("redis:changes", "redis:cross-shard", "postgres:_history*", "postgres:_series"),
        ),
        erased="removed; a Parquet file that had rows is deleted after `offline.segment_grace`",
        erase=_erase_history_and_events,
        pruned="`--history`",
        kept="history",
        exported="`headwater history export`",
        private="clear",
    ),
    DataPlace(
        name="events",
        keeps="events with payload; ticks of scheduled features",
        where=("sqlite:events", "file:segments/events-*", "redis:events", "postgres:_events*"),
        erased="removed, except types that only trigger features of other entities",
        erase=_erase_history_and_events,
        pruned="`--events`",
        kept="events",
        exported="`headwater events list`",
        private="clear",
    ),
    DataPlace(
        name="ids of events",
        keeps="event ids by which repetitions are recognised; in SQLite with the entity id",
        where=("sqlite:seen", "redis:seen", "redis:accepted"),
        erased="stay until `ingest.dedup_window` is over",
        pruned="when `ingest.dedup_window` is over",
        exported="–",
        private="clear",
    ),
    DataPlace(
        name="outcomes of refreshes",
        keeps="the error of the last run of a scheduled feature, which may quote a value",
        where=_cached(REFRESH_OUTCOMES),
        erased="all errors are withheld until the next run",
        erase=_erase_outcomes,
        pruned="with the next run that succeeds",
        exported="–",
        private="partly",
    ),
    DataPlace(
        name="contended entities",
        keeps="ids of entities to which handlers of several partitions wrote at once",
        where=_cached(CONTENDED),
        erased="all are dropped",
        erase=_erase_contended,
        pruned="after ten minutes",
        exported="`headwater doctor`",
        private="absent",
    ),
    DataPlace(
        name="inputs of computed values",
        keeps="what values with a `ttl` or a `refresh` were computed from",
        where=_cached(CACHED_DERIVATIONS),
        erased="all are dropped, in every process; the values are computed again",
        erase=_erase_caches,
        pruned="with the values",
        exported="–",
        private="partly",
    ),
    DataPlace(
        name="caches",
        keeps="results of retrievers, embeddings of queries",
        where=_cached(CACHED_SEARCHES, CACHED_EMBEDDINGS),
        erased="all are dropped, in every process, whoever they are about",
        erase=_erase_caches,
        pruned="with their time to live",
        exported="–",
        private="absent",
    ),
    DataPlace(
        name="pages of the database",
        keeps="the bytes of rows that were deleted, replaced or moved",
        where=("file:headwater.db", "file:headwater.db-wal", "file:headwater.db-shm"),
        erased="the file is written again, and its log emptied",
        erase=_erase_files,
        pruned="when SQLite uses the page again",
        exported="–",
        private="clear",
    ),
    DataPlace(
        name="documents of indexes",
        keeps="texts, metadata, chunks and embeddings, with the event that caused them",
        where=(
            *("sqlite:documents", "sqlite:document_metadata", "sqlite:metadata_values"),
            *("sqlite:chunks", "sqlite:chunk_*", "sqlite:outdated_documents", "file:vectors/*"),
            *("postgres:_documents", "postgres:_document_versions", "postgres:_chunks_*"),
        ),
        erased="stay: delete those about the entity with `headwater index delete`",
        pruned="deleted and replaced ones after `keep_versions`",
        exported="`headwater index show`",
        private="clear",
    ),
    DataPlace(
        name="audit log",
        keeps="administrative actions, with the ids of redriven and discarded events",
        where=(
            *("sqlite:audit_log", "sqlite:audit_outcomes"),
            *("postgres:_audit_log", "postgres:_audit_outcomes"),
        ),
        erased="stays: it has hashes in place of entity ids",
        pruned="never",
        exported="`headwater audit-log`",
        private="clear",
    ),
    DataPlace(
        name="temporary files",
        keeps="rows of a running query, import, export or upload",
        where=("file:scratch/*", "other:folders `headwater-*` of the system"),
        erased="removed when the call ends; those of a killed process by the next maintenance",
        pruned="when the call ends",
        exported="–",
        private="clear",
    ),
    DataPlace(
        name="topic of Kafka",
        keeps="accepted events, if `bus.url` names a topic",
        where=("other:topics of Kafka",),
        erased="stay until the topic's retention ends; no event of the entity is taken from it",
        pruned="by the retention of the topic",
        exported="by tools of Kafka",
        private="clear",
    ),
    DataPlace(
        name="your files and systems",
        keeps="exports, cohorts and results of evaluations, backups, logs, traces, sources of SQL "
        "features and the tables of `headwater sources load`, files of servers",
        where=("other:outside of the store",),
        erased="stay: Headwater does not know them",
        pruned="by you",
        exported="–",
        private="partly",
    ),
)

WITHOUT_DATA = (
    *("sqlite:meta", "sqlite:cursors", "sqlite:declared_sets", "sqlite:workers", "sqlite:ticks"),
    *("sqlite:catalog", "sqlite:segments", "sqlite:indexes", "sqlite:generations"),
    *("sqlite:sqlite_*", "file:workers/*", "file:*.lock", "file:segments/*.lock"),
    *("redis:idle", "redis:ticks", "redis:outbox", "redis:arrived", "redis:probe", "redis:group:*"),
    *("redis:lease:*", "redis:meta", "redis:catalog", "redis:workers:*", "redis:wake"),
    *("redis:commits", "redis:feed", "redis:fed"),
    *(
        "redis:cache-drops",
        "postgres:_meta",
        "postgres:_catalog",
        "postgres:_outbox",
        "postgres:_lake",
    ),
    *("postgres:_indexes", "postgres:_generations"),
    *_cached("declared-queries", "last-hour:", "overview:"),
)
"""The tables, keys and files that have no data of an entity."""
