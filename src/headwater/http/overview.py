"""Routes that show how a store is and was in the last hour."""

from __future__ import annotations

from headwater.api.overview import Series
from headwater.doctor.overview import series_of
from headwater.engine.last_hour import LastHour
from headwater.http.routes import Route


class Overviews:
    """Shows the state of the whole store, not of one process."""

    def __init__(self, hour: LastHour) -> None:
        self._hour = hour

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/series", "metrics", self.read_series)]

    async def read_series(self) -> Series:
        """Return the numbers of the last hour in steps of ten seconds.

        The server keeps them in the store, so that they survive a restart.
        """
        return series_of(*self._hour.samples())
