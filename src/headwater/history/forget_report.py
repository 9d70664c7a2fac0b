"""ForgetReport: the numbers of an erased entity."""

from __future__ import annotations

import msgspec


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of values, events and records that were erased or, in a dry run, would be.

    ``waiting`` counts the events of the entity's partition that some consumer group has not handled
    yet; those of this entity have no effect any more. ``sources`` are the SQL features whose query
    still returns the entity, and ``unchecked_sources`` those whose query could not be run: their
    rows are not stored, and stay where they are.
    """

    values: int
    history: int
    events: int
    dead_letters: int
    records: int
    waiting: int
    sources: tuple[str, ...] = ()
    unchecked_sources: tuple[str, ...] = ()
    dry_run: bool = False
