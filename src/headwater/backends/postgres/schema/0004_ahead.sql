-- The values that spoke of a moment ahead of their writer's clock: few, and looked at whenever
-- someone asks what was known at a moment, because they were served before their time.
CREATE INDEX _history_ahead ON _history
    (feature, hashtextextended(entity_id, 0), as_of DESC, written_at DESC, seq DESC)
    WHERE as_of > written_at;
