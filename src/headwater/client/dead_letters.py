"""The verbs of a client for dead letters."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from headwater.client.server import Server
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import UnknownDeadLetterError
from headwater.model.dead_letters import (
    MOST_LETTERS,
    DeadLetter,
    DeadLetterList,
    DeadLetterSelection,
    SettledLetters,
)


class DeadLetterCalls:
    """``client.dead_letters``: events that could not be handled."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def list(
        self,
        *,
        ids: Collection[str] | None = None,
        feature: FeatureRef | None = None,
        event_type: str | None = None,
        entity_id: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        after: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first, each with its error; at most 10,000.

        >>> for letter in await client.dead_letters.list():
        ...     print(letter.feature, letter.error)
        last_item KeyError: 'item'
        """
        if ids is not None:
            return [letter for each in ids if (letter := await self._read(each)) is not None]
        found = await self._server.get(
            DeadLetterList,
            "/v1/dead-letters",
            feature=None if feature is None else feature_name(feature),
            event_type=event_type,
            entity_id=entity_id,
            since=since,
            before=before,
            error=error,
            after=after,
            newest_first=newest_first,
            limit=min(limit, MOST_LETTERS),
        )
        return [*found.dead_letters]

    async def _read(self, letter_id: str) -> DeadLetter | None:
        try:
            return await self._server.get(DeadLetter, "/v1/dead-letters/{}", letter_id)
        except UnknownDeadLetterError:
            return None

    async def redrive(self, *ids: str) -> None:
        """Run dead letters again, each for the failed feature only; all or none.

        >>> (letter,) = await client.dead_letters.list(feature="last_item")
        >>> await client.dead_letters.redrive(letter.id)
        """
        await self._settle("/v1/dead-letters/redrive", ids)

    async def discard(self, *ids: str) -> None:
        """Delete dead letters permanently; all or none.

        >>> (letter,) = await client.dead_letters.list(feature="last_item")
        >>> await client.dead_letters.discard(letter.id)
        """
        await self._settle("/v1/dead-letters/discard", ids)

    async def _settle(self, path: str, ids: Collection[str]) -> None:
        if ids:
            await self._server.post(SettledLetters, path, body=DeadLetterSelection(ids=[*ids]))
