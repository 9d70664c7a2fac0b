"""The places that keep data of an entity: how each is erased, pruned, exported and made private.

``forget`` walks this list, tests find every text that a store was given in one of its places or in
none, and the reference is generated from it. A new table, key or file belongs here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

from headwater.engine import erasures
from headwater.engine.erasures import Erase
from headwater.features.derivation_cache import CACHED_DERIVATIONS
from headwater.features.refresh_outcomes import REFRESH_OUTCOMES
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS
from headwater.retrieval.retrievers import CACHED_SEARCHES

Private = Literal["clear", "partly", "hashed", "absent"]
"""What is stored without `record.include_content`: all of it, all but what a context was given or
found, hashes in its place, or nothing."""

Kept = Literal["history", "events", "records"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
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


# In the order of an erasure. What is computed before the end of an erasure may be made of the
# entity, so the caches come late; the last step removes what the others left in files.
PLACES = (
    Place(
        name="dead letters",
        keeps="events that a feature could not handle, with error and traceback",
        where=("sqlite:dead_letters", "redis:dlq", "redis:dlq:moved", "redis:unhandled:*"),
        erased="discarded",
        erase=erasures.dead_letters,
        pruned="never; redrive or discard them",
        exported="`headwater dlq list`",
        private="partly",
    ),
    Place(
        name="records",
        keeps="the parameters, values, searches and texts of contexts",
        where=("sqlite:records", "postgres:_records"),
        erased="every value is redacted in the contexts that read the entity; hashes stay",
        erase=erasures.records,
        pruned="`--records`",
        kept="records",
        exported="`headwater context export`",
        private="hashed",
    ),
    Place(
        name="search keys of records",
        keeps="keyed hashes of what a context read",
        where=("sqlite:record_keys", "sqlite:waiting_keys", "postgres:_record_keys"),
        erased="stay: without the key they reveal nothing",
        pruned="`--records`",
        kept="records",
        exported="–",
        private="hashed",
    ),
    Place(
        name="erasures",
        keeps="keyed hashes of erased entities, with the time",
        where=("sqlite:erasures", "redis:erasures", "postgres:_erasures"),
        erased="stay: they keep the entity from coming back, and reveal nothing without the key",
        pruned="never",
        exported="–",
        private="hashed",
    ),
    Place(
        name="history",
        keeps="every value that a feature had",
        where=(
            *("sqlite:history", "file:segments/history-*"),
            *("redis:changes", "redis:cross-shard", "postgres:_history*", "postgres:_series"),
        ),
        erased="removed; a Parquet file that had rows is deleted after `offline.segment_grace`",
        erase=erasures.history_and_events,
        pruned="`--history`",
        kept="history",
        exported="`headwater history export`",
        private="clear",
    ),
    Place(
        name="events",
        keeps="events with payload; ticks of scheduled features",
        where=("sqlite:events", "file:segments/events-*", "redis:events", "postgres:_events*"),
        erased="removed, except types that only trigger features of other entities",
        erase=erasures.history_and_events,
        pruned="`--events`",
        kept="events",
        exported="`headwater events list`",
        private="clear",
    ),
    Place(
        name="ids of events",
        keeps="event ids by which repetitions are recognised; in SQLite with the entity id",
        where=("sqlite:seen", "redis:seen", "redis:accepted"),
        erased="stay until `ingest.dedup_window` is over",
        pruned="when `ingest.dedup_window` is over",
        exported="–",
        private="clear",
    ),
    Place(
        name="backfills",
        keeps="the events that an unfinished backfill replays, and its results",
        where=("file:backfills/*",),
        erased="removed on this machine, by a running backfill at its end",
        erase=erasures.backfill_folders,
        pruned="when the version is switched or cancelled",
        exported="–",
        private="clear",
    ),
    Place(
        name="current values",
        keeps="the values of each entity, also of on-demand features with a `ttl`",
        where=("sqlite:entities", "redis:entity:*", "redis:ids:*"),
        erased="removed with the id",
        erase=erasures.values,
        pruned="never; computed values end with their `ttl`",
        exported="`headwater features get`",
        private="clear",
    ),
    Place(
        name="outcomes of refreshes",
        keeps="the error of the last run of a scheduled feature, which may quote a value",
        where=_cached(REFRESH_OUTCOMES),
        erased="all errors are withheld until the next run",
        erase=erasures.outcomes,
        pruned="with the next run that succeeds",
        exported="–",
        private="partly",
    ),
    Place(
        name="inputs of computed values",
        keeps="what values with a `ttl` or a `refresh` were computed from",
        where=_cached(CACHED_DERIVATIONS),
        erased="all are dropped, in every process; the values are computed again",
        erase=erasures.caches,
        pruned="with the values",
        exported="–",
        private="partly",
    ),
    Place(
        name="caches",
        keeps="results of retrievers, embeddings of queries",
        where=_cached(CACHED_SEARCHES, CACHED_EMBEDDINGS),
        erased="all are dropped, in every process, whoever they are about",
        erase=erasures.caches,
        pruned="with their time to live",
        exported="–",
        private="absent",
    ),
    Place(
        name="pages of the database",
        keeps="the bytes of rows that were deleted, replaced or moved",
        where=("file:headwater.db", "file:headwater.db-wal", "file:headwater.db-shm"),
        erased="the file is written anew, and its log emptied",
        erase=erasures.files,
        pruned="when SQLite uses the page again",
        exported="–",
        private="clear",
    ),
    Place(
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
    Place(
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
    Place(
        name="temporary files",
        keeps="rows of a running query, import, export or upload",
        where=("file:scratch/*", "other:folders `headwater-*` of the system"),
        erased="removed when the call ends; those of a killed process by the next maintenance",
        pruned="when the call ends",
        exported="–",
        private="clear",
    ),
    Place(
        name="your files and systems",
        keeps="exports, backups, logs, traces, sources of SQL features, files of servers",
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
    *("redis:cache-drops", "postgres:_meta", "postgres:_catalog", "postgres:_outbox"),
    *("postgres:_indexes", "postgres:_generations"),
    *_cached("declared-queries", "last-hour:", "overview:"),
)
"""The tables, keys and files that have no data of an entity."""
