"""Work on whole indexes: building them again, repairing and pruning them, and their status."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.clock import MICROSECOND
from headwater.core.logging import log
from headwater.declarations.indexes import IndexDef
from headwater.errors import (
    BackendError,
    ConfigError,
    DeclarationError,
    HeadwaterError,
    UnknownNameError,
)
from headwater.features.caller_limits import limited_caller
from headwater.features.services import Services
from headwater.features.user_calls import FailureTexts
from headwater.model.indexes import Generation, IndexSpec, IndexStatus
from headwater.model.problems import OnStep
from headwater.ports import IndexVersion
from headwater.retrieval.document_checks import PlainDocument
from headwater.retrieval.generations import Generations
from headwater.retrieval.indexing import Indexer

_PRUNE_MICROS = 60_000_000
# Embedding the other chunks of a document that fails in the end may take minutes, or money.
_RETRY_MICROS = 60_000_000


class Reindexer:
    """Builds indexes again, repairs and prunes them, and describes them."""

    def __init__(self, services: Services, generations: Generations, indexer: Indexer) -> None:
        self._registry = services.registry
        self._vectors = services.backends.vectors
        self._clock = services.clock
        self._generations = generations
        self._indexer = indexer
        self._texts = FailureTexts(private=services.settings.record.is_private)
        self._problems: dict[str, tuple[str, str]] = {}
        self._failed: dict[str, tuple[str, int]] = {}
        """Of indexes whose last round failed: where the next begins, and when it failed."""
        self._pruned_at: dict[str, int] = {}

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
        names = {generation.index for generation in await self._vectors.generations()}
        declared = self._registry.all_indexes()
        if name not in names and name not in declared:
            raise UnknownNameError("index", name, names | declared.keys())
        return await self._vectors.drop(name)

    async def status(self) -> list[IndexStatus]:
        """Return all indexes by name that the caller may search, declared or only stored."""
        stored: dict[str, list[Generation]] = {}
        for generation in await self._vectors.generations():
            stored.setdefault(generation.index, []).append(generation)
        declared, limited = self._registry.all_indexes(), limited_caller()
        return [
            await self._status(name, declared.get(name), stored.get(name, []))
            for name in sorted(declared.keys() | stored.keys())
            if limited is None or limited.may_search(name)
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

    async def maintain(self, index: IndexDef) -> None:
        """Repair outdated documents, and now and then prune chunks that were replaced long ago."""
        version = await self._vectors.version(index.name)
        if version is None:
            return
        await self._repair(index, version)
        now = self._clock.micros()
        if now - self._pruned_at.get(index.name, 0) >= _PRUNE_MICROS:
            await self._vectors.prune(index.name, now - index.keep_versions // MICROSECOND)
            self._pruned_at[index.name] = now

    async def _repair(self, index: IndexDef, version: IndexVersion) -> None:
        """Bring outdated documents up to date; log a problem of the embedder once.

        After a problem, the next round tries the first of its documents alone. If that is the one
        which cannot be embedded, the round after it goes on with the others, and it is tried again
        after a pause.
        """
        after, alone, now = "", index.name in self._failed, self._clock.micros()
        documents: list[PlainDocument] = []
        if alone:
            after, failed_at = self._failed[index.name]
            documents = await self._indexer.outdated(index, version, after, alone=True)
            if not documents and now - failed_at < _RETRY_MICROS:
                return
            del self._failed[index.name]
        if is_whole := not documents:
            after = ""
            documents = await self._indexer.outdated(index, version, after, alone=alone)
        while documents:
            try:
                await self._indexer.update(index, version, documents)
            except BackendError:
                raise
            except HeadwaterError as error:
                self._failed[index.name] = (after, now)
                if len(documents) == 1:
                    self._failed[index.name] = (documents[0].id, now)
                    self._log(index, documents[0].id, self._texts.message(error))
                return
            after = documents[-1].id
            documents = await self._indexer.outdated(index, version, after)
        if is_whole:
            self._problems.pop(index.name, None)

    def _log(self, index: IndexDef, document: str, problem: str) -> None:
        if self._problems.get(index.name) != (document, problem):
            self._problems[index.name] = (document, problem)
            log.error(
                "could not repair an index; retrying",
                index=index.name,
                document=document,
                error=problem,
            )
