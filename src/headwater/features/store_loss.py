"""Refusing reads of a store that is known to have lost its data."""

from __future__ import annotations

import time

from headwater.errors import StoreLostError
from headwater.ports import Lifecycle
from headwater.settings.schema import Settings

_ASK_SECONDS = 1.0


class StoreLoss:
    """Asks the store whether it lost its data before values are read, once a second.

    Every value of a lost store is missing, so a read would return defaults that look like facts;
    while it is lost, every read asks.
    """

    def __init__(self, lifecycle: Lifecycle, settings: Settings) -> None:
        self._lifecycle = lifecycle
        self._is_refusing = settings.lost_store == "refuse"
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
            if self._is_refusing:
                raise
        else:
            # Set after the answer: until then concurrent reads ask too, and no read goes ahead
            # of the answer.
            self.known, self._ask_at = None, time.monotonic() + _ASK_SECONDS
