"""Dead letters: events that could not be handled."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Annotated, TypedDict, Unpack

from msgspec import Meta

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import UnknownDeadLetterError, UnknownNameError
from headwater.model.dead_letters import (
    MOST_LETTERS,
    DeadLetter,
    DeadLetterList,
    ErrorFilter,
    LetterCursor,
    LetterGroups,
    LetterId,
    LetterIdList,
    NewestFirst,
    SettledLetter,
    SettledLetters,
)
from headwater.model.kinds import EntityIdFilter, EventTypeFilter, FeatureFilter, Limit, Moment
from headwater.store.verbs.verb import Sent, Verbs, verb

Partial = Annotated[
    bool,
    Meta(description="Settle the ids that are there, and report the others.", examples=[True]),
]


# Inside the class, `list` is the verb.
LetterPage = list[DeadLetter]
Settled = list[SettledLetter]


class LetterFilters(TypedDict, total=False):
    """The filters of dead letters, which must match all of them."""

    feature: Annotated[FeatureRef, Sent(FeatureFilter, feature_name)] | None
    event_type: EventTypeFilter | None
    entity_id: EntityIdFilter | None
    since: Moment | None
    before: Moment | None
    error: ErrorFilter | None


_settling = partial(
    verb,
    "POST",
    scope="admin",
    audits_itself=True,
    answer=SettledLetters,
    raises=(UnknownNameError, UnknownDeadLetterError),
    most=MOST_LETTERS,
)


class DeadLetterVerbs(Verbs):
    """``store.dead_letters``: events that could not be handled."""

    @verb(
        "GET",
        "/v1/dead-letters",
        scope="admin",
        operation="list_dead_letters",
        reads="dead letters",
        answer=DeadLetterList,
        raises=(UnknownNameError,),
        most=MOST_LETTERS,
    )
    async def list(
        self,
        *,
        ids: Annotated[Collection[str], Sent(LetterIdList, ",".join, lambda text: text.split(","))]
        | None = None,
        after: LetterCursor | None = None,
        newest_first: NewestFirst = False,
        limit: Limit = 100,
        **filters: Unpack[LetterFilters],
    ) -> LetterPage:
        """Return dead letters, oldest first, each with its event and its error.

        ``error`` is the error of a group, and ``after`` the last letter of the page before.

        >>> for letter in await store.dead_letters.list():
        ...     print(letter.feature, letter.error)
        last_item KeyError: 'item'
        """
        letters = (await self._engine()).letters
        return await letters.find(
            ids=ids, after=after, newest_first=newest_first, limit=limit, **filters
        )

    @verb(
        "GET",
        "/v1/dead-letters/groups",
        scope="admin",
        operation="group_dead_letters",
        reads="dead letters",
    )
    async def groups(self) -> LetterGroups:
        """Return the newest 10,000 dead letters by feature and kind of error, largest group first.

        Errors that differ only in ids, numbers and texts are of one kind.

        >>> [(group.feature, group.count) for group in (await store.dead_letters.groups()).groups]
        [('last_item', 1)]
        """
        return await (await self._engine()).letters.groups()

    @verb(
        "GET",
        "/v1/dead-letters/{id}",
        scope="admin",
        operation="read_dead_letter",
        reads="dead letters",
        raises=(UnknownDeadLetterError,),
    )
    async def get(self, id: LetterId) -> DeadLetter:
        """Return one dead letter.

        >>> (await store.dead_letters.get("1")).feature
        'last_item'
        """
        return await (await self._engine()).letters.get(id)

    @_settling(
        path="/v1/dead-letters/redrive",
        operation="redrive_dead_letters",
        changes="dead_letters.redrive",
    )
    async def redrive(
        self,
        *ids: LetterId,
        partial: Partial = False,
        limit: Limit = MOST_LETTERS,
        **filters: Unpack[LetterFilters],
    ) -> Settled:
        """Run dead letters again, each for the failed feature only.

        Of ``ids`` alone all are run or none; with ``partial`` those that are there, and the others
        are ``gone``. Filters select all letters that match, the oldest first.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.redrive(letter.id)
        [SettledLetter(id='...', outcome='redriven')]
        """
        letters = (await self._engine()).letters
        return await letters.settle("redrive", ids, partial=partial, limit=limit, **filters)

    @_settling(
        path="/v1/dead-letters/discard",
        operation="discard_dead_letters",
        changes="dead_letters.discard",
    )
    async def discard(
        self,
        *ids: LetterId,
        partial: Partial = False,
        limit: Limit = MOST_LETTERS,
        **filters: Unpack[LetterFilters],
    ) -> Settled:
        """Delete dead letters permanently, but not their events; the selection is that of redrive.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.discard(letter.id)
        [SettledLetter(id='...', outcome='discarded')]
        """
        letters = (await self._engine()).letters
        return await letters.settle("discard", ids, partial=partial, limit=limit, **filters)


class SyncDeadLetterVerbs(Blocking[DeadLetterVerbs]):
    """The blocking form of dead letters."""

    list = blocking(DeadLetterVerbs.list)
    groups = blocking(DeadLetterVerbs.groups)
    get = blocking(DeadLetterVerbs.get)
    redrive = blocking(DeadLetterVerbs.redrive)
    discard = blocking(DeadLetterVerbs.discard)
