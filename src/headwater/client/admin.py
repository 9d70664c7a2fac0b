"""The verbs of a client for operators."""

from __future__ import annotations

from headwater.api.doctor import Examination
from headwater.api.health import Alive, Readiness
from headwater.api.problems import UNAVAILABLE
from headwater.client.server import Server
from headwater.ports import Health


class AdminCalls:
    """``client.admin``: the health of a server and its store."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def is_alive(self) -> bool:
        """Return True if the server answers; raise ServerUnreachableError otherwise.

        >>> await client.admin.is_alive()
        True
        """
        return (await self._server.get(Alive, "/healthz")).status == "ok"

    async def readiness(self) -> Readiness:
        """Return whether the server can serve requests, and the health of each part of its store.

        >>> (await client.admin.readiness()).status
        'ready'
        """
        return await self._server.get_with(Readiness, "/readyz", accepted={UNAVAILABLE})

    async def health(self) -> list[Health]:
        """Return the health of each part of the store.

        >>> all(part.ok for part in await client.admin.health())
        True
        """
        return (await self.readiness()).parts

    async def doctor(self) -> Examination:
        """Examine the installation of the server.

        >>> (await client.admin.doctor()).status
        'ok'
        """
        return await self._server.get(Examination, "/v1/doctor")
