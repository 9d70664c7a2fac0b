"""How rows get into history, wherever they come from."""

from __future__ import annotations

KEEP_GIVEN = """
series AS (
    INSERT INTO _series (entity, entity_id, feature)
    SELECT g.entity, g.entity_id, g.feature
    FROM (SELECT DISTINCT entity, entity_id, feature FROM given) AS g
    LEFT JOIN LATERAL (
        SELECT true AS known FROM _series AS s
        WHERE s.entity = g.entity AND left(s.entity_id, 128) = left(g.entity_id, 128)
          AND s.entity_id = g.entity_id AND s.feature = g.feature
        LIMIT 1
    ) AS s ON true
    WHERE s.known IS NULL
)
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT feature, entity, entity_id, kind, value, as_of, written_at, cause FROM given ORDER BY n
"""
"""The rest of a statement whose first part, ``given``, has the rows and their order ``n``.

LIMIT makes each look for what is there a probe of the index; a join would read all that is.
"""
