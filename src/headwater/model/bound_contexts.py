"""Contexts that know their store: they take outcomes, and a block makes one the current context."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, Unpack, cast

from headwater.core.blocking import SyncLoop
from headwater.errors import InvalidInputError
from headwater.model.new_outcomes import NewOutcome
from headwater.model.outcomes import Outcome

if TYPE_CHECKING:
    from headwater.model.lineage import Context, PastContext

_BINDING = "binding"
"""The name in the dictionary of a context, which is not part of its fields."""


class OutcomeVerbs(Protocol):
    """The part of a store or a client that adds outcomes."""

    async def add_outcome(self, ref: str, **given: Unpack[NewOutcome]) -> Outcome: ...


class Binding(NamedTuple):
    """The store or client that a context comes from."""

    verbs: OutcomeVerbs
    loop: SyncLoop | None
    """Runs blocking calls; an `AsyncClient` has none."""
    home: asyncio.AbstractEventLoop | None = None
    """The event loop that the connections of a client belong to; a store works in any."""


class BoundContext:
    """The methods of a context that use the store or client that returned it.

    A copy that was pickled, sent or made by hand belongs to no store.
    """

    context_id: str

    def add_outcome(self, **given: Unpack[NewOutcome]) -> Coroutine[Any, Any, Outcome]:
        """Store what became of this context: an answer, a score, a correction or an error.

        ``store.records.add_outcome`` describes the arguments. Blocking code calls
        ``ctx.sync.add_outcome``, with the same arguments.

        >>> await ctx.add_outcome(score="helpful", value=4, judge="human")
        <Outcome 'score' ... of ...>
        """
        binding = binding_of(self)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidInputError(
                "ctx.add_outcome is async, and this thread runs no event loop; in blocking code "
                "call ctx.sync.add_outcome(…)"
            ) from None
        return binding.verbs.add_outcome(self.context_id, **given)

    @property
    def sync(self) -> BlockingOutcomes:
        """The blocking form of ``add_outcome``.

        >>> ctx.sync.add_outcome(score="helpful", value=4)  # in code without an event loop
        <Outcome 'score' ... of ...>
        """
        return BlockingOutcomes(self.context_id, binding_of(self))

    def __enter__(self) -> Self:
        _current.set(_Entered(cast("Context | PastContext", self), _current.get()))
        return self

    def __exit__(self, *_: object) -> None:
        entered = _current.get()
        _current.set(None if entered is None else entered.outer)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *raised: object) -> None:
        self.__exit__(*raised)


class BlockingOutcomes(NamedTuple):
    """``ctx.sync``: adds outcomes in code without an event loop."""

    context_id: str
    binding: Binding

    def add_outcome(self, **given: Unpack[NewOutcome]) -> Outcome:
        """Store what became of the context, and return when that is done."""
        verbs, loop, _ = self.binding
        if loop is None:
            raise InvalidInputError(
                "the context comes from an AsyncClient, which does not block; await "
                "ctx.add_outcome(…), or assemble the context with a Client"
            )
        return loop.run(verbs.add_outcome(self.context_id, **given))


class _Entered(NamedTuple):
    context: Context | PastContext
    outer: _Entered | None


_current: ContextVar[_Entered | None] = ContextVar("headwater_context", default=None)


def current_context() -> Context | PastContext | None:
    """Return the context of the innermost ``with ctx:`` or ``async with ctx:``, or None.

    >>> async with ctx:
    ...     current_context() is ctx
    True
    """
    entered = _current.get()
    return None if entered is None else entered.context


B = TypeVar("B", bound=BoundContext)


def binding_of(context: BoundContext) -> Binding:
    """Return the store or client of a context; raise InvalidInputError if it has none."""
    binding: Binding | None = vars(context).get(_BINDING)
    if binding is None:
        raise InvalidInputError(
            f"context {context.context_id} does not know its store, because it was copied, "
            "unpickled or replayed; call store.records.add_outcome(context_id, …) instead"
        )
    return binding


def bound(context: B, binding: Binding) -> B:
    """Return a context after binding it to its store."""
    vars(context)[_BINDING] = binding
    return context
