"""Which recorded contexts a limited caller may read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from headwater.contexts.recorded.verification import load_record
from headwater.declarations.registry import Registry
from headwater.errors import CallerLimitError, DamagedRecordError, UnknownContextError
from headwater.features.caller_limits import LimitedCaller, named_entities
from headwater.model.callers import CallerLimits
from headwater.model.contexts import RecordSummary
from headwater.ports import RecordLog, StoredRecord
from headwater.records.core import Commitment, Core, FeatureInput, Source, disclosed

_WITHHELD = ""
"""In place of an id that a record withholds: no tenant's ids begin like this."""


class Visibility:
    """Decides by the cores of records, and by those of the contexts inside them.

    A record is visible if its context is allowed and everything that it names is: entities,
    indexes, inner contexts and the sources behind them. Not visible are records of other callers in
    which a function was the retriever, because what it read elsewhere is not recorded, and to
    callers of a tenant or of some entities those that name no entity. An id that is withheld counts
    as that of another tenant.
    """

    def __init__(self, records: RecordLog, registry: Registry) -> None:
        self._records = records
        self._registry = registry

    async def is_listed(self, caller: LimitedCaller, found: RecordSummary) -> bool:
        """Return whether a caller may read a record that was found."""
        if not _allows_context(caller, found.name):
            return False
        stored = await self._records.get(found.context_id)
        return stored is not None and await self.is_visible(caller, stored)

    async def is_visible(self, caller: LimitedCaller, stored: StoredRecord) -> bool:
        """Return whether a caller may read a record."""
        if not _allows_context(caller, stored.name):
            return False
        if caller.limits == CallerLimits(contexts=caller.limits.contexts):
            return True
        try:
            async for core in self._cores(stored):
                self._check(caller, core)
        except (CallerLimitError, DamagedRecordError, UnknownContextError):
            return False
        return True

    async def _cores(self, stored: StoredRecord) -> AsyncIterator[Core]:
        """Yield the core of a record and those of all contexts inside it, at any depth."""
        waiting, seen = [stored], {stored.context_id}
        while waiting:
            _, core = load_record(waiting.pop())
            yield core
            for inner in core.contexts:
                if inner.context_id not in seen:
                    seen.add(inner.context_id)
                    record = await self._records.get(inner.context_id)
                    if record is None:
                        raise UnknownContextError(inner.context_id, None)
                    waiting.append(record)

    def _check(self, caller: LimitedCaller, core: Core) -> None:
        """Raise CallerLimitError if a core names something that the limits do not allow."""
        inputs = {
            name: _WITHHELD if type(value) is Commitment else value
            for name, value in core.inputs.items()
        }
        entities = [
            *named_entities(self._registry.entities.values(), inputs),
            *((read.entity, disclosed(read.entity_id) or _WITHHELD) for read in _reads(core)),
        ]
        if not (entities or core.contexts) and caller.is_limited_to_entities:
            raise caller.refuse("a record without entities")
        for entity, entity_id in entities:
            caller.check_entity(entity, entity_id)
        for search in core.retrievals:
            if search.index is not None:
                caller.check_index(search.index.name)
            elif core.caller != caller.name:
                # The caller's own assemblies were checked by everything that they had read.
                raise caller.refuse("a record of a retriever function")
        for source in core.sources:
            _check_source(caller, source)


def _allows_context(caller: LimitedCaller, name: str) -> bool:
    return caller.limits.contexts is None or name in caller.limits.contexts


def _check_source(caller: LimitedCaller, source: Source) -> None:
    if source.kind == "entity":
        caller.check_entity(source.name, disclosed(source.entity_id) or _WITHHELD)
    elif source.kind == "index":
        caller.check_index(source.name)
    else:
        raise caller.refuse(f"a record of {source.name}")


def _reads(core: Core) -> Iterator[FeatureInput]:
    for read in core.features:
        yield read
        yield from read.inputs
