-- Records of contexts, byte for byte. Not partitioned: an id and a hash are unique among all of
-- them, and a partition could promise that only for itself.
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
-- Not compressed: that would take longer than everything else an append does.
ALTER TABLE _records
    ALTER core SET STORAGE EXTERNAL,
    ALTER disclosures SET STORAGE EXTERNAL;
CREATE INDEX _records_by_time ON _records (created_at, context_id);
CREATE INDEX _records_by_name ON _records (name, created_at, context_id);
CREATE INDEX _records_by_freshness ON _records (freshness_status, created_at, context_id);

-- What each record was made of, as keys to find it by.
CREATE TABLE _record_keys (
    key        bytea NOT NULL,
    created_at timestamptz NOT NULL,
    context_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (key, created_at, context_id)
);
