"""Verbs that run for requests, within the bounds that they declare."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from headwater.access.errors import SlowCallError, TooManyCallsError
from headwater.model.problems import UNAVAILABLE, Rule
from headwater.store.verbs.verb import Arguments, Verb, Verbs, run

CALL_RULES: dict[type[BaseException], Rule] = {
    TooManyCallsError: Rule(UNAVAILABLE, "too-many-calls", "Too many calls at once"),
    SlowCallError: Rule(504, "slow-call", "Call took too long", ("seconds",)),
}


T = TypeVar("T")


class CallBounds:
    """How often an operation runs at the same time in this process, and how long.

    ``settings`` has the names of the settings of both, if there are any.
    """

    def __init__(
        self,
        operation: str,
        at_once: int,
        seconds: float | None,
        settings: tuple[str, str] | None = None,
    ) -> None:
        self._operation = operation
        self._at_once = at_once
        self._seconds = seconds
        self._more, self._longer = (
            (f", or raise {name}" for name in settings) if settings else ("", "")
        )
        self._running = 0

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call; raise an error beyond the bounds."""
        if self._running >= self._at_once:
            raise TooManyCallsError(self._operation, self._at_once, self._more)
        self._running += 1
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await call()
        except TimeoutError:
            if limit.expired() and self._seconds is not None:
                raise SlowCallError(self._operation, self._seconds, self._longer) from None
            raise
        finally:
            self._running -= 1


class BoundedVerb:
    """Runs a verb of a group, as long and as often at the same time as it may."""

    def __init__(self, verb: Verb, group: Verbs) -> None:
        seconds = verb.seconds if verb.is_cut_off else None
        self._bounds = CallBounds(verb.operation, verb.at_once, seconds)
        self._call: Callable[..., Awaitable[Any]] = partial(run, verb, group)
        if verb.reply is not None:
            make = verb.reply.make
            self._call = lambda arguments: make(group, **arguments)

    async def run(self, arguments: Arguments) -> Any:
        """Return the result or its reply; raise an error beyond the bounds."""
        return await self._bounds.run(partial(self._call, arguments))
