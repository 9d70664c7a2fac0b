"""The engine: one open store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from typing import get_args

from msgspec.structs import asdict
from prometheus_client import Gauge

from headwater.backends.connect import connect
from headwater.backends.intercepted import intercepted
from headwater.backends.observed import Metrics, count_context
from headwater.contexts.assembler import Assembler
from headwater.contexts.counters import ModelCounters
from headwater.contexts.recorded import RecordedContexts, check_signing
from headwater.core.clock import Clock
from headwater.core.encodings import choose_library
from headwater.core.logging import log
from headwater.core.session_memory import limit_session_memory
from headwater.core.thread_offload import Offload, ThreadState
from headwater.core.tracing import Tracer
from headwater.declarations import graph
from headwater.declarations.interceptors import Interceptor, Interceptors
from headwater.declarations.registry import Registry
from headwater.engine.auditing import AuditReader
from headwater.engine.event_log import EventLog
from headwater.engine.letters import Letters
from headwater.engine.objectives import Objectives
from headwater.engine.tracing import Tracing
from headwater.errors import HeadwaterError
from headwater.features.conversions import conversions
from headwater.features.event_handlers import EventHandlers
from headwater.features.followed_catalog import FollowedCatalog
from headwater.features.ownership import Ownership
from headwater.features.reader import Reader
from headwater.features.reconcile import Reconciler
from headwater.features.refresh import Refresh
from headwater.features.services import Services
from headwater.features.user_calls import FeatureCalls, LimitedCalls
from headwater.features.window_views import WindowViews
from headwater.history.feature_catalog import FeatureCatalog
from headwater.history.one_value import ValueHistory
from headwater.history.versions import declare
from headwater.ports import Backends
from headwater.retrieval.embeddings import Embedders
from headwater.retrieval.generations import Generations
from headwater.retrieval.index_searches import IndexSearches, check_retrievers
from headwater.retrieval.indexing import Indexer
from headwater.retrieval.reindexing import Reindexer
from headwater.retrieval.retrievers import Retrievers
from headwater.retrieval.search import Searcher
from headwater.settings.schema import Settings
from headwater.telemetry import tracer_of

HUNG_THREADS = Gauge(
    "headwater_hung_threads",
    "Threads of this process that hang in functions that are not async; see "
    "`worker.max_hung_threads`.",
)
THREADS = Gauge(
    "headwater_threads",
    "Threads of this process for functions that are not async; `state` is `busy` or "
    "`idle`, or `waiting` for calls that wait for a thread.",
    ["state"],
)

_WARM_UP_SECONDS = 30.0


class Engine(Services, frozen=True):
    """An open store: the services, and the parts that its verbs and workers call."""

    reader: Reader
    handlers: EventHandlers
    refresh: Refresh
    embedders: Embedders
    indexer: Indexer
    reindexer: Reindexer
    searcher: Searcher
    retrievers: Retrievers
    assembler: Assembler
    recorded: RecordedContexts
    reconciler: Reconciler
    feature_catalog: FeatureCatalog
    value_history: ValueHistory
    windows: WindowViews
    audit_log: AuditReader
    events: EventLog
    letters: Letters
    ownership: Ownership
    objectives: Objectives
    tracer: Tracer | None

    async def warm_up(self) -> None:
        """Do what makes the first request slow: load tokenizers and models, open connections.

        What cannot be done now is logged, and done by the first request that needs it. Raise
        `ConfigError` if the settings make recording impossible.
        """
        await self.assembler.warm_up()
        try:
            async with asyncio.timeout(_WARM_UP_SECONDS):
                if self.registry.contexts:
                    await self.backends.records.index_key()  # over the connection of the records
                for index in self.registry.all_indexes().values():
                    await self.searcher.warm_up(index)
        except (HeadwaterError, TimeoutError) as error:
            log.warning("the first requests will be slow", error=str(error) or "timed out")

    async def close(self) -> None:
        """Close the threads and the backends."""
        self.handlers.close()
        self.offload.close()
        await self.embedders.close()
        await self.assembler.counters.close()
        await self.backends.lifecycle.close()


async def open_engine(registry: Registry, settings: Settings, clock: Clock) -> Engine:
    """Check the declarations, connect the backends and wire the parts."""
    graph.check(registry.features)
    check_retrievers(registry)
    check_signing(settings)
    choose_library(settings.context.tokenizer)
    limit_session_memory(settings.offline.max_session_bytes)
    backends = await connect(settings, clock)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(backends.lifecycle.close)
        engine = wire(registry, settings, clock, backends)
        await engine.catalog.follow()
        await backends.erasures.refresh()
        engine.embedders.advise(registry.all_indexes().values())
        undo.pop_all()
    return engine


def wire(registry: Registry, settings: Settings, clock: Clock, backends: Backends) -> Engine:
    """Return an engine of these declarations over open backends."""
    tracer = tracer_of(settings)
    objectives = Objectives(settings.objectives, registry, clock)
    chain: list[Interceptor] = [objectives, Metrics(), *conversions(registry)]
    interceptors = Interceptors(*([] if tracer is None else [Tracing(tracer)]), *chain)
    backends = intercepted(backends, interceptors)
    offload = Offload(settings.worker.threads, settings.worker.max_hung_threads)
    HUNG_THREADS.set_function(lambda: len(offload.hung()))
    for state in get_args(ThreadState):
        THREADS.labels(state).set_function(partial(offload.count, state))
    services = Services(
        registry,
        settings,
        clock,
        backends,
        offload,
        FeatureCalls(offload, settings.worker.handler_timeout, interceptors),
        LimitedCalls(offload, settings.context.timeout),
        FollowedCatalog(backends.catalog, registry, clock, declare),
        interceptors,
    )
    embedders = Embedders(settings, offload, backends.cache, clock)
    generations = Generations(services, embedders)
    indexer, searcher = Indexer(services, generations), Searcher(services, generations)
    reader = Reader(services)
    counters = ModelCounters(settings, backends.records, clock)
    counted = partial(count_context, registry.is_declared)
    assembler = Assembler(services, reader, counters, counted)
    return Engine(
        **asdict(services),
        reader=reader,
        handlers=EventHandlers(services),
        refresh=Refresh(services),
        embedders=embedders,
        indexer=indexer,
        reindexer=Reindexer(services, generations, indexer),
        searcher=searcher,
        retrievers=Retrievers(
            services, reader, IndexSearches(registry, reader, searcher, backends.vectors)
        ),
        assembler=assembler,
        recorded=RecordedContexts(services, reader, assembler),
        reconciler=Reconciler(registry, backends, clock, settings.partitions),
        feature_catalog=FeatureCatalog(services),
        value_history=ValueHistory(services),
        windows=WindowViews(registry, reader),
        audit_log=AuditReader(services),
        events=EventLog(services),
        letters=Letters(services),
        ownership=Ownership(services),
        objectives=objectives,
        tracer=tracer,
    )
