"""The task of an evaluation: a portion of a cohort, which any process can evaluate."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.backends.connect import connect
from headwater.backends.memory import MemoryCache
from headwater.contexts.evaluation.cohort import Cohort
from headwater.contexts.evaluation.evaluator import Evaluated, Evaluator, Recorded
from headwater.contexts.evaluation.replayed_history import ReplayedHistory
from headwater.contexts.evaluation.rerun import Rerun, Rerunner
from headwater.contexts.evaluation.results import RunFolder
from headwater.contexts.evaluation.variants import Changes, Code
from headwater.core.batching import batched
from headwater.core.encodings import choose_library
from headwater.core.session_memory import limit_session_memory
from headwater.declarations.features import EntityDef
from headwater.declarations.fingerprints import Declared
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine, wire
from headwater.features.call_scope import offline
from headwater.model.evaluations import PortionReport
from headwater.ports import Backends
from headwater.records.core import Commitment, Core
from headwater.store.base_code import load_base
from headwater.store.feature_store import FeatureStore
from headwater.store.task_store import FeaturesFile

_GROUP = 250
"""Contexts that are assembled at once: their reads of history share calls."""
_MOST_ENGINES = 12


class EvaluationJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a run evaluates; `base` is the path of the former code, or empty for the cohort's."""

    source: FeaturesFile
    base: str
    cohort: str
    folder: Path
    options: Mapping[str, Any]


class EvaluationTask(msgspec.Struct, frozen=True, kw_only=True):
    """A portion of the cohort of a run."""

    job: EvaluationJob
    number: int
    offset: int
    size: int

    def __repr__(self) -> str:
        return f"portion {self.number} of the evaluation"

    @property
    def inputs(self) -> Sequence[Path]:
        """The cohort, and the former code."""
        files = (self.job.cohort, self.job.base)
        return [Path(file).absolute() for file in files if file]

    def run(self) -> PortionReport:
        """Evaluate the portion, unless that is done, and return its counts."""
        return _worker(self.job).run(self)


_workers: dict[bytes, _Worker] = {}


def _worker(job: EvaluationJob) -> _Worker:
    """Return the worker of a job in this process: opening a store costs as much as a portion."""
    key = msgspec.json.encode(job, enc_hook=str)
    if key not in _workers:
        _workers[key] = _Worker(job)
    return _workers[key]


class _Worker:
    """Evaluates portions of one run in this process, until it ends."""

    def __init__(self, job: EvaluationJob) -> None:
        self._job = job
        self._folder = RunFolder(job.folder)
        self._runner = asyncio.Runner()
        self._cohort, self._variants, self._evaluator = self._runner.run(self._open())

    async def _open(self) -> tuple[Cohort, Variants, Evaluator]:
        job, new = self._job, await self._job.source.load()
        runtime = runtime_of(new)
        settings, clock = runtime.settings, runtime.clock
        choose_library(settings.context.tokenizer)
        limit_session_memory(settings.offline.max_session_bytes)
        cohort = Cohort.open(Path(job.cohort), settings)
        base = load_base(Path(job.base) if job.base else cohort)
        former, present = (Code.of(runtime_of(store).registry) for store in (base, new))
        changes = Changes(former, present, job.options)
        backends = await connect(settings, clock)
        await backends.erasures.refresh()
        variants = Variants(changes, backends, (base, new))
        is_private = settings.record.is_private
        return (
            cohort,
            variants,
            Evaluator(backends.records, changes, variants, is_private=is_private),
        )

    def run(self, task: EvaluationTask) -> PortionReport:
        """Evaluate a portion, unless that is done."""
        if not self._folder.is_done(task.number):
            evaluated = self._runner.run(self._evaluate(task))
            changed = [one.changed for one in evaluated if one.changed is not None]
            self._folder.write(task.number, [one.context for one in evaluated], changed)
        return PortionReport(number=task.number, contexts=task.size)

    async def _evaluate(self, task: EvaluationTask) -> list[Evaluated]:
        evaluated: list[Evaluated] = []
        for entries in batched([*self._cohort.entries(task.offset, task.size)], _GROUP):
            evaluated += await self._evaluator.evaluate(entries)
            self._variants.release()
        return evaluated


class _Wired(NamedTuple):
    """A variant that can be run: its engine, the history that it reads, and what runs contexts."""

    engine: Engine
    history: ReplayedHistory
    rerunner: Rerunner


class Variants:
    """The variants of a run, each with an engine over the same backends, and nothing written.

    The functions of both codes use the engine of the variant that runs.
    """

    def __init__(
        self, changes: Changes, backends: Backends, stores: Sequence[FeatureStore]
    ) -> None:
        self._changes = changes
        self._backends = backends
        self._stores = [runtime_of(store) for store in stores]
        self._wired: OrderedDict[frozenset[Declared], _Wired] = OrderedDict()
        every = frozenset(changes.keys)
        self._codes = [changes.variant(taken_back) for taken_back in (frozenset(), every)]

    async def run(
        self, taken_back: frozenset[Declared], contexts: Sequence[Recorded]
    ) -> list[Rerun]:
        """Return what a variant makes of each context."""
        if not contexts:
            return []
        wired = self._wired.get(taken_back) or await self._wire(taken_back)
        self._wired.move_to_end(taken_back)
        for runtime in self._stores:
            runtime.lend(wired.engine)
        entities, until = self._entities(contexts, wired.engine.registry.entities)
        with offline():
            await wired.history.preload(entities, until)
            runs = (wired.rerunner.run(context.core, context.inner) for context in contexts)
            return list(await asyncio.gather(*runs))

    def upstream(self, features: Iterable[str]) -> Set[str]:
        """Return these features, and all that they may be computed from."""
        names = set(features)
        return names.union(*(code.upstream(names) for code in self._codes))

    def release(self) -> None:
        """Forget the replayed values of all entities."""
        for wired in self._wired.values():
            wired.history.release()

    async def _wire(self, taken_back: frozenset[Declared]) -> _Wired:
        while len(self._wired) >= _MOST_ENGINES:
            _, oldest = self._wired.popitem(last=False)
            oldest.engine.handlers.close()
            oldest.engine.offload.close()
        variant = self._changes.variant(taken_back)
        settings, clock = self._stores[-1].settings, self._stores[-1].clock
        catalog = await self._backends.catalog.load()
        former = self._changes.base.registry
        former.serve(catalog)
        backends = replace(self._backends, cache=MemoryCache(clock))
        registry = variant.registry()
        services = wire(registry, settings, clock, backends)
        services.catalog.use(catalog)
        # The real history as it is stored: the engine's interceptors convert what it reads.
        services = replace(services, backends=backends)
        history = ReplayedHistory(services, variant.replayed, former.features)
        engine = wire(registry, settings, clock, replace(backends, offline=history))
        engine.catalog.use(catalog)
        history.bind(engine)
        counters = engine.assembler.counters
        rerunner = Rerunner(variant, engine, engine.reader, counters, history)
        wired = self._wired[taken_back] = _Wired(engine, history, rerunner)
        return wired

    def _entities(
        self, contexts: Iterable[Recorded], declared: Mapping[str, EntityDef]
    ) -> tuple[dict[str, set[str]], datetime]:
        """Return the ids that contexts are about, by entity, and when the last one ended."""
        ids: dict[str, set[str]] = {}
        moments = []
        for context in contexts:
            moments.append(context.core.created_at)
            for core in (context.core, *context.inner):
                for entity, entity_id in _ids(core, declared):
                    ids.setdefault(entity, set()).add(entity_id)
        return ids, max(moments)


def _ids(core: Core, declared: Mapping[str, EntityDef]) -> Iterable[tuple[str, str]]:
    for read in core.features:
        for value in (read, *read.inputs):
            if not isinstance(value.entity_id, Commitment):
                yield value.entity, value.entity_id
    for entity in declared.values():
        given = core.inputs.get(entity.id_field)
        if isinstance(given, str | int):
            yield entity.name, str(given)
