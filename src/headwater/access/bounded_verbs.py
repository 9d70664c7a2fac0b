"""Verbs that run for requests, within the bounds that they declare."""

from __future__ import annotations

import asyncio
from typing import Any

from headwater.access.errors import SlowCallError, TooManyCallsError
from headwater.model.problems import UNAVAILABLE, Rule
from headwater.store.verbs.verb import Arguments, Verb, Verbs, run

CALL_RULES: dict[type[BaseException], Rule] = {
    TooManyCallsError: Rule(UNAVAILABLE, "too-many-calls", "Too many calls at once"),
    SlowCallError: Rule(504, "slow-call", "Call took too long", ("seconds",)),
}


class BoundedVerb:
    """Runs a verb of a group, as long and as often at the same time as it may."""

    def __init__(self, verb: Verb, group: Verbs) -> None:
        self._verb = verb
        self._group = group
        self._reply = verb.reply
        self._seconds = verb.seconds if verb.is_cut_off else None
        self._running = 0

    async def run(self, arguments: Arguments) -> Any:
        """Return the result or its reply; raise an error beyond the bounds."""
        verb = self._verb
        if self._running >= verb.at_once:
            raise TooManyCallsError(verb.operation, verb.at_once)
        self._running += 1
        try:
            async with asyncio.timeout(self._seconds) as limit:
                if self._reply is None:
                    return await run(verb, self._group, arguments)
                return await self._reply.make(self._group, **arguments)
        except TimeoutError:
            if limit.expired():
                raise SlowCallError(verb.operation, verb.seconds) from None
            raise
        finally:
            self._running -= 1
