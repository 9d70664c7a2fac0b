"""Noticing that a store has lost its data before its values are read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeVar

from headwater.core.partitioning import partition_of
from headwater.errors import StoreLostError
from headwater.ports import Lifecycle
from headwater.settings.schema import Settings

_ASK_SECONDS = 1.0
S = TypeVar("S")


class StoreLoss:
    """Asks the store whether it lost its data before values are read, once a second.

    Every value of a lost store is missing, so a read would return defaults that look like facts;
    while it is lost, every read asks. If only some partitions are, because they are older than
    history, their values count as missing.
    """

    def __init__(self, lifecycle: Lifecycle, settings: Settings) -> None:
        self._lifecycle = lifecycle
        self._is_refusing = settings.lost_store == "refuse"
        self._partitions = settings.partitions
        self._ask_at = 0.0
        self.known: StoreLostError | None = None
        """The loss, if the last answer was that the store lost its data."""

    @property
    def is_check_due(self) -> bool:
        """Whether ``check`` has something to do; cheap, because every read asks."""
        return time.monotonic() >= self._ask_at

    async def check(self) -> None:
        """Raise StoreLostError if the store lost its data, unless the settings prefer defaults."""
        if not self.is_check_due:
            return
        try:
            await self._lifecycle.check_values()
        except StoreLostError as error:
            self.known, self._ask_at = error, 0.0
            if self._is_refusing and error.partitions is None:
                raise
        else:
            # Set after the answer: until then concurrent reads ask too, and no read goes ahead
            # of the answer.
            self.known, self._ask_at = None, time.monotonic() + _ASK_SECONDS

    def filter(self, ids: Sequence[str], states: Sequence[S], missing: S) -> list[S]:
        """Return the states of entities without those of lost partitions, or refuse to."""
        lost = self.known and self.known.partitions
        if not lost:
            return [*states]
        is_lost = [partition_of(entity_id, self._partitions) in lost for entity_id in ids]
        if self.known is not None and self._is_refusing and any(is_lost):
            raise self.known
        return [missing if old else state for old, state in zip(is_lost, states, strict=True)]
