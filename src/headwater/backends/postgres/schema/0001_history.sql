-- What happened, in tables that begin with an underscore; the views are what queries name.

CREATE FUNCTION _moment(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
-- In two parts, because an interval is multiplied in floating point.
RETURN to_timestamp(micros / 1000000) + micros % 1000000 * interval '1 microsecond';

-- Says which typed column can hold a JSON text of a kind; the others stay 'json', so nothing is
-- lost and no row makes a query fail.
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
    -- A text of Postgres has no U+0000, and no half of a surrogate pair.
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

-- JSON as queries see it. Postgres refuses to look into one that has U+0000 anywhere, and one
-- such row would make every query over the column fail.
CREATE FUNCTION _readable(given json) RETURNS json
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN strpos(given::text, '\u0000') = 0 THEN given
    ELSE regexp_replace(given::text, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')::json END;

-- One row: the number of the last file of this folder that was run, and the id of the store of
-- the present whose past this is.
CREATE TABLE _meta (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    version  integer NOT NULL DEFAULT 0,
    store_id text
);
INSERT INTO _meta DEFAULT VALUES;

-- How far each partition of the outbox was taken; the lock on its row is the right to take more.
CREATE TABLE _outbox (
    partition integer PRIMARY KEY,
    history   text NOT NULL DEFAULT '',
    events    text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

CREATE SEQUENCE _history_seq;

-- Partitioned by the moment a value speaks of, without a default partition: so a search for the
-- last value before a moment goes from the newest partition back and ends with the first row.
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

-- The hash of the id, because an id may be longer than an entry of an index.
CREATE INDEX _history_by_moment ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC);

-- Which features each entity has had a value of; a row may be there twice.
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
