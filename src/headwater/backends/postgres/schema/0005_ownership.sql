-- Store and past name each other: the store keeps this id, and here is its own and where it was.
ALTER TABLE _meta
    ADD COLUMN id text NOT NULL DEFAULT gen_random_uuid()::text,
    ADD COLUMN store_name text;

-- A position belongs to one store; those of another mean nothing to it, and hold when it is back.
ALTER TABLE _outbox ADD COLUMN store_id text;
UPDATE _outbox SET store_id = (SELECT coalesce(store_id, '') FROM _meta);
ALTER TABLE _outbox
    ALTER COLUMN store_id SET NOT NULL,
    DROP CONSTRAINT _outbox_pkey,
    ADD PRIMARY KEY (store_id, partition);
