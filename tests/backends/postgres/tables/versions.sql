-- The tables of every earlier version in Postgres, each as what it changed of the one before. The
-- numbers began anew on 15 November 2026, and some stood for several definitions.

-- version 1, of 15 November
CREATE FUNCTION _moment(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_timestamp(micros / 1000000) + micros % 1000000 * interval '1 microsecond';
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
CREATE FUNCTION _readable(given json) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(given::text, '\u0000') = 0 THEN given
    ELSE regexp_replace(given::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::json END;
CREATE TABLE _meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL DEFAULT 0,
    store_id text
);
INSERT INTO _meta DEFAULT VALUES;
CREATE TABLE _outbox (
    partition integer PRIMARY KEY,
    history   text NOT NULL DEFAULT '',
    events    text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE SEQUENCE _history_seq;
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
CREATE INDEX _history_by_moment ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC);
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
    payload     json NOT NULL
) PARTITION BY RANGE (received_at);
CREATE INDEX _events_by_type ON _events (event_type, "timestamp");
CREATE VIEW events AS
SELECT event_id, event_type, entity_id, "timestamp", received_at, _readable(payload) AS payload
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

-- version 2, of 15 November
CREATE TABLE _records (
    context_id       text COLLATE "C" PRIMARY KEY,
    record_hash      text COLLATE "C" NOT NULL UNIQUE,
    content_hash     text COLLATE "C" NOT NULL,
    name             text COLLATE "C" NOT NULL,
    created_at       timestamptz NOT NULL,
    freshness_status text COLLATE "C" NOT NULL,
    core             bytea NOT NULL,
    disclosures      bytea NOT NULL,
    signature        bytea,
    redactions       bytea NOT NULL
);
ALTER TABLE _records
    ALTER core SET STORAGE EXTERNAL,
    ALTER disclosures SET STORAGE EXTERNAL;
CREATE INDEX _records_by_time ON _records (created_at, context_id);
CREATE INDEX _records_by_name ON _records (name, created_at, context_id);
CREATE INDEX _records_by_freshness ON _records (freshness_status, created_at, context_id);
CREATE TABLE _record_keys (
    key        bytea NOT NULL,
    created_at timestamptz NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
);

-- version 3, of 15 November
ALTER TABLE _meta ADD COLUMN index_key bytea;

-- version 4, of 15 November
CREATE INDEX _history_ahead ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC)
    WHERE as_of > written_at;

-- version 5, of 15 November
ALTER TABLE _meta
    ADD COLUMN id text NOT NULL DEFAULT gen_random_uuid()::text,
    ADD COLUMN store_name text;
ALTER TABLE _outbox ADD COLUMN store_id text;
UPDATE _outbox SET store_id = (SELECT coalesce(store_id, '') FROM _meta);
ALTER TABLE _outbox
    ALTER COLUMN store_id SET NOT NULL,
    DROP CONSTRAINT _outbox_pkey,
    ADD PRIMARY KEY (store_id, partition);

-- version 1
ALTER TABLE _meta ALTER version DROP DEFAULT, DROP COLUMN id, DROP COLUMN store_name;

-- version 1, with indexes
CREATE TABLE _indexes (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    generations integer NOT NULL DEFAULT 0,
    active      bigint,
    changed_at  bigint NOT NULL DEFAULT 0,
    documents   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
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
CREATE TABLE _documents (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    index_id   bigint NOT NULL,
    document   text COLLATE "C" NOT NULL,
    version    integer NOT NULL,
    indexed_at bigint NOT NULL,
    cause      text COLLATE "C" NOT NULL,
    digest     bytea NOT NULL,
    text       text COLLATE "C",
    metadata   json NOT NULL
);
CREATE INDEX _documents_by_id ON _documents (index_id, left(document, 128));
CREATE TABLE _document_versions (
    document_id   bigint NOT NULL,
    generation_id bigint NOT NULL,
    version       integer NOT NULL,
    PRIMARY KEY (document_id, generation_id)
);

-- version 1, with the catalog
CREATE TABLE _catalog (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    revision bigint NOT NULL,
    state    text NOT NULL
);

-- version 2
CREATE INDEX _history_by_seq ON _history USING brin (seq) WITH (autosummarize = on);

-- version 3
CREATE TABLE _audit_log (
    id         text COLLATE "C" PRIMARY KEY,
    at         timestamptz NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    target     text NOT NULL,
    parameters text NOT NULL
);
CREATE INDEX ON _audit_log (at, id);
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

-- version 3, with traces
ALTER TABLE _events ADD COLUMN traceparent text COLLATE "C";
CREATE OR REPLACE VIEW events AS
SELECT event_id, event_type, entity_id, "timestamp", received_at, _readable(payload) AS payload,
       traceparent
FROM _events
WHERE NOT starts_with(event_type, 'headwater.');

-- version 4
ALTER TABLE _records ADD COLUMN caller text COLLATE "C";
CREATE INDEX _records_by_caller ON _records (caller, created_at, context_id)
    WHERE caller IS NOT NULL;

-- version 5
ALTER TABLE _records ADD COLUMN assembly_us bigint NOT NULL;

-- version 5, with arrivals
CREATE INDEX _events_by_arrival ON _events USING brin (received_at) WITH (autosummarize = on);

-- version 6
ALTER TABLE _records
    ADD COLUMN model text COLLATE "C",
    ADD COLUMN tokens bigint NOT NULL,
    ADD COLUMN max_tokens bigint,
    ADD COLUMN cost_nano_usd bigint,
    ADD COLUMN items_dropped bigint NOT NULL,
    ADD COLUMN is_signed boolean NOT NULL,
    ADD COLUMN is_redacted boolean NOT NULL;
DROP INDEX _records_by_name, _records_by_caller;
CREATE INDEX _records_by_name ON _records (name, created_at, context_id)
    INCLUDE (freshness_status);
CREATE INDEX _records_by_caller ON _records (caller, created_at, context_id)
    INCLUDE (freshness_status) WHERE caller IS NOT NULL;

-- version 6, with times
CREATE INDEX _events_by_time ON _events ("timestamp");

-- version 7
ALTER TABLE _documents ADD COLUMN as_of bigint NOT NULL;

-- version 8
ALTER TABLE _meta ADD COLUMN erasure_key bytea;
CREATE TABLE _erasures (
    revision   bigint PRIMARY KEY,
    digest     bytea NOT NULL,
    erased_at  bigint NOT NULL,
    position   text NOT NULL,
    may_return boolean NOT NULL
);

-- version 9
ALTER TABLE _records ADD COLUMN keys bytea NOT NULL;
ALTER TABLE _records
    ALTER core SET STORAGE EXTERNAL,
    ALTER disclosures SET STORAGE EXTERNAL,
    ALTER keys SET STORAGE EXTERNAL;

-- version 9, with names
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

-- version 10
ALTER TABLE _meta ADD COLUMN record_marks bytea[] NOT NULL DEFAULT '{}';

-- version 11
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
    source_key    bytea UNIQUE,
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

-- version 11, with sources
ALTER TABLE _outcomes DROP CONSTRAINT _outcomes_source_key_key;
CREATE UNIQUE INDEX _outcomes_by_source ON _outcomes (source_key)
    WHERE source_key IS NOT NULL;

-- version 12
CREATE TABLE _lake (
    kind       text COLLATE "C" PRIMARY KEY,
    trimmed    text COLLATE "C" NOT NULL DEFAULT '',
    deleted    text COLLATE "C" NOT NULL DEFAULT '',
    since      timestamptz NOT NULL DEFAULT now(),
    trimmed_at timestamptz
);
