-- The embedded store: events, current values, recent history and records of contexts.
-- Times are microseconds since the epoch, UTC. SCHEMA_VERSION in home.py numbers this schema.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT: a sequence number must never be reused after the log was trimmed, or cursors
-- would skip the event that got it.
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    partition    INTEGER NOT NULL,
    event_id     TEXT NOT NULL,
    event_type   TEXT NOT NULL,
    entity_id    TEXT NOT NULL,
    timestamp    INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    payload      BLOB NOT NULL,
    only_feature TEXT,
    traceparent  TEXT
);
CREATE INDEX events_by_partition ON events (partition);
CREATE INDEX redriven_events ON events (entity_id) WHERE only_feature IS NOT NULL;

-- The ids of events inside their dedup window, and the content with which each was accepted. The
-- event id comes first: ids that rise with time are inserted at the end of the tree.
CREATE TABLE seen (
    event_id   TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    content    BLOB NOT NULL,
    PRIMARY KEY (event_id, entity_id)
) WITHOUT ROWID;

-- The last processed event of each partition, how many were processed, and the worker that holds
-- the lease. The attempt columns count the runs of an event that may have killed its worker.
CREATE TABLE cursors (
    consumer_group TEXT NOT NULL,
    partition      INTEGER NOT NULL,
    seq            INTEGER NOT NULL DEFAULT 0,
    owner          TEXT,
    epoch          INTEGER NOT NULL DEFAULT 0,
    attempt_seq    INTEGER NOT NULL DEFAULT 0,
    attempts       INTEGER NOT NULL DEFAULT 0,
    committed_at   INTEGER,
    committed      INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, partition)
) WITHOUT ROWID;

-- The sets of features that workers of a group declare, as sorted JSON, numbered as they were first
-- registered, and the number of the first set of the same code. AUTOINCREMENT: a set that was
-- removed and registered again is a later one.
CREATE TABLE declared_sets (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_group TEXT NOT NULL,
    code           TEXT NOT NULL,
    features       TEXT NOT NULL,
    first          INTEGER,
    UNIQUE (consumer_group, code, features)
);

-- The registered workers. A worker whose lock file is not locked is dead.
CREATE TABLE workers (
    worker         TEXT PRIMARY KEY,
    consumer_group TEXT NOT NULL,
    declared_set   INTEGER NOT NULL
) WITHOUT ROWID;

-- One packed value per entity: a JSON object of feature → [value, as_of, written_at, expires_at].
CREATE TABLE entities (
    entity    TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    partition INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    state     BLOB NOT NULL,
    PRIMARY KEY (entity, entity_id)
);
CREATE INDEX entities_by_partition ON entities (entity, partition, entity_id);

-- Recent history, until it is moved into a segment.
CREATE TABLE history (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    feature    TEXT NOT NULL,
    entity     TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    kind       TEXT NOT NULL,
    value      BLOB NOT NULL,
    as_of      INTEGER NOT NULL,
    written_at INTEGER NOT NULL,
    cause      TEXT NOT NULL
);
-- The row from which imports reserve sequence numbers; SQLite would create it with the first insert.
INSERT INTO sqlite_sequence (name, seq) VALUES ('history', 0);

CREATE TABLE dead_letters (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    feature         TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    entity_id       TEXT NOT NULL,
    event           BLOB NOT NULL,
    error           TEXT NOT NULL,
    traceback       TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    partition       INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    dead_at         INTEGER NOT NULL,
    consumer_group  TEXT NOT NULL
);
CREATE INDEX dead_letters_by_entity ON dead_letters (entity_id);

-- The last due time of each scheduled feature for which a tick was published.
CREATE TABLE ticks (
    feature TEXT PRIMARY KEY,
    due     INTEGER NOT NULL
) WITHOUT ROWID;

-- The versions of all features, as one JSON document.
CREATE TABLE catalog (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    revision INTEGER NOT NULL,
    state    BLOB NOT NULL
);

-- Erased entities by keyed hash, each with the last event that had been accepted. The last row of an
-- entity counts; the largest revision shows a process whether it knows all.
CREATE TABLE erasures (
    revision   INTEGER PRIMARY KEY AUTOINCREMENT,
    digest     BLOB NOT NULL,
    erased_at  INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    may_return INTEGER NOT NULL
);

-- The Parquet files with the rows moved out of history and events, and the range of buckets that
-- their entities are in. A retired segment was merged into others and is unlinked when no reader
-- can be using it. A segment is also retired until its file is written; then it has the size of the
-- file, and the SHA-256 of its last 64 KiB and of all its bytes.
CREATE TABLE segments (
    name         TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    rows         INTEGER NOT NULL,
    first_bucket INTEGER NOT NULL,
    last_bucket  INTEGER NOT NULL,
    retired_at   INTEGER,
    size         INTEGER,
    ending       BLOB,
    digest       BLOB
) WITHOUT ROWID;

-- Records of contexts, byte for byte. Small columns come first, so that listing records does not
-- read the pages with their texts.
CREATE TABLE records (
    context_id       TEXT NOT NULL PRIMARY KEY,
    record_hash      TEXT NOT NULL UNIQUE,
    content_hash     TEXT NOT NULL,
    name             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    freshness_status TEXT NOT NULL,
    caller           TEXT,
    assembly_us      INTEGER NOT NULL,
    model            TEXT,
    tokens           INTEGER NOT NULL,
    max_tokens       INTEGER,
    cost_nano_usd    INTEGER,
    items_dropped    INTEGER NOT NULL,
    is_signed        INTEGER NOT NULL,
    is_redacted      INTEGER NOT NULL,
    core             BLOB NOT NULL,
    disclosures      BLOB NOT NULL,
    signature        BLOB,
    redactions       BLOB NOT NULL,
    keys             BLOB NOT NULL
);
CREATE INDEX records_by_time ON records (created_at, context_id);
-- The last column lets contexts be counted by freshness without reading their rows.
CREATE INDEX records_by_name ON records (name, created_at, context_id, freshness_status);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX records_by_caller ON records (caller, created_at, context_id, freshness_status)
    WHERE caller IS NOT NULL;

-- The keys under which a record is found: the values and chunks it was made of.
CREATE TABLE record_keys (
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    context_id TEXT NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
) WITHOUT ROWID;

-- Outcomes of contexts, byte for byte. `created_at` and `counted_model` are those of the record,
-- so that an index lists the records with an outcome in their own order.
CREATE TABLE outcomes (
    outcome_id    TEXT NOT NULL PRIMARY KEY,
    context_id    TEXT NOT NULL,
    record_hash   TEXT NOT NULL,
    outcome_hash  TEXT NOT NULL,
    kind          TEXT NOT NULL,
    at            INTEGER NOT NULL,
    name          TEXT,
    value         REAL,
    flag          INTEGER,
    label_key     BLOB,
    model         TEXT,
    error_type    TEXT,
    predicted     INTEGER,
    billed        INTEGER,
    source_key    BLOB,
    is_signed     INTEGER NOT NULL,
    is_redacted   INTEGER NOT NULL,
    core          BLOB NOT NULL,
    disclosures   BLOB NOT NULL,
    signature     BLOB,
    redactions    BLOB NOT NULL,
    created_at    INTEGER NOT NULL,
    counted_model TEXT
);
CREATE INDEX outcomes_by_context ON outcomes (context_id, at, outcome_id);
CREATE UNIQUE INDEX outcomes_by_source ON outcomes (source_key)
    WHERE source_key IS NOT NULL;
CREATE INDEX outcomes_by_time ON outcomes (at, outcome_id);
CREATE INDEX outcomes_by_score
    ON outcomes (name, created_at, context_id, value, flag, label_key) WHERE name IS NOT NULL;
CREATE INDEX outcomes_by_label ON outcomes (label_key, created_at, context_id)
    WHERE label_key IS NOT NULL;
CREATE INDEX outcomes_by_model ON outcomes (model, created_at, context_id)
    WHERE model IS NOT NULL;
CREATE INDEX outcomes_by_error ON outcomes (error_type, created_at, context_id)
    WHERE error_type IS NOT NULL;
CREATE INDEX outcomes_measured ON outcomes (counted_model, at, predicted, billed)
    WHERE predicted IS NOT NULL AND billed IS NOT NULL AND counted_model IS NOT NULL;

-- Cached results of retrievers; losing them costs time, nothing else.
CREATE TABLE cache (
    key        TEXT NOT NULL PRIMARY KEY,
    kept_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    value      BLOB NOT NULL
);
CREATE INDEX cache_by_end ON cache (expires_at, size);

-- Keys not yet in record_keys. They are moved there in batches: inserted one by one, each would
-- dirty another page and make a commit take twice as long.
CREATE TABLE waiting_keys (
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    context_id TEXT NOT NULL
);
CREATE TRIGGER move_waiting_keys AFTER INSERT ON waiting_keys WHEN new.rowid >= 512
BEGIN
    INSERT OR IGNORE INTO record_keys (key, created_at, context_id)
    SELECT key, created_at, context_id FROM waiting_keys ORDER BY key, created_at, context_id;
    DELETE FROM waiting_keys;
END;

-- Indexes of documents. The row of an index stays when it is dropped, so that neither its times nor
-- the numbers of its generations repeat; its contents get a row without a name, to be removed.
CREATE TABLE indexes (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT UNIQUE,
    changed_at      INTEGER NOT NULL,
    last_generation INTEGER NOT NULL
);

-- `changed_at` is the time of the last change of a generation's chunks, `last_seq` the number of
-- the last chunk. Chunks that were replaced before `pruned_before` are removed, or about to be.
CREATE TABLE generations (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    index_id      INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    spec          BLOB NOT NULL,
    state         TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    activated_at  INTEGER,
    retired_at    INTEGER,
    changed_at    INTEGER NOT NULL,
    pruned_before INTEGER NOT NULL DEFAULT 0,
    last_seq      INTEGER NOT NULL DEFAULT 0,
    documents     INTEGER NOT NULL DEFAULT 0,
    chunks        INTEGER NOT NULL DEFAULT 0,
    UNIQUE (index_id, number)
);

-- The current version of each document. A removed one has no text; its row is kept for a time, so
-- that the number of its next version is a later one.
CREATE TABLE documents (
    id          INTEGER PRIMARY KEY,
    index_id    INTEGER NOT NULL,
    document    TEXT NOT NULL,
    version     INTEGER NOT NULL,
    metadata_id INTEGER NOT NULL,
    indexed_at  INTEGER NOT NULL,
    as_of       INTEGER NOT NULL,
    cause       TEXT NOT NULL,
    text        TEXT,
    UNIQUE (index_id, document)
);
CREATE INDEX removed_documents ON documents (index_id, indexed_at, document) WHERE text IS NULL;

-- The documents that a generation in use has not, or not in the current version.
CREATE TABLE outdated_documents (
    generation_id INTEGER NOT NULL,
    document      TEXT NOT NULL,
    is_missing    INTEGER NOT NULL,
    PRIMARY KEY (generation_id, document)
) WITHOUT ROWID;

-- The metadata of the versions of a document, as JSON, once for all chunks that have it.
CREATE TABLE document_metadata (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    metadata BLOB NOT NULL
);

-- The same, field by field, for filters. The columns without a type keep numbers as they are.
CREATE TABLE metadata_values (
    index_id    INTEGER NOT NULL,
    field       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    value       NOT NULL,
    metadata_id INTEGER NOT NULL,
    is_element  INTEGER NOT NULL,
    PRIMARY KEY (index_id, field, kind, value, metadata_id, is_element)
) WITHOUT ROWID;

-- The chunks of all generations: `id` is the generation's id << 32 | seq, with seq 1, 2, 3… in each
-- generation. Only small columns, because every process reads those of a generation it searches.
CREATE TABLE chunks (
    id          INTEGER PRIMARY KEY,
    valid_from  INTEGER NOT NULL,
    valid_to    INTEGER,
    length      INTEGER NOT NULL,
    metadata_id INTEGER NOT NULL,
    document_id INTEGER NOT NULL
);
CREATE INDEX chunks_by_document ON chunks (document_id, valid_to);
CREATE INDEX chunks_by_end ON chunks (id >> 32, valid_to) WHERE valid_to IS NOT NULL;

CREATE TABLE chunk_contents (
    id           INTEGER PRIMARY KEY,
    chunk_id     TEXT NOT NULL,
    position     INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    indexed_at   INTEGER NOT NULL,
    content_hash TEXT NOT NULL,
    text         TEXT NOT NULL,
    terms        TEXT NOT NULL
);
CREATE INDEX chunk_contents_by_hash ON chunk_contents (content_hash);

CREATE TABLE chunk_embeddings (
    id        INTEGER PRIMARY KEY,
    embedding BLOB NOT NULL
);

-- The terms of the chunks, each with its generation in front (see vectors/terms.py). FTS5 keeps the
-- positions alone; the scores are computed from these for any time, which its own cannot be.
CREATE VIRTUAL TABLE chunk_terms USING fts5(
    terms, content = '', columnsize = 0, tokenize = "ascii tokenchars '._'"
);
CREATE VIRTUAL TABLE chunk_term_positions USING fts5vocab('chunk_terms', 'instance');

-- Administrative actions, and how they ended. Both tables can only be added to.
CREATE TABLE audit_log (
    id         TEXT NOT NULL PRIMARY KEY,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    parameters TEXT NOT NULL
);
CREATE INDEX audit_log_by_time ON audit_log (at, id);
CREATE TABLE audit_outcomes (
    id      TEXT NOT NULL PRIMARY KEY,
    at      INTEGER,
    outcome TEXT NOT NULL,
    error   TEXT
);
-- Ignoring a second insert also keeps REPLACE, which fires no DELETE trigger, from changing a row.
CREATE TRIGGER audit_log_insert BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log WHERE id = new.id) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER audit_log_update BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END;
CREATE TRIGGER audit_log_delete BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END;
CREATE TRIGGER audit_outcomes_insert BEFORE INSERT ON audit_outcomes
WHEN EXISTS (SELECT 1 FROM audit_outcomes WHERE id = new.id) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER audit_outcomes_update BEFORE UPDATE ON audit_outcomes
BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END;
CREATE TRIGGER audit_outcomes_delete BEFORE DELETE ON audit_outcomes
BEGIN SELECT RAISE(ABORT, 'the audit log can only be added to'); END;
