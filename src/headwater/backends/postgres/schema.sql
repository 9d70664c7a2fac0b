-- History and records, in tables that begin with an underscore. Queries of users name the views.

CREATE FUNCTION _moment(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
-- In two parts, because an interval is multiplied in floating point.
RETURN to_timestamp(micros / 1000000) + micros % 1000000 * interval '1 microsecond';

-- Return which typed column can hold a JSON text of a kind. Other values stay 'json', so that
-- nothing is lost and no row makes a query fail.
CREATE FUNCTION _form(kind text, value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN value = 'null' THEN 'none'
    WHEN kind = 'int' THEN CASE
        WHEN value ~ '^-?\d{1,18}$' THEN 'int'
        WHEN value ~ '^\d{19}$' AND value COLLATE "C" <= '9223372036854775807' THEN 'int'
        WHEN value ~ '^-\d{19}$' AND value COLLATE "C" <= '-9223372036854775808' THEN 'int'
        ELSE 'json' END
    WHEN kind = 'float' THEN CASE
        WHEN value ~ '^-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,2})?$' THEN 'float'
        WHEN value ~ '^-?\d{1,20}(\.\d{1,20})?[eE][+-]?\d{3}$' THEN CASE
            WHEN abs(value::numeric) BETWEEN 4.94e-324 AND 1.7976931348623157e308 THEN 'float'
            ELSE 'json' END
        ELSE 'json' END
    WHEN kind = 'bool' AND value IN ('true', 'false') THEN 'bool'
    -- A text in Postgres cannot contain U+0000 or half of a surrogate pair.
    WHEN kind = 'text' AND value ~ '^"' AND value !~ '(^|[^\\])(\\\\)*\\u(0000|[dD][89a-fA-F])'
        THEN 'text'
    WHEN kind = 'time' AND value ~ (
        '^"(?!0000)('
        '\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])|\d{4}-(0[13-9]|1[0-2])-(29|30)|'
        '\d{4}-(0[13578]|1[02])-31|'
        '(\d\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29'
        ')T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-5]):[0-5]\d)"$'
    ) THEN 'time'
    ELSE 'json' END;

-- Return JSON as queries see it. Operators of Postgres refuse JSON with U+0000 anywhere, and one
-- such row would make every query over the column fail.
CREATE FUNCTION _readable(given json) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(given::text, '\u0000') = 0 THEN given
    ELSE regexp_replace(given::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::json END;

-- One row: the version of the tables, the id of the store in Redis whose history this is (NULL
-- until one is bound), and the secret keys of the hashes that records are found by, and that stand
-- for erased entities. The marks are hashes with the configured keys that records are found by.
CREATE TABLE _meta (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version   integer NOT NULL,
    store_id  text,
    index_key bytea,
    erasure_key bytea,
    record_marks bytea[] NOT NULL DEFAULT '{}'
);

-- Erased entities by keyed hash, each with the last event that had been accepted. The last row of an
-- entity counts; the largest revision shows a process whether it knows all.
CREATE TABLE _erasures (
    revision   bigint PRIMARY KEY,
    digest     bytea NOT NULL,
    erased_at  bigint NOT NULL,
    position   text NOT NULL,
    may_return boolean NOT NULL
);

-- One row: a copy of the catalog of features, which outlives Redis.
CREATE TABLE _catalog (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint NOT NULL,
    state    text NOT NULL
);

-- Administrative actions, and how they ended. Both tables can only be added to.
CREATE TABLE _audit_log (
    id         text COLLATE "C" PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    target     text NOT NULL,
    parameters text NOT NULL
);
CREATE INDEX _audit_log_at_id_idx ON _audit_log (at, id);
CREATE TABLE _audit_outcomes (
    id      text COLLATE "C" PRIMARY KEY,
    at      timestamptz,
    outcome text NOT NULL,
    error   text
);
CREATE FUNCTION _refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the audit log can only be added to'; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON _audit_log
FOR EACH STATEMENT EXECUTE FUNCTION _refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON _audit_outcomes
FOR EACH STATEMENT EXECUTE FUNCTION _refuse_change();

-- The last row taken from each partition of a store's outbox ('' for none). The lock on a row is
-- the right to take more.
CREATE TABLE _outbox (
    store_id  text NOT NULL,
    partition integer NOT NULL,
    history   text NOT NULL DEFAULT '',
    events    text NOT NULL DEFAULT '',
    PRIMARY KEY (store_id, partition)
) WITH (fillfactor = 50);

CREATE SEQUENCE _history_seq;

-- Partitioned by as_of, without a default partition: a search for the last value before a moment
-- goes from the newest partition back and ends with the first row.
CREATE TABLE _history (
    seq        bigint NOT NULL DEFAULT nextval('_history_seq'),
    as_of      timestamptz NOT NULL,
    written_at timestamptz NOT NULL,
    feature    text COLLATE "C" NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    entity_id  text COLLATE "C" NOT NULL,
    kind       text COLLATE "C" NOT NULL,
    form       text COLLATE "C" NOT NULL GENERATED ALWAYS AS (_form(kind, value::text)) STORED,
    cause      text COLLATE "C" NOT NULL,
    value      json NOT NULL
) PARTITION BY RANGE (as_of);

-- On the hash of the id, because an id may be longer than an index entry.
CREATE INDEX _history_by_moment ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC);
-- Values whose as_of is ahead of their writer's clock: few, and read by every query for the values
-- known at a moment, because they were served before their as_of.
CREATE INDEX _history_ahead ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC)
    WHERE as_of > written_at;

-- Rows are stored nearly in the order of their numbers, so a tiny index finds the newest ones.
CREATE INDEX _history_by_seq ON _history USING brin (seq) WITH (autosummarize = on);

-- The features that each entity has values of; a row may appear twice.
CREATE TABLE _series (
    entity    text COLLATE "C" NOT NULL,
    entity_id text COLLATE "C" NOT NULL,
    feature   text COLLATE "C" NOT NULL
);
CREATE INDEX _series_by_entity ON _series (entity, left(entity_id, 128), feature);

CREATE TABLE _events (
    partition   integer NOT NULL,
    received_at timestamptz NOT NULL,
    "timestamp" timestamptz NOT NULL,
    position    text COLLATE "C" NOT NULL,
    event_type  text COLLATE "C" NOT NULL,
    entity_id   text COLLATE "C" NOT NULL,
    event_id    text COLLATE "C" NOT NULL,
    payload     json NOT NULL,
    traceparent text COLLATE "C"
) PARTITION BY RANGE (received_at);

CREATE INDEX _events_by_type ON _events (event_type, "timestamp");
-- For lists of the newest events of all types.
CREATE INDEX _events_by_time ON _events ("timestamp");
-- Rows are stored nearly in the order of their arrival, so a tiny index finds the newest ones.
CREATE INDEX _events_by_arrival ON _events USING brin (received_at) WITH (autosummarize = on);

-- The logs that a lake has too, since when, and up to which rows may be missing here and are
-- deleted. Processes without the lake are refused from the first such mark on. Up to the number in
-- "moved", rows of history may be in the lake: one that has more is of another copy.
CREATE TABLE _lake (
    kind       text COLLATE "C" PRIMARY KEY,
    trimmed    text COLLATE "C" NOT NULL DEFAULT '',
    deleted    text COLLATE "C" NOT NULL DEFAULT '',
    since      timestamptz NOT NULL DEFAULT now(),
    trimmed_at timestamptz,
    moved      bigint NOT NULL DEFAULT 0
);

CREATE VIEW events AS
SELECT event_id, event_type, entity_id, "timestamp", received_at, _readable(payload) AS payload,
       traceparent
FROM _events
WHERE NOT starts_with(event_type, 'headwater.');

CREATE VIEW feature_history AS
SELECT feature, entity, entity_id, as_of, written_at, cause, kind,
       _readable(value) AS value,
       CASE form WHEN 'int' THEN value::text::bigint END AS value_int,
       CASE form WHEN 'float' THEN value::text::double precision END AS value_float,
       CASE form WHEN 'bool' THEN value::text::boolean END AS value_bool,
       CASE form WHEN 'text' THEN value #>> '{}' END AS value_text,
       CASE form WHEN 'time' THEN btrim(value::text, '"')::timestamptz END AS value_time,
       CASE form WHEN 'json' THEN value::text END AS value_json
FROM _history;

-- What each feature was over time: the series of its values, and its default as JSON text.
CREATE VIEW feature_names AS
WITH features AS (
    SELECT entry.value -> 'meanings' AS meanings, NULL::timestamptz AS dropped_at
    FROM _catalog CROSS JOIN LATERAL json_each(_catalog.state::json -> 'features') AS entry
    UNION ALL
    SELECT dropped.value -> 'meanings', (dropped.value ->> 'dropped_at')::timestamptz
    FROM _catalog
    CROSS JOIN LATERAL json_array_elements(_catalog.state::json -> 'dropped') AS dropped
)
SELECT span.meaning ->> 'name' AS feature, span.meaning ->> 'entity' AS entity,
       (span.meaning ->> 'version')::bigint AS version, span.meaning ->> 'series' AS series,
       span.meaning ->> 'default' AS default_value, span.since,
       coalesce(span.next, features.dropped_at) AS until
FROM features CROSS JOIN LATERAL (
    SELECT value AS meaning, (value ->> 'since')::timestamptz AS since,
           lead((value ->> 'since')::timestamptz) OVER (ORDER BY place) AS next
    FROM json_array_elements(features.meanings) WITH ORDINALITY AS listed (value, place)
) AS span;

-- Records of contexts, byte for byte. Not partitioned: ids and hashes are unique over all records,
-- and a unique index of a partitioned table would have to include the partition key.
CREATE TABLE _records (
    context_id       text COLLATE "C" PRIMARY KEY,
    record_hash      text COLLATE "C" NOT NULL UNIQUE,
    content_hash     text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    created_at       timestamptz NOT NULL,
    freshness_status text COLLATE "C" NOT NULL,
    caller           text COLLATE "C",
    assembly_us      bigint NOT NULL,
    model            text COLLATE "C",
    tokens           bigint NOT NULL,
    max_tokens       bigint,
    cost_nano_usd    bigint,
    items_dropped    bigint NOT NULL,
    is_signed        boolean NOT NULL,
    is_redacted      boolean NOT NULL,
    core             bytea NOT NULL,
    disclosures      bytea NOT NULL,
    signature        bytea,
    redactions       bytea NOT NULL,
    keys             bytea NOT NULL
);
-- Not compressed: compression takes longer than the rest of an append.
ALTER TABLE _records
    ALTER core SET STORAGE EXTERNAL,
    ALTER disclosures SET STORAGE EXTERNAL,
    ALTER keys SET STORAGE EXTERNAL;
CREATE INDEX _records_by_time ON _records (created_at, context_id);
-- The included column lets contexts be counted by freshness without reading their rows.
CREATE INDEX _records_by_name ON _records (name, created_at, context_id)
    INCLUDE (freshness_status);
CREATE INDEX _records_by_freshness ON _records (freshness_status, created_at, context_id);
CREATE INDEX _records_by_caller ON _records (caller, created_at, context_id)
    INCLUDE (freshness_status) WHERE caller IS NOT NULL;

-- Keyed hashes of the inputs of each record, to find it by.
CREATE TABLE _record_keys (
    key        bytea NOT NULL,
    created_at timestamptz NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
);

-- Outcomes of contexts, byte for byte. `created_at` and `counted_model` are those of the record,
-- so that an index lists the records with an outcome in their own order.
CREATE TABLE _outcomes (
    outcome_id    text COLLATE "C" PRIMARY KEY,
    context_id    text COLLATE "C" NOT NULL,
    record_hash   text COLLATE "C" NOT NULL,
    outcome_hash  text COLLATE "C" NOT NULL,
    kind          text COLLATE "C" NOT NULL,
    at            timestamptz NOT NULL,
    name          text COLLATE "C",
    value         double precision,
    flag          boolean,
    label_key     bytea,
    model         text COLLATE "C",
    error_type    text COLLATE "C",
    predicted     bigint,
    billed        bigint,
    source_key    bytea,
    is_signed     boolean NOT NULL,
    is_redacted   boolean NOT NULL,
    core          bytea NOT NULL,
    disclosures   bytea NOT NULL,
    signature     bytea,
    redactions    bytea NOT NULL,
    created_at    timestamptz NOT NULL,
    counted_model text COLLATE "C"
);
ALTER TABLE _outcomes
    ALTER core SET STORAGE EXTERNAL,
    ALTER disclosures SET STORAGE EXTERNAL;
CREATE INDEX _outcomes_by_context ON _outcomes (context_id, at, outcome_id);
CREATE UNIQUE INDEX _outcomes_by_source ON _outcomes (source_key)
    WHERE source_key IS NOT NULL;
CREATE INDEX _outcomes_by_time ON _outcomes (at, outcome_id);
CREATE INDEX _outcomes_by_score ON _outcomes (name, created_at, context_id)
    INCLUDE (value, flag, label_key) WHERE name IS NOT NULL;
CREATE INDEX _outcomes_by_label ON _outcomes (label_key, created_at, context_id)
    WHERE label_key IS NOT NULL;
CREATE INDEX _outcomes_by_model ON _outcomes (model, created_at, context_id)
    WHERE model IS NOT NULL;
CREATE INDEX _outcomes_by_error ON _outcomes (error_type, created_at, context_id)
    WHERE error_type IS NOT NULL;
CREATE INDEX _outcomes_measured ON _outcomes (counted_model, at) INCLUDE (predicted, billed)
    WHERE predicted IS NOT NULL AND billed IS NOT NULL AND counted_model IS NOT NULL;

-- Indexes of documents. The row of an index is locked by each transaction that changes the index.
-- It stays when the index is dropped, so that no number of a generation is given twice.
CREATE TABLE _indexes (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    generations integer NOT NULL DEFAULT 0,
    active      bigint,
    changed_at  bigint NOT NULL DEFAULT 0,
    documents   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The chunks of generation n are in the table _chunks_n, which is created with it, because only
-- then pgvector is needed and the number of dimensions known.
CREATE TABLE _generations (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    index_id     bigint NOT NULL,
    number       integer NOT NULL,
    embedder     text COLLATE "C" NOT NULL,
    dimensions   integer NOT NULL,
    chunk_tokens integer NOT NULL,
    overlap      integer NOT NULL,
    is_half      boolean NOT NULL,
    state        text COLLATE "C" NOT NULL,
    created_at   bigint NOT NULL,
    activated_at bigint,
    retired_at   bigint,
    changed_at   bigint NOT NULL,
    documents    bigint NOT NULL DEFAULT 0,
    up_to_date   bigint NOT NULL DEFAULT 0,
    chunks       bigint NOT NULL DEFAULT 0,
    terms        bigint NOT NULL DEFAULT 0,
    UNIQUE (index_id, number)
) WITH (fillfactor = 50);

-- A document that was removed has no text; its row keeps the version until it is pruned.
CREATE TABLE _documents (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    index_id   bigint NOT NULL,
    document   text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    indexed_at bigint NOT NULL,
    as_of      bigint NOT NULL,
    cause      text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    text       text COLLATE "C",
    metadata   json NOT NULL
);
-- On the beginning of the id, because an id may be longer than an index entry.
CREATE INDEX _documents_by_id ON _documents (index_id, left(document, 128));

-- The version of each document that a generation has, unless the generation is retired.
CREATE TABLE _document_versions (
    document_id   bigint NOT NULL,
    generation_id bigint NOT NULL,
    version       integer NOT NULL,
    PRIMARY KEY (document_id, generation_id)
);
