"""Rows of erased entities, which imports and queries of the past leave out."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.ports import Backends, Change


async def without_erased(backends: Backends, changes: Sequence[Change]) -> Sequence[Change]:
    """Return the changes of entities that were not erased, or that have values again."""
    ledger = await backends.erasures.refresh()
    if not ledger.revision:
        return changes
    erased = sorted({change.key for change in changes if ledger.find(*change.key)})
    returned = set()
    for entity in {entity for entity, _ in erased}:
        ids = [entity_id for kind, entity_id in erased if kind == entity]
        cells = await backends.online.get(entity, ids)
        returned |= {
            (entity, entity_id) for entity_id, held in zip(ids, cells, strict=True) if held
        }
    return ledger.admitted(changes, returned.__contains__).changes
