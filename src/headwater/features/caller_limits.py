"""The limits of the caller of a request, applied to its reads and writes.

A call from inside a user's function is not limited: the declaration decides what the function
reads, and a result may be shared with other callers. Contexts are the exception, because callers
choose their parameters: everything that an assembly has read is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Any

from headwater.declarations.features import EntityDef
from headwater.declarations.indexes import IndexDef
from headwater.declarations.registry import Registry
from headwater.errors import CallerLimitError, InvalidInputError
from headwater.errors.hints import quoted
from headwater.features.call_scope import current_scope
from headwater.features.ownership import Ownership
from headwater.model.callers import Caller, CallerLimits, current_caller
from headwater.model.values import EntityKey, Part, ServiceEvent


class LimitedCaller:
    """A caller with limits; every method raises CallerLimitError if they do not allow something."""

    def __init__(self, name: str, limits: CallerLimits) -> None:
        self.name = name
        self.limits = limits

    @property
    def is_limited_to_entities(self) -> bool:
        """Whether the caller may use only some entities."""
        return self.limits.entities is not None or self.limits.are_of_ids

    async def check_entity(self, ownership: Ownership, entity: str, entity_id: str) -> None:
        """Check an entity by the name of its class and its id."""
        await self.check_entities(ownership, [(entity, entity_id)])

    async def check_entities(
        self, ownership: Ownership, keys: Collection[EntityKey], *, are_named: bool = True
    ) -> None:
        """Check entities by the names of their classes and their ids.

        Allowed are, with ids that the limits do not allow, entities that belong to one that they
        allow now. An error names those that the request has named, and not what was read.
        """
        for entity, _ in keys:
            self.check_class(entity, "" if are_named else "an entity that the function reads")
        outside = [key for key in keys if not self.limits.allow_id(key[1])]
        belonging = await ownership.owned_by(outside, self.limits) if outside else set()
        for key in outside:
            if key not in belonging:
                is_owned = ownership.has_owners(key[0])
                self.check_id(
                    key[1],
                    "" if are_named else "the id of an entity that the function reads",
                    ", and belongs to none that the key may use" if is_owned else "",
                )

    def check_class(self, entity: str, subject: str = "") -> None:
        """Check the name of the class of an entity."""
        entities, subject = self.limits.entities, subject or f"the entity {quoted(entity)}"
        if entities is not None and entity not in entities:
            raise self._error(f"{subject} is not among {_listed(entities)}")

    def check_id(self, entity_id: str, subject: str = "", reason: str = "") -> None:
        """Check that the limits allow the id of an entity or a document."""
        if not self.limits.allow_id(entity_id):
            subject, tenant = subject or f"the id {quoted(entity_id)}", self.limits.tenant
            problem = f"does not begin with {tenant!r}"
            if entity_id.startswith(tenant):
                problem = "is not among those of the key"
            raise self._error(f"{subject} {problem}{reason}")

    async def check_features(
        self,
        ownership: Ownership,
        registry: Registry,
        names: Iterable[str],
        entity_ids: Sequence[str | int],
    ) -> None:
        """Check the entities whose features are read or written."""
        entities = {registry.feature(name).entity for name in names}
        keys = [
            (each.name, each.text_id(entity_id)) for each in entities for entity_id in entity_ids
        ]
        await self.check_entities(ownership, keys)

    async def check_events(
        self, ownership: Ownership, registry: Registry, events: Sequence[ServiceEvent]
    ) -> None:
        """Check the ids of events, the entities whose features they trigger, and their owners."""
        entities, subjects = self.limits.entities, EventSubjects(self, registry)
        if self.limits.are_of_ids:
            await subjects.load(ownership, events)
        for index, event in enumerate(events):
            try:
                triggered = registry.triggered_entities(event.event_type)
                if not triggered:
                    self.check_id(event.entity_id)
                if entities is not None and (not triggered or not triggered <= entities):
                    raise self._error(
                        f"events of the type {quoted(event.event_type)} do not only trigger "
                        f"features of {_listed(entities)}"
                    )
                for entity in triggered if self.limits.are_of_ids else ():
                    subjects.check(registry.entity(entity), event)
            except CallerLimitError as error:
                error.index = index if len(events) > 1 else None
                raise

    def check_index(self, index: str, subject: str = "") -> None:
        """Check an index; a tenant may use only indexes that its key names."""
        indexes, subject = self.limits.indexes, subject or f"the index {quoted(index)}"
        if indexes is None and self.limits.are_of_ids:
            raise self._error(
                f"{subject} may hold documents of other tenants, and the key does not name it"
            )
        if indexes is not None and index not in indexes:
            raise self._error(f"{subject} is not among {_listed(indexes)}")

    def may_search(self, index: str) -> bool:
        """Return whether the limits allow an index."""
        try:
            self.check_index(index)
        except CallerLimitError:
            return False
        return True

    async def check_context(
        self,
        ownership: Ownership,
        name: str,
        entities: Iterable[EntityDef],
        inputs: Mapping[str, Any],
    ) -> None:
        """Check the name of a context, and the entity ids among its parameters."""
        contexts = self.limits.contexts
        if contexts is not None and name not in contexts:
            raise self._error(f"the context {quoted(name)} is not among {_listed(contexts)}")
        await self.check_parameters(ownership, entities, inputs)

    async def check_parameters(
        self, ownership: Ownership, entities: Iterable[EntityDef], inputs: Mapping[str, Any]
    ) -> None:
        """Check the entity ids among the parameters of a context or a retriever."""
        await self.check_entities(ownership, named_entities(entities, inputs))

    async def check_retrieval(
        self, ownership: Ownership, retriever: str, provenance: Set[Part]
    ) -> None:
        """Check everything that a retriever has read; a source that it does not name is refused."""
        if not provenance:
            raise self._error(
                f"limits do not apply to the retriever {quoted(retriever)}, whose results name no "
                "index and no entity"
            )
        await self.check_provenance(ownership, provenance)

    async def check_provenance(self, ownership: Ownership, provenance: Iterable[Part]) -> None:
        """Check everything that an assembly has read.

        An error names the limit, and not what was read: the caller may not know of it.
        """
        keys: list[EntityKey] = []
        # The name of a source first: it tells more than what the source is about.
        for part in sorted(provenance, key=lambda part: part[0] != "other"):
            match part:
                case ("feature", entity, _, entity_id) | ("entity", entity, entity_id):
                    keys.append((entity, entity_id))
                case ("index", index, _) | ("document", index, _):
                    if index:
                        self.check_index(index, "an index that the function reads")
                case ("other", source):
                    raise self._error(f"limits do not apply to {source}, which the function reads")
                case ("chunk", _):
                    pass  # its index is another part
                case _:
                    raise self._error("limits do not apply to something that the function reads")
        await self.check_entities(ownership, keys, are_named=False)

    def refuse_owner(self, owner: EntityKey) -> CallerLimitError:
        """Return the error of an event that would make something belong to another."""
        entity, entity_id = owner
        return self._error(
            f"the event names {entity} {quoted(entity_id)} as the owner, which the key may not use"
        )

    def refuse(self, verb: str) -> CallerLimitError:
        """Return the error of a verb that does not apply limits."""
        return self._error(f"{verb} does not apply limits of keys")

    def _error(self, problem: str) -> CallerLimitError:
        return CallerLimitError(self.name, problem)


class EventSubjects:
    """The entities that events of a limited caller are about, with the owners that they have."""

    def __init__(self, caller: LimitedCaller, registry: Registry) -> None:
        self._caller = caller
        self._limits = caller.limits
        self._registry = registry
        self._owners: dict[EntityKey, list[EntityKey]] = {}
        self._belonging: set[EntityKey] = set()

    async def load(self, ownership: Ownership, events: Sequence[ServiceEvent]) -> None:
        """Read the owners of what events are about, and of the owners that they name."""
        named: set[EntityKey] = set()
        ids: dict[str, dict[str, None]] = {}
        for event in events:
            for entity in self._registry.triggered_entities(event.event_type):
                ids.setdefault(entity, {})[event.entity_id] = None
                named |= {*self._registry.named_owners(self._registry.entity(entity), event)}
        for entity, some in ids.items():
            rows = await ownership.owners(self._registry.entity(entity), [*some], expected=True)
            self._owners |= {(entity, i): of for i, of in zip(some, rows, strict=True)}
        owners = {owner for of_one in self._owners.values() for owner in of_one}
        self._belonging = await ownership.owned_by(named | owners, self._limits)

    def check(self, entity: EntityDef, event: ServiceEvent) -> None:
        """Check an event of an entity: nothing of others, and nothing becomes another's.

        The owners that it names must be allowed, unless they are already the owners. What has no
        owner yet gets one by such an event.
        """
        key = (entity.name, event.entity_id)
        owners, named = self._owners[key], [*self._registry.named_owners(entity, event)]
        for owner in named:
            if owner not in owners and not self._may_use(owner):
                raise self._caller.refuse_owner(owner)
        if self._limits.allow(*key) or any(map(self._may_use, owners)):
            return
        if owners or not named:
            reason = ", and belongs to none that the key may use" if entity.belongs_to else ""
            self._caller.check_id(event.entity_id, reason=reason)
        self._owners[key] = named  # for the next events of the batch

    def _may_use(self, owner: EntityKey) -> bool:
        return owner in self._belonging or self._limits.allow(*owner)


def limited_caller() -> LimitedCaller | None:
    """Return the caller of the request if it has limits and no user's function is running."""
    caller = requesting_caller()
    if caller is None or caller.limits is None:
        return None
    return LimitedCaller(caller.name, caller.limits)


def requesting_caller() -> Caller | None:
    """Return the caller of the request if no user's function is running."""
    caller = current_caller()
    if caller is None:
        return None
    scope = current_scope()
    if scope.call is not None or scope.transaction is not None or scope.replay is not None:
        return None
    return caller


def check_index_limits(index: IndexDef) -> None:
    """Raise CallerLimitError if the caller of the request may not read this index."""
    limited = limited_caller()
    if limited is not None:
        limited.check_index(index.name)


def check_document_limits(index: IndexDef, document_id: str | int) -> None:
    """Raise CallerLimitError if the caller of the request may not write this document.

    A tenant writes only documents whose ids begin with its prefix, because others may share them.
    """
    limited = limited_caller()
    if limited is not None:
        limited.check_index(index.name)
        limited.check_id(str(document_id))


def named_entities(
    entities: Iterable[EntityDef], inputs: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return the entities that parameters name: those called like the id field of an entity."""
    named = []
    for entity in entities:
        value = inputs.get(entity.id_field)
        if value is None:
            continue
        try:
            named.append((entity.name, entity.text_id(value)))
        except InvalidInputError:
            named.append((entity.name, str(value)))
    return named


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
