-- The tables of every earlier version of an embedded home, each as what it changed of the one before.
-- The number of two versions stood for two definitions.

-- version 1
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    partition    INTEGER NOT NULL,
    event_id     TEXT NOT NULL,
    event_type   TEXT NOT NULL,
    entity_id    TEXT NOT NULL,
    timestamp    INTEGER NOT NULL,
    received_at  INTEGER NOT NULL,
    payload      BLOB NOT NULL,
    only_feature TEXT
);
CREATE INDEX events_by_partition ON events (partition);
CREATE TABLE seen (
    event_id   TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE cursors (
    consumer_group TEXT NOT NULL,
    partition      INTEGER NOT NULL,
    seq            INTEGER NOT NULL DEFAULT 0,
    owner          TEXT,
    epoch          INTEGER NOT NULL DEFAULT 0,
    attempt_seq    INTEGER NOT NULL DEFAULT 0,
    attempts       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer_group, partition)
) WITHOUT ROWID;
CREATE TABLE entities (
    entity    TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    partition INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    state     BLOB NOT NULL,
    PRIMARY KEY (entity, entity_id)
);
CREATE INDEX entities_by_partition ON entities (entity, partition, entity_id);
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
CREATE TABLE dead_letters (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    feature         TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    event           BLOB NOT NULL,
    error           TEXT NOT NULL,
    traceback       TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    partition       INTEGER NOT NULL,
    seq             INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    dead_at         INTEGER NOT NULL
);
CREATE TABLE ticks (
    feature TEXT PRIMARY KEY,
    due     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE segments (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    rows       INTEGER NOT NULL,
    retired_at INTEGER
) WITHOUT ROWID;

-- version 2
CREATE TABLE records (
    context_id       TEXT NOT NULL PRIMARY KEY,
    record_hash      TEXT NOT NULL UNIQUE,
    content_hash     TEXT NOT NULL,
    name             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    freshness_status TEXT NOT NULL,
    core             BLOB NOT NULL,
    disclosures      BLOB NOT NULL,
    signature        BLOB,
    redactions       BLOB NOT NULL
);
CREATE INDEX records_by_time ON records (created_at, context_id);
CREATE INDEX records_by_name ON records (name, created_at, context_id);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE TABLE record_keys (
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    context_id TEXT NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
) WITHOUT ROWID;
CREATE TABLE cache (
    key        TEXT NOT NULL PRIMARY KEY,
    kept_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    value      BLOB NOT NULL
);
CREATE INDEX cache_by_end ON cache (expires_at, size);

-- version 3
CREATE TABLE waiting_keys (
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    context_id TEXT NOT NULL
);
CREATE TRIGGER waiting_keys_are_many AFTER INSERT ON waiting_keys WHEN new.rowid >= 2048
BEGIN
    INSERT OR IGNORE INTO record_keys (key, created_at, context_id)
    SELECT key, created_at, context_id FROM waiting_keys ORDER BY key, created_at, context_id;
    DELETE FROM waiting_keys;
END;

-- version 4
DROP TRIGGER waiting_keys_are_many;
CREATE TRIGGER move_waiting_keys AFTER INSERT ON waiting_keys WHEN new.rowid >= 512
BEGIN
    INSERT OR IGNORE INTO record_keys (key, created_at, context_id)
    SELECT key, created_at, context_id FROM waiting_keys ORDER BY key, created_at, context_id;
    DELETE FROM waiting_keys;
END;
INSERT INTO sqlite_sequence (name, seq) VALUES ('history', 0);

-- version 5
DROP TABLE seen;
DROP TABLE cursors;
DROP TABLE dead_letters;
CREATE TABLE seen (
    event_id   TEXT NOT NULL,
    entity_id  TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    content    BLOB NOT NULL,
    PRIMARY KEY (event_id, entity_id)
) WITHOUT ROWID;
CREATE TABLE cursors (
    consumer_group TEXT NOT NULL,
    partition      INTEGER NOT NULL,
    seq            INTEGER NOT NULL DEFAULT 0,
    owner          TEXT,
    epoch          INTEGER NOT NULL DEFAULT 0,
    attempt_seq    INTEGER NOT NULL DEFAULT 0,
    attempts       INTEGER NOT NULL DEFAULT 0,
    committed_at   INTEGER,
    PRIMARY KEY (consumer_group, partition)
) WITHOUT ROWID;
CREATE TABLE declared_sets (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_group TEXT NOT NULL,
    features       TEXT NOT NULL,
    UNIQUE (consumer_group, features)
);
CREATE TABLE workers (
    worker         TEXT PRIMARY KEY,
    consumer_group TEXT NOT NULL,
    declared_set   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE dead_letters (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    feature         TEXT NOT NULL,
    event_type      TEXT NOT NULL,
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

-- version 6
CREATE TABLE indexes (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    name            TEXT UNIQUE,
    changed_at      INTEGER NOT NULL,
    last_generation INTEGER NOT NULL
);
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
CREATE TABLE documents (
    id          INTEGER PRIMARY KEY,
    index_id    INTEGER NOT NULL,
    document    TEXT NOT NULL,
    version     INTEGER NOT NULL,
    metadata_id INTEGER NOT NULL,
    indexed_at  INTEGER NOT NULL,
    cause       TEXT NOT NULL,
    text        TEXT,
    UNIQUE (index_id, document)
);
CREATE TABLE outdated_documents (
    generation_id INTEGER NOT NULL,
    document      TEXT NOT NULL,
    is_missing    INTEGER NOT NULL,
    PRIMARY KEY (generation_id, document)
) WITHOUT ROWID;
CREATE TABLE document_metadata (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    metadata BLOB NOT NULL
);
CREATE TABLE metadata_values (
    index_id    INTEGER NOT NULL,
    field       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    value       NOT NULL,
    metadata_id INTEGER NOT NULL,
    is_element  INTEGER NOT NULL,
    PRIMARY KEY (index_id, field, kind, value, metadata_id, is_element)
) WITHOUT ROWID;
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
CREATE VIRTUAL TABLE chunk_terms USING fts5(
    terms, content = '', columnsize = 0, tokenize = "ascii tokenchars '._'"
);
CREATE VIRTUAL TABLE chunk_term_positions USING fts5vocab('chunk_terms', 'instance');

-- version 7
CREATE TABLE catalog (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    revision INTEGER NOT NULL,
    state    BLOB NOT NULL
);
CREATE INDEX removed_documents ON documents (index_id, indexed_at, document) WHERE text IS NULL;

-- version 7, later
DROP TABLE segments;
CREATE TABLE segments (
    name         TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    rows         INTEGER NOT NULL,
    first_bucket INTEGER NOT NULL,
    last_bucket  INTEGER NOT NULL,
    retired_at   INTEGER
) WITHOUT ROWID;

-- version 8
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

-- version 8, later
DROP TABLE events;
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

-- version 9
DROP TABLE records;
CREATE TABLE records (
    context_id       TEXT NOT NULL PRIMARY KEY,
    record_hash      TEXT NOT NULL UNIQUE,
    content_hash     TEXT NOT NULL,
    name             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    freshness_status TEXT NOT NULL,
    caller           TEXT,
    core             BLOB NOT NULL,
    disclosures      BLOB NOT NULL,
    signature        BLOB,
    redactions       BLOB NOT NULL
);
CREATE INDEX records_by_time ON records (created_at, context_id);
CREATE INDEX records_by_name ON records (name, created_at, context_id);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX records_by_caller ON records (caller, created_at, context_id) WHERE caller IS NOT NULL;

-- version 10
DROP TABLE cursors;
DROP TABLE records;
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
CREATE TABLE records (
    context_id       TEXT NOT NULL PRIMARY KEY,
    record_hash      TEXT NOT NULL UNIQUE,
    content_hash     TEXT NOT NULL,
    name             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    freshness_status TEXT NOT NULL,
    caller           TEXT,
    assembly_us      INTEGER NOT NULL,
    core             BLOB NOT NULL,
    disclosures      BLOB NOT NULL,
    signature        BLOB,
    redactions       BLOB NOT NULL
);
CREATE INDEX records_by_time ON records (created_at, context_id);
CREATE INDEX records_by_name ON records (name, created_at, context_id);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX records_by_caller ON records (caller, created_at, context_id) WHERE caller IS NOT NULL;

-- version 11
DROP TABLE records;
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
    redactions       BLOB NOT NULL
);
CREATE INDEX records_by_time ON records (created_at, context_id);
CREATE INDEX records_by_name ON records (name, created_at, context_id, freshness_status);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX records_by_caller ON records (caller, created_at, context_id, freshness_status)
    WHERE caller IS NOT NULL;

-- version 12
DROP TABLE declared_sets;
CREATE TABLE declared_sets (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer_group TEXT NOT NULL,
    code           TEXT NOT NULL,
    features       TEXT NOT NULL,
    first          INTEGER,
    UNIQUE (consumer_group, code, features)
);

-- version 13
DROP TABLE documents;
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

-- version 14
CREATE TABLE erasures (
    revision   INTEGER PRIMARY KEY AUTOINCREMENT,
    digest     BLOB NOT NULL,
    erased_at  INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    may_return INTEGER NOT NULL
);

-- version 15
DROP TABLE records;
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
CREATE INDEX records_by_name ON records (name, created_at, context_id, freshness_status);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX records_by_caller ON records (caller, created_at, context_id, freshness_status)
    WHERE caller IS NOT NULL;

-- version 16
DROP TABLE dead_letters;
CREATE INDEX redriven_events ON events (entity_id) WHERE only_feature IS NOT NULL;
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

-- version 17
DROP TABLE segments;
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
