"""The limits of the caller of a request, applied to what it reads and writes.

A call from inside a user's function is not limited: the declaration decides what the function
reads, and a result may be shared with other callers. Contexts are the exception, because callers
choose their parameters: everything that an assembly has read is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from headwater.declarations.features import EntityDef
from headwater.declarations.indexes import IndexDef
from headwater.declarations.registry import Registry
from headwater.errors import CallerLimitError, InvalidInputError
from headwater.errors.hints import quoted
from headwater.features.call_scope import current_scope
from headwater.model.callers import Caller, CallerLimits, current_caller
from headwater.model.values import Part, ServiceEvent


class LimitedCaller:
    """A caller with limits; every method raises CallerLimitError if they do not allow something."""

    def __init__(self, name: str, limits: CallerLimits) -> None:
        self.name = name
        self.limits = limits

    @property
    def is_limited_to_entities(self) -> bool:
        """Whether the caller may use only some entities."""
        return self.limits.entities is not None or bool(self.limits.tenant)

    def check_entity(self, entity: str, entity_id: str) -> None:
        """Check an entity by the name of its class and its id."""
        self.check_class(entity)
        self.check_id(entity_id)

    def check_class(self, entity: str, subject: str = "") -> None:
        """Check the name of the class of an entity."""
        entities, subject = self.limits.entities, subject or f"the entity {quoted(entity)}"
        if entities is not None and entity not in entities:
            raise self._error(f"{subject} is not among {_listed(entities)}")

    def check_id(self, entity_id: str, subject: str = "") -> None:
        """Check that an entity or a document belongs to the tenant."""
        tenant = self.limits.tenant
        if not entity_id.startswith(tenant):
            subject = subject or f"the id {quoted(entity_id)}"
            raise self._error(f"{subject} does not begin with {tenant!r}")

    def check_features(
        self, registry: Registry, names: Iterable[str], entity_ids: Sequence[str | int]
    ) -> None:
        """Check the entities whose features are read or written."""
        for entity in {registry.feature(name).entity for name in names}:
            for entity_id in entity_ids:
                self.check_entity(entity.name, entity.text_id(entity_id))

    def check_events(self, registry: Registry, events: Sequence[ServiceEvent]) -> None:
        """Check the ids of events, and the entities whose features they trigger."""
        entities = self.limits.entities
        for index, event in enumerate(events):
            try:
                self.check_id(event.entity_id)
                triggered = registry.triggered_entities(event.event_type)
                if entities is not None and (not triggered or not triggered <= entities):
                    raise self._error(
                        f"events of the type {quoted(event.event_type)} do not only trigger "
                        f"features of {_listed(entities)}"
                    )
            except CallerLimitError as error:
                error.index = index if len(events) > 1 else None
                raise

    def check_index(self, index: str, subject: str = "") -> None:
        """Check an index; a tenant may use only indexes that its key names."""
        indexes, subject = self.limits.indexes, subject or f"the index {quoted(index)}"
        if indexes is None and self.limits.tenant:
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

    def check_context(
        self, name: str, entities: Iterable[EntityDef], inputs: Mapping[str, Any]
    ) -> None:
        """Check the name of a context, and the entity ids among its parameters."""
        contexts = self.limits.contexts
        if contexts is not None and name not in contexts:
            raise self._error(f"the context {quoted(name)} is not among {_listed(contexts)}")
        self.check_parameters(entities, inputs)

    def check_parameters(self, entities: Iterable[EntityDef], inputs: Mapping[str, Any]) -> None:
        """Check the entity ids among the parameters of a context or a retriever."""
        for entity, entity_id in named_entities(entities, inputs):
            self.check_entity(entity, entity_id)

    def check_retrieval(self, retriever: str, provenance: Set[Part]) -> None:
        """Check everything that a retriever has read; a source that it does not name is refused."""
        if not provenance:
            raise self._error(
                f"limits do not apply to the retriever {quoted(retriever)}, whose results name no "
                "index and no entity"
            )
        self.check_provenance(provenance)

    def check_provenance(self, provenance: Iterable[Part]) -> None:
        """Check everything that an assembly has read.

        An error names the limit, and not what was read: the caller may not know of it.
        """
        # The name of a source first: it tells more than what the source is about.
        for part in sorted(provenance, key=lambda part: part[0] != "other"):
            match part:
                case ("feature", entity, _, entity_id) | ("entity", entity, entity_id):
                    self.check_class(entity, "an entity that the function reads")
                    self.check_id(entity_id, "the id of an entity that the function reads")
                case ("index", index, _) | ("document", index, _):
                    if index:
                        self.check_index(index, "an index that the function reads")
                case ("other", source):
                    raise self._error(f"limits do not apply to {source}, which the function reads")
                case ("chunk", _):
                    pass  # its index is another part
                case _:
                    raise self._error("limits do not apply to something that the function reads")

    def refuse(self, verb: str) -> CallerLimitError:
        """Return the error of a verb that does not apply limits."""
        return self._error(f"{verb} does not apply limits of keys")

    def _error(self, problem: str) -> CallerLimitError:
        return CallerLimitError(self.name, problem)


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
