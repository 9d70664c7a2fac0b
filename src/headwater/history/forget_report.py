"""ForgetReport: the numbers of an erased entity."""

from __future__ import annotations

import msgspec


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of values, events and records that were erased or, in a dry run, would be.

    ``waiting`` counts the events of the entity's partition that no worker has handled yet. If some
    of them are of this entity, its values come back, so forget it again when they are handled.
    """

    values: int
    history: int
    events: int
    dead_letters: int
    records: int
    waiting: int
    dry_run: bool = False
