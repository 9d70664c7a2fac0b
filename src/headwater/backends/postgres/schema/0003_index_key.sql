-- The secret of the hashes by which records are found; made when the first one is kept.
ALTER TABLE _meta ADD COLUMN index_key bytea;
