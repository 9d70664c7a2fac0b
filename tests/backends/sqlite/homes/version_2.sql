BEGIN TRANSACTION;
CREATE TABLE cache (
    key        TEXT NOT NULL PRIMARY KEY,
    kept_at    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    value      BLOB NOT NULL
);
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
INSERT INTO "cursors" VALUES('headwater_workers',0,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',1,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',2,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',3,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',4,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',5,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',6,1,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',7,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',8,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',9,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',10,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',11,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',12,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',13,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',14,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',15,0,NULL,1,0,0);
INSERT INTO "cursors" VALUES('headwater_workers',16,0,NULL,1,0,0);
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
CREATE TABLE entities (
    entity    TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    partition INTEGER NOT NULL,
    version   INTEGER NOT NULL,
    state     BLOB NOT NULL,
    PRIMARY KEY (entity, entity_id)
);
INSERT INTO "entities" VALUES('User','u1',6,1,X'7B22746F74616C223A5B372C313739343732353339373639313331342C313739343732353339373730303934312C6E756C6C5D7D');
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
INSERT INTO "events" VALUES(1,6,'01a1ddf8-44bb-7460-a35a-cd494a6f6ed0','buy','u1',1794725397691314,1794725397691499,X'7B22616D6F756E74223A377D',NULL);
INSERT INTO "events" VALUES(2,6,'01a1ddf8-44c8-71ad-9de2-78356c13d0e0','note','u1',1794725397704593,1794725397704667,X'7B2274657874223A227761697473227D',NULL);
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
INSERT INTO "history" VALUES(1,'total','User','u1','int',X'37',1794725397691314,1794725397700941,'01a1ddf8-44bb-7460-a35a-cd494a6f6ed0');
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "meta" VALUES('partitions','16');
CREATE TABLE record_keys (
    key        BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    context_id TEXT NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
) WITHOUT ROWID;
INSERT INTO "record_keys" VALUES(X'6F6C64',1767225600000000,'019b76da-a800-7000-8000-00000000abcd');
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
INSERT INTO "records" VALUES('019b76da-a800-7000-8000-00000000abcd','sha256:a01ae9b9bd4ef143bd106458372e13534c93320286fe89491596f2b66a351a27','sha256:982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1','support',1767225600000000,'guaranteed',X'7B7D30313962373664612D613830302D373030302D383030302D303030303030303061626364',X'5B5D',NULL,X'5B5D');
CREATE TABLE seen (
    event_id   TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE segments (
    name       TEXT PRIMARY KEY,
    kind       TEXT NOT NULL,
    rows       INTEGER NOT NULL,
    retired_at INTEGER
) WITHOUT ROWID;
CREATE TABLE ticks (
    feature TEXT PRIMARY KEY,
    due     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_partition ON events (partition);
CREATE INDEX entities_by_partition ON entities (entity, partition, entity_id);
CREATE INDEX records_by_time ON records (created_at, context_id);
CREATE INDEX records_by_name ON records (name, created_at, context_id);
CREATE INDEX records_by_freshness ON records (freshness_status, created_at, context_id);
CREATE INDEX cache_by_end ON cache (expires_at, size);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',2);
INSERT INTO "sqlite_sequence" VALUES('history',1);
COMMIT;
