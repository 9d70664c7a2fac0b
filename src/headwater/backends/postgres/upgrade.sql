-- Change the tables of every earlier version to those of schema.sql, before what is missing is
-- created from there. Each statement does nothing where its change was made: some numbers of
-- versions stood for several definitions, and the next version runs this again.

ALTER TABLE _meta
    ALTER version DROP DEFAULT,
    ADD COLUMN IF NOT EXISTS index_key bytea,
    ADD COLUMN IF NOT EXISTS erasure_key bytea,
    ADD COLUMN IF NOT EXISTS record_marks bytea[] NOT NULL DEFAULT '{}',
    DROP COLUMN IF EXISTS id,
    DROP COLUMN IF EXISTS store_name;

ALTER TABLE _outbox ADD COLUMN IF NOT EXISTS store_id text;
UPDATE _outbox SET store_id = (SELECT coalesce(store_id, '') FROM _meta) WHERE store_id IS NULL;
ALTER TABLE _outbox
    ALTER store_id SET NOT NULL,
    DROP CONSTRAINT _outbox_pkey,
    ADD PRIMARY KEY (store_id, partition);

ALTER TABLE _events ADD COLUMN IF NOT EXISTS traceparent text COLLATE "C";

ALTER TABLE IF EXISTS _outcomes DROP CONSTRAINT IF EXISTS _outcomes_source_key_key;

ALTER TABLE IF EXISTS _lake ADD COLUMN IF NOT EXISTS moved bigint NOT NULL DEFAULT 0;

ALTER TABLE IF EXISTS _generations ALTER changed_at DROP DEFAULT;
ALTER TABLE IF EXISTS _documents
    ALTER text DROP NOT NULL,
    ADD COLUMN IF NOT EXISTS as_of bigint;

ALTER TABLE IF EXISTS _records
    ADD COLUMN IF NOT EXISTS caller text COLLATE "C",
    ADD COLUMN IF NOT EXISTS assembly_us bigint,
    ADD COLUMN IF NOT EXISTS model text COLLATE "C",
    ADD COLUMN IF NOT EXISTS tokens bigint,
    ADD COLUMN IF NOT EXISTS max_tokens bigint,
    ADD COLUMN IF NOT EXISTS cost_nano_usd bigint,
    ADD COLUMN IF NOT EXISTS items_dropped bigint,
    ADD COLUMN IF NOT EXISTS is_signed boolean,
    ADD COLUMN IF NOT EXISTS is_redacted boolean,
    ADD COLUMN IF NOT EXISTS keys bytea;

DO $$ BEGIN
    IF to_regclass('_documents') IS NOT NULL THEN
        UPDATE _documents SET as_of = indexed_at WHERE as_of IS NULL;
        ALTER TABLE _documents ALTER as_of SET NOT NULL;
    END IF;
    IF to_regclass('_records') IS NOT NULL THEN
        UPDATE _records SET
            caller = core_of.json ->> 'caller',
            assembly_us = (core_of.json #>> '{timing,assembly_us}')::bigint,
            model = core_of.json #>> '{policy,model}',
            tokens = (core_of.json #>> '{output,tokens}')::bigint,
            max_tokens = (core_of.json #>> '{policy,max_tokens}')::bigint,
            cost_nano_usd = (core_of.json #>> '{output,cost_nano_usd}')::bigint,
            items_dropped = (core_of.json #>> '{output,items_dropped}')::bigint,
            is_signed = signature IS NOT NULL,
            is_redacted = redactions <> '[]',
            keys = coalesce(keys_of.joined, '')
        FROM (
            SELECT context_id, convert_from(core, 'UTF8')::json AS json FROM _records
            WHERE tokens IS NULL OR keys IS NULL
        ) AS core_of LEFT JOIN (
            SELECT context_id, string_agg(key, '') AS joined FROM _record_keys GROUP BY context_id
        ) AS keys_of USING (context_id)
        WHERE _records.context_id = core_of.context_id;
        ALTER TABLE _records
            ALTER assembly_us SET NOT NULL,
            ALTER tokens SET NOT NULL,
            ALTER items_dropped SET NOT NULL,
            ALTER is_signed SET NOT NULL,
            ALTER is_redacted SET NOT NULL,
            ALTER keys SET NOT NULL;
    END IF;
    IF EXISTS (
        SELECT FROM pg_indexes WHERE schemaname = current_schema()
        AND indexname = '_records_by_name' AND indexdef NOT LIKE '%INCLUDE%'
    ) THEN
        DROP INDEX IF EXISTS _records_by_name, _records_by_caller;
    END IF;
END $$;
