"""``store.dead_letters``: events that could not be handled."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import sha256

from msgspec.structs import replace

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.features.call_scope import check_not_replaying, track_source, track_sources
from headwater.model.dead_letters import DeadLetter, LetterGroups
from headwater.model.values import EVERYTHING
from headwater.ports import DeadLetterQuery
from headwater.store.event_log import sources_of
from headwater.store.letter_groups import MOST_GROUPED, group_letters
from headwater.store.runtime import Runtime

_MOST_NAMED = 100


class DeadLetterVerbs:
    """``store.dead_letters``: events that could not be handled."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._grouped: tuple[object, LetterGroups] | None = None

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
        """Return dead letters, oldest first, each with its error.

        ``error`` is the error of a group, and ``after`` the last letter of the page before.

        >>> for letter in await store.dead_letters.list():
        ...     print(letter.feature, letter.error)
        last_item KeyError: 'item'
        """
        track_source("other", "dead letters")
        engine = await self._runtime.open()
        catalog = engine.catalog
        query = DeadLetterQuery(
            ids=ids,
            feature=None if feature is None else catalog.series_of(feature_name(feature)),
            event_type=event_type,
            entity_id=entity_id,
            since=since,
            before=before,
            error=error,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )
        letters = await engine.backends.dead_letters.letters(query)
        track_sources(sources_of(engine.registry, [each.event for each in letters]))
        return [replace(each, feature=catalog.name_of(each.feature)) for each in letters]

    async def groups(self) -> LetterGroups:
        """Return the newest dead letters by feature and kind of error, the largest group first.

        Errors that differ only in ids, numbers and texts are of one kind.

        >>> [(group.feature, group.count) for group in (await store.dead_letters.groups()).groups]
        [('last_item', 1)]
        """
        track_source("other", "dead letters")
        track_source(*EVERYTHING)  # errors may name anything, and are not listed by entity
        engine = await self._runtime.open()
        letters = engine.backends.dead_letters
        total, newest = await letters.count(), await letters.summaries(1)
        # Ids grow, so letters with the same number and the same newest one are the same letters.
        state = (total, [each.id for each in newest], engine.catalog.state)
        if self._grouped is None or self._grouped[0] != state:
            found = await letters.summaries(MOST_GROUPED)
            names = engine.catalog.name_of
            self._grouped = (state, await asyncio.to_thread(group_letters, found, total, names))
        return self._grouped[1]

    async def redrive(self, *ids: str) -> None:
        """Run dead letters again, each for the failed feature only; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.redrive(letter.id)
        """
        check_not_replaying("redrive")
        engine = await self._runtime.open()
        named = await self._named(ids)
        async with audited(engine, "dead_letters.redrive", ids=ids, letters=named):
            await engine.backends.dead_letters.redrive(ids)

    async def discard(self, *ids: str) -> None:
        """Delete dead letters permanently; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.discard(letter.id)
        """
        check_not_replaying("discard")
        engine = await self._runtime.open()
        named = await self._named(ids)
        async with audited(engine, "dead_letters.discard", ids=ids, letters=named):
            await engine.backends.dead_letters.discard(ids)

    async def _named(self, ids: Sequence[str]) -> Sequence[dict[str, str]]:
        """Return for the audit log what the first letters are about.

        The log cannot be redacted, so it has a hash of the entity id, as for a forgotten entity.
        """
        letters = await self.list(ids=ids[:_MOST_NAMED], limit=_MOST_NAMED)
        return [
            {
                "id": letter.id,
                "feature": letter.feature,
                "event_type": letter.event.event_type,
                "event_id": letter.event.event_id,
                "entity_id_sha256": sha256(letter.event.entity_id.encode()).hexdigest(),
            }
            for letter in letters
        ]


class SyncDeadLetterVerbs(Blocking[DeadLetterVerbs]):
    """``store.sync.dead_letters``."""

    list = blocking(DeadLetterVerbs.list)
    groups = blocking(DeadLetterVerbs.groups)
    redrive = blocking(DeadLetterVerbs.redrive)
    discard = blocking(DeadLetterVerbs.discard)
