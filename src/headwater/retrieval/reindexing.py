"""Work on whole indexes: building them again, repairing and pruning them, and their status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from headwater.core.clock import MICROSECOND
from headwater.core.logging import log
from headwater.core.progress import OnStep
from headwater.core.short_repr import short_repr
from headwater.declarations.indexes import IndexDef
from headwater.errors import (
    BackendError,
    ConfigError,
    DeclarationError,
    HeadwaterError,
    UnknownNameError,
)
from headwater.features.failure_texts import FailureTexts
from headwater.features.services import Services
from headwater.ports import Generation, IndexSpec, IndexVersion
from headwater.retrieval.generations import Generations
from headwater.retrieval.indexing import Indexer

_PRUNE_MICROS = 60_000_000


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An index: its contents, how they were split and embedded, and how far a rebuild has come.

    ``version`` is None while nothing was indexed, ``declared_spec`` if the index is not declared or
    its embedder is not configured. ``building`` is the number of documents that the
    next generation has, and None if there is none.
    """

    name: str
    is_declared: bool
    version: str | None
    spec: IndexSpec | None
    declared_spec: IndexSpec | None
    documents: int
    chunks: int
    changed_at: datetime | None
    outdated: int
    building: int | None
    generations: Sequence[Generation]
    """All generations that are stored, oldest first."""

    __repr__ = short_repr("name", "documents", "chunks", "version")

    @property
    def needs_reindex(self) -> bool:
        """Whether the index was built in another way than it is declared."""
        return bool(self.differences)

    @property
    def differences(self) -> list[str]:
        """How the declaration differs, such as ``overlap: declared 0, built 40``."""
        if self.spec is None or self.declared_spec is None:
            return []
        return self.spec.differences(self.declared_spec)


class Reindexer:
    """Builds indexes again, repairs and prunes them, and describes them."""

    def __init__(self, services: Services, generations: Generations, indexer: Indexer) -> None:
        self._registry = services.registry
        self._vectors = services.backends.vectors
        self._clock = services.clock
        self._generations = generations
        self._indexer = indexer
        self._texts = FailureTexts(private=services.settings.record.is_private)
        self._problems: dict[str, str] = {}
        self._pruned_at = 0

    async def reindex(self, index: IndexDef, progress: OnStep | None = None) -> int:
        """Build a generation as the index is declared, and switch to it when it is complete.

        A generation that an earlier call has begun is continued. Return the number of documents
        that were split and embedded.
        """
        spec = self._generations.declared(index)
        generation = await self._vectors.create(index.name, spec)
        version = IndexVersion(index.name, generation.number, spec, 0)
        done, total = 0, generation.outdated

        def report(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, max(done, total))

        while True:
            await self._indexer.repair(index, version, report)
            if not await self._vectors.activate(index.name, generation.number):
                return done

    async def drop(self, name: str) -> int:
        """Remove an index with all its documents; return their number."""
        known = {each.index for each in await self._vectors.generations()}
        declared = self._registry.all_indexes()
        if name not in known and name not in declared:
            raise UnknownNameError("index", name, known | declared.keys())
        return await self._vectors.drop(name)

    async def status(self) -> list[IndexStatus]:
        """Return all indexes by name, also if they are only declared or only stored."""
        stored: dict[str, list[Generation]] = {}
        for generation in await self._vectors.generations():
            stored.setdefault(generation.index, []).append(generation)
        declared = self._registry.all_indexes()
        return [
            await self._status(name, declared.get(name), stored.get(name, ()))
            for name in sorted(declared.keys() | stored.keys())
        ]

    async def _status(
        self, name: str, declared: IndexDef | None, stored: Sequence[Generation]
    ) -> IndexStatus:
        version = await self._vectors.version(name) if stored else None
        states = {generation.state: generation for generation in stored}
        active, building = states.get("active"), states.get("building")
        return IndexStatus(
            name=name,
            is_declared=declared is not None,
            version=None if version is None else version.text,
            spec=None if active is None else active.spec,
            declared_spec=None if declared is None else self._declared_spec(declared),
            documents=0 if active is None else active.documents,
            chunks=0 if active is None else active.chunks,
            changed_at=None if active is None else active.changed_at,
            outdated=0 if active is None else active.outdated,
            building=None if building is None else building.documents,
            generations=stored,
        )

    def _declared_spec(self, index: IndexDef) -> IndexSpec | None:
        try:
            return self._generations.declared(index)
        except (ConfigError, DeclarationError):
            return None  # the other indexes are to be shown; using this one shows the problem

    async def maintain(self) -> None:
        """Repair outdated documents, and now and then prune chunks that were replaced long ago."""
        now = self._clock.micros()
        is_pruning = now - self._pruned_at >= _PRUNE_MICROS
        for index in self._registry.all_indexes().values():
            version = await self._vectors.version(index.name)
            if version is None:
                continue
            await self._repair(index, version)
            if is_pruning:
                before = now - index.keep_versions // MICROSECOND
                await self._vectors.prune(index.name, before)
        if is_pruning:
            self._pruned_at = now

    async def _repair(self, index: IndexDef, version: IndexVersion) -> None:
        """Bring outdated documents up to date; log a problem of the embedder once."""
        try:
            await self._indexer.repair(index, version)
            self._problems.pop(index.name, None)
        except BackendError:
            raise
        except HeadwaterError as error:
            problem = self._texts.message(error)
            if self._problems.get(index.name) != problem:
                self._problems[index.name] = problem
                log.error("could not repair an index; retrying", index=index.name, error=problem)
