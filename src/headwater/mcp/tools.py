"""The tools that every store has: read features, search, assemble, and examine records."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from headwater.contexts.freshness import judge
from headwater.core.clock import from_micros
from headwater.declarations.contexts import overrides
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.features.call_scope import tracking
from headwater.features.read_tracking import Reads
from headwater.mcp.context_tools import AssembledContext, context_result
from headwater.mcp.results import ResultFacts, ToolAnswer, record_facts
from headwater.mcp.tool import StoreTool, converted, schema_of, verb_tool
from headwater.model.callers import AccessScope, current_caller
from headwater.model.contexts import Check
from headwater.model.declarations import (
    ContextListing,
    EntityListing,
    EventListing,
    FeatureListing,
    IndexListing,
    RetrieverListing,
)
from headwater.model.features import EntityRow, FeatureRow, ManyFeatures, OneFeature, Value
from headwater.model.indexes import SearchHits
from headwater.model.lineage import ContextLineage
from headwater.model.outcomes import Outcome
from headwater.model.values import FeatureValue
from headwater.model.windows import EntityWindows
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declarations_of
from headwater.store.verbs.indexes import SearchVerbs
from headwater.store.verbs.records import ContextReadVerbs, RecordVerbs
from headwater.store.verbs.verb import declared

LARGEST_READ = 100

_Name = Annotated[str, Meta(max_length=256)]
_EntityId = Annotated[
    str, Meta(max_length=1024, description="Id of the entity, such as a user id; numbers as text.")
]
_Ref = Annotated[
    str,
    Meta(
        max_length=256,
        description="Context id, record hash, or the first 8 or more characters of a context id.",
    ),
]

DeclarationKind = Literal["entities", "events", "features", "indexes", "retrievers", "contexts"]


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class FeatureArguments(_Arguments, frozen=True, kw_only=True):
    """One feature of one entity."""

    feature: Annotated[_Name, Meta(description="Name of a declared feature.")]
    entity_id: _EntityId


class FeaturesArguments(_Arguments, frozen=True, kw_only=True):
    """Features of one kind of entity, and the entities."""

    features: Annotated[
        list[_Name],
        Meta(
            min_length=1,
            max_length=LARGEST_READ,
            description="Names of declared features that belong to the same kind of entity.",
        ),
    ]
    entity_ids: Annotated[list[_EntityId], Meta(min_length=1, max_length=LARGEST_READ)]


class DeclarationsArguments(_Arguments, frozen=True, kw_only=True):
    """The declarations to list."""

    kind: Annotated[
        DeclarationKind | None, Meta(description="List only these. Default: everything.")
    ] = None


class AssembleArguments(_Arguments, frozen=True, kw_only=True):
    """A context, its parameters, and limits that are tighter than the declared ones."""

    context: Annotated[_Name, Meta(description="Name of a declared context.")]
    params: Annotated[
        dict[str, Any],
        Meta(description="Parameters of the context; list_declarations describes them."),
    ] = {}
    max_tokens: Annotated[int | None, Meta(description="Token budget. Default: as declared.")] = (
        None
    )
    freshness_sla: Annotated[
        str | None,
        Meta(description="Largest allowed age of values, such as 5m. Default: as declared."),
    ] = None


class RecordArguments(_Arguments, frozen=True, kw_only=True):
    """A recorded context."""

    ref: _Ref


class ScoreArguments(_Arguments, frozen=True, kw_only=True):
    """A score of a recorded context: exactly one of value, label, flag and text."""

    ref: _Ref
    name: Annotated[_Name, Meta(description="What is judged, such as 'helpful'.")]
    value: Annotated[float | None, Meta(description="The score as a number.")] = None
    label: Annotated[str | None, Meta(description="The score as a category.")] = None
    flag: Annotated[bool | None, Meta(description="The score as true or false.")] = None
    text: Annotated[str | None, Meta(description="The score as text.")] = None
    explanation: Annotated[str | None, Meta(description="The reason.")] = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about a record, and each check behind it."""

    ok: bool
    verdict: str
    signed: bool
    context_id: str
    record_hash: str
    checks: Sequence[Check]


class LineageOfContext(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a recorded context."""

    context_id: str
    record_hash: str
    lineage: ContextLineage


class FeatureOfEntity(OneFeature, frozen=True, kw_only=True):
    """A feature's value for one entity; ``unit`` is what it is counted in, empty if not known."""

    unit: str


class FeaturesOfEntities(ManyFeatures, frozen=True, kw_only=True):
    """The values of several entities; ``units`` are those of the features that have one."""

    units: dict[str, str]


class Declarations(msgspec.Struct, frozen=True, kw_only=True):
    """The declarations of a features file."""

    entities: Sequence[EntityListing] = ()
    events: Sequence[EventListing] = ()
    features: Sequence[FeatureListing] = ()
    indexes: Sequence[IndexListing] = ()
    retrievers: Sequence[RetrieverListing] = ()
    contexts: Sequence[ContextListing] = ()


class StoreTools:
    """The tools over the verbs of a store."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._largest_read = store.settings.http.max_values

    def tools(self) -> list[StoreTool]:
        """Return the tools in the order in which they are listed."""
        return [
            _tool("Read a feature", "read", self.get_feature, FeatureOfEntity),
            _tool("Read features", "read", self.get_features, FeaturesOfEntities),
            _tool("Read windows", "read", self.get_windows, EntityWindows),
            _tool("List declarations", "read", self.list_declarations, Declarations),
            verb_tool(
                self._store, declared(SearchVerbs.search), "Search an index", _searched_facts
            ),
            _tool("Assemble a context", "assemble", self.assemble_context, AssembledContext),
            verb_tool(
                self._store,
                declared(ContextReadVerbs.list_contexts),
                "List recorded contexts",
                lambda _: ResultFacts(),
                {"limit": (20, LARGEST_READ)},
            ),
            verb_tool(
                self._store.records,
                declared(RecordVerbs.explain),
                "Explain a context",
                record_facts,
            ),
            _tool("Score a context", "outcomes", self.add_score, Outcome),
            _tool("Read the lineage of a context", "records", self.get_lineage, LineageOfContext),
            _tool("Verify a record", "records", self.verify_record, Verification),
        ]

    async def get_feature(self, given: FeatureArguments) -> ToolAnswer:
        """Read the current value of one feature of one entity, with its age and source.

        A value of null with the source "missing" means that nothing is known about this entity.
        """
        (row,), facts, now = await self._read([given.feature], [given.entity_id])
        value = row[given.feature]
        unit = runtime_of(self._store).registry.feature(given.feature).unit
        feature = FeatureOfEntity(given.feature, given.entity_id, *_shown(value, now), unit=unit)
        return ToolAnswer(value=feature, facts=facts)

    async def get_features(self, given: FeaturesArguments) -> ToolAnswer:
        """Read the current values of many features of many entities at once.

        All features must belong to the same kind of entity.
        """
        registry = runtime_of(self._store).registry
        entity = registry.one_entity(given.features)
        count, limit = len(given.features) * len(given.entity_ids), self._largest_read
        if count > limit:
            raise InvalidInputError(
                f"the call is for {count} values, more than the maximum of {limit}; make several "
                "calls, or raise http.max_values"
            )
        rows, facts, now = await self._read(given.features, given.entity_ids)
        features = [
            EntityRow(entity_id, {name: Value(*_shown(row[name], now)) for name in given.features})
            for entity_id, row in zip(given.entity_ids, rows, strict=True)
        ]
        units = {name: unit for name in given.features if (unit := registry.feature(name).unit)}
        return ToolAnswer(value=FeaturesOfEntities(entity.name, features, units=units), facts=facts)

    async def get_windows(self, given: FeatureArguments) -> ToolAnswer:
        """Read all windows of one feature for one entity, such as the sums of an hour and a week.

        The feature is one that list_declarations shows with windows, or one of its members.
        """
        read = await self._store.get_feature_windows(given.feature, given.entity_id)
        # The tiles are for drawings: a model needs the values.
        without_tiles = msgspec.structs.replace(read, levels=())
        return ToolAnswer(value=without_tiles, facts=ResultFacts(as_of=read.as_of))

    async def _read(
        self, features: Sequence[str], entity_ids: Sequence[str]
    ) -> tuple[list[FeatureRow], ResultFacts, datetime]:
        """Return the values, and their age and freshness as a context would judge them."""
        reads = Reads()
        with tracking(reads):
            rows = await self._store.get_feature_values(features, entity_ids)
        now = self._store.clock.now()
        freshness = judge(reads, None, now).freshness
        times = [value.as_of for row in rows for value in row.values() if value.as_of is not None]
        return rows, ResultFacts(as_of=min(times, default=None), freshness=freshness.status), now

    async def list_declarations(self, given: DeclarationsArguments) -> ToolAnswer:
        """List what is declared here: entities, events, features, indexes, retrievers, contexts.

        Call this first to learn the names, types and parameters that the other tools take, and
        what a value means: its description, its unit, its tags, and the owner to ask about it.
        """
        listing = declarations_of(self._store, current_caller())
        kinds = [given.kind] if given.kind else Declarations.__struct_fields__
        return ToolAnswer(value=Declarations(**{kind: getattr(listing, kind) for kind in kinds}))

    async def assemble_context(self, given: AssembleArguments) -> ToolAnswer:
        """Assemble a declared context under its token budget, and record it for later proof.

        Returns the text, the id of the record and whether the data met the freshness SLA. Prefer
        the tool of the context itself (context_NAME) unless a tighter limit is wanted.
        """
        changed = overrides(
            UNSET if given.max_tokens is None else given.max_tokens,
            UNSET if given.freshness_sla is None else given.freshness_sla,
        )
        return context_result(await self._store.assemble(given.context, given.params, changed))

    async def get_lineage(self, given: RecordArguments) -> ToolAnswer:
        """Read the lineage of a recorded context: values, chunks and their ages, and the budget."""
        past = await self._store.get_context_at(given.ref)
        lineage = LineageOfContext(
            context_id=past.context_id, record_hash=past.record_hash, lineage=past.lineage
        )
        return ToolAnswer(value=lineage, facts=record_facts(past))

    async def add_score(self, given: ScoreArguments) -> ToolAnswer:
        """Add a score to a recorded context, with a model as its judge.

        explain_context shows the outcomes of a context: answers, scores, corrections and errors.
        """
        added = await self._store.records.add_outcome(
            given.ref,
            score=given.name,
            value=given.value,
            label=given.label,
            flag=given.flag,
            text=given.text,
            explanation=given.explanation,
            judge="model",
        )
        return ToolAnswer(value=added, facts=ResultFacts(record_hash=added.record_hash))

    async def verify_record(self, given: RecordArguments) -> ToolAnswer:
        """Verify a recorded context: hash, signature, disclosed values and text.

        The server examines its own storage. For a proof that does not trust this server, export
        the record and verify it elsewhere.
        """
        record = await self._store.get_record(given.ref)
        report = await self._store.records.verify(given.ref)
        verification = Verification(
            ok=report.ok,
            verdict=report.verdict,
            signed=report.signed,
            context_id=record.context_id,
            record_hash=record.record_hash,
            checks=report.checks,
        )
        facts = ResultFacts(record_hash=record.record_hash)
        if report.ok:
            facts = record_facts(await self._store.get_context_at(record.context_id))
        return ToolAnswer(value=verification, facts=facts)


def _searched_facts(hits: SearchHits) -> ResultFacts:
    if hits.version is None:
        return ResultFacts()
    return ResultFacts(as_of=from_micros(int(hits.version.partition(".")[2])))


def _shown(value: FeatureValue, now: datetime) -> tuple[Any, ...]:
    return value.value, value.as_of, value.age_ms(now), value.source


def _tool(
    title: str, scope: AccessScope, function: Callable[[Any], Awaitable[ToolAnswer]], returns: Any
) -> StoreTool:
    """Return the tool of a method, which takes one Struct of arguments."""
    (given,) = inspect.signature(function, eval_str=True).parameters.values()

    async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
        return await function(converted(arguments, given.annotation))

    return StoreTool(
        name=function.__name__,
        title=title,
        scope=scope,
        description=inspect.getdoc(function) or "",
        input_schema=schema_of(given.annotation),
        output_schema=schema_of(returns),
        call=call,
        is_read_only=scope not in ("assemble", "outcomes"),
    )
