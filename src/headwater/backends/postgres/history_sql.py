"""SQL that inserts rows into history."""

from __future__ import annotations

INSERT_INCOMING = """
series AS (
    INSERT INTO _series (entity, entity_id, feature)
    SELECT g.entity, g.entity_id, g.feature
    FROM (SELECT DISTINCT entity, entity_id, feature FROM incoming) AS g
    LEFT JOIN LATERAL (
        SELECT true AS known FROM _series AS s
        WHERE s.entity = g.entity AND left(s.entity_id, 128) = left(g.entity_id, 128)
          AND s.entity_id = g.entity_id AND s.feature = g.feature
        LIMIT 1
    ) AS s ON true
    WHERE s.known IS NULL
)
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT feature, entity, entity_id, kind, value, as_of, written_at, cause FROM incoming ORDER BY n
"""
"""The end of a statement whose CTE ``incoming`` has the rows and their order ``n``.

LIMIT makes each lookup of an existing series an index probe; a plain join would read all of them.
"""
