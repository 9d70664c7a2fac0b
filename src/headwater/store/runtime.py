"""The internals of a FeatureStore: declarations, settings, clock and open engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headwater.core.blocking import SyncLoop
from headwater.core.clock import Clock
from headwater.declarations.context_arguments import bind_parameters
from headwater.declarations.contexts import ContextDef, check_not_looser
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.declarations.indexes import IndexDef, IndexRef
from headwater.declarations.items import Chunk
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import RetrieverDef
from headwater.engine.auditing import audited
from headwater.engine.engines import Engines
from headwater.features.call_scope import (
    ScopeClock,
    check_allowed_in_handler,
    check_not_replaying,
    check_present,
    current_replay,
    current_scope,
    real_clock,
    track_source,
)
from headwater.features.caller_limits import limited_caller
from headwater.model.bound_contexts import Binding, bound
from headwater.model.contexts import Overrides
from headwater.model.lineage import Context
from headwater.settings.schema import Settings
from headwater.store.events import EventPublisher
from headwater.store.verbs.records import RecordVerbs
from headwater.store.verbs.verb import Arguments, Verb, Verbs

if TYPE_CHECKING:
    from headwater.engine.engine import Engine
    from headwater.store.tables import Tables


class Runtime:
    """Declarations bound to settings and a clock, and the engines opened for them."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = real_clock(clock)
        self.scope_clock = ScopeClock(clock)
        self.registry = Registry()
        self.file: str | None = None
        """The features file, if the store was loaded from one."""
        self.sync_loop = SyncLoop()
        self.publisher = EventPublisher(self)
        self.binding = Binding(RecordVerbs(self), self.sync_loop)
        self._engines = Engines()
        self.was_opened = False

    def current(self) -> Engine | None:
        """Return the engine for the running event loop, or None if it is not open."""
        return self._engines.current()

    async def open(self) -> Engine:
        """Return the engine for the running event loop; open it if necessary."""
        self.was_opened = True
        return await self._engines.open(self.registry, self.settings, self.clock)

    def lend(self, engine: Engine) -> None:
        """Let the functions of this store use the declarations of another engine, which it owns."""
        self.registry = engine.registry
        self._engines.shared = engine

    async def close(self) -> None:
        """Close the engines of the running event loop and of the loop of ``store.sync``."""
        await self._engines.close(self.sync_loop.loop)

    async def rebind(self, settings: Settings, clock: Clock) -> None:
        """Close the engines; the next use opens new ones with these settings and this clock."""
        await self.close()
        self.settings, self.clock, self._engines = settings, real_clock(clock), Engines()
        self.scope_clock.real = self.clock

    check_not_replaying = staticmethod(check_not_replaying)
    check_present = staticmethod(check_present)

    async def run(self, verb: Verb, group: Verbs, arguments: Arguments) -> Any:
        """Run a verb: note a source that it reads, refuse and log a change as it declares."""
        if verb.reads is not None:
            track_source("other", verb.reads)
        if verb.changes is None:
            check_present(verb.name)
            return await verb.call(group, arguments)
        check_not_replaying(verb.name)
        if not verb.is_logged or verb.audits_itself or arguments.get("dry_run"):
            return await verb.call(group, arguments)
        sent = verb.sent(arguments)
        target = "" if verb.target is None else sent[verb.target]
        notes = {name: sent.get(name, verb.fields[name].absent) for name in verb.notes}
        async with self.audited(verb.changes, target, **notes):
            return await verb.call(group, arguments)

    @asynccontextmanager
    async def audited(
        self, action: str, target: str = "", **parameters: Any
    ) -> AsyncIterator[Engine]:
        """Log an administrative action before it starts, and its outcome."""
        engine = await self.open()
        async with audited(engine, action, target, **parameters):
            yield engine

    @property
    def is_in_handler(self) -> bool:
        """Whether this is a handler, whose effects are those of its event."""
        return current_scope().transaction is not None

    async def check_limits(
        self, names: Sequence[FeatureRef], entity_ids: Sequence[str | int]
    ) -> None:
        """Raise CallerLimitError if the caller of the request may not use these entities."""
        limited = limited_caller()
        if limited is not None:
            ownership, features = (await self.open()).ownership, map(feature_name, names)
            await limited.check_features(ownership, self.registry, features, entity_ids)

    @cached_property
    def tables(self) -> Tables:
        """Tables and history."""
        from headwater.store import tables  # noqa: PLC0415 - loads DuckDB

        return tables.Tables(self)

    def changed_index(self, index: IndexRef, verb: str) -> IndexDef:
        """Return a declared index that a verb changes; a replay may not."""
        check_not_replaying(verb)
        return self.registry.index(index)

    async def assemble_named(
        self, name: str, params: Mapping[str, Any], overrides: Overrides
    ) -> Context:
        """Assemble a context by its name, with parameters that are converted and checked."""
        definition = self.registry.context(name)
        bound, options = bind_parameters(definition, params, overrides)
        return await self.assemble(definition, bound.args, bound.kwargs, options)

    async def assemble(
        self,
        context: ContextDef,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        overrides: Overrides,
    ) -> Context:
        """Assemble a declared context."""
        check_allowed_in_handler("assemble")
        run = current_replay()
        if run is None:
            # A replay repeats the options of a call that was allowed at its time.
            check_not_looser(context, overrides)
            run = (await self.open()).assembler.run
        return bound(await run(context, arguments, named, overrides), self.binding)

    async def retrieve(
        self, retriever: RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> list[Chunk]:
        """Run a declared retriever."""
        check_allowed_in_handler("retrieve")
        engine = await self.open()
        # An evaluation may have taken the declaration back that the function holds.
        current = engine.registry.retrievers.get(retriever.name, retriever)
        return await engine.retrievers.run(current, arguments, named)
