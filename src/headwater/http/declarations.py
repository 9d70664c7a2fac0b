"""Listings of the declarations: entities, features, retrievers and contexts."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from headwater.declarations import ContextDef, RetrieverDef, annotations_of
from headwater.declarations.features import EntityDef, FeatureDef, Mode
from headwater.declarations.graph import Graph
from headwater.declarations.runtime import runtime_of
from headwater.http.json_values import plain
from headwater.store.feature_store import FeatureStore

_MILLISECOND = timedelta(milliseconds=1)


class DeclaredEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entity and the field that identifies it."""

    name: str
    id_field: str
    id_type: str


class DeclaredFeature(msgspec.Struct, frozen=True, kw_only=True):
    """A feature and how it is computed."""

    name: str
    entity: str
    type: str
    mode: Mode
    description: str
    triggers: Sequence[str]
    needs: Sequence[str]
    refresh_ms: int | None
    ttl_ms: int | None
    materialize: bool
    sql: str | None
    template: str | None
    default: Any


class DeclaredParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a retriever or a context."""

    name: str
    type: str | None
    required: bool
    default: Any


class DeclaredRetriever(msgspec.Struct, frozen=True, kw_only=True):
    """A retriever and its options."""

    name: str
    description: str
    parameters: Sequence[DeclaredParameter]
    cache_ttl_ms: int | None
    top_k: int | None
    timeout_ms: int | None


class DeclaredContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context and its options."""

    name: str
    version: str | None
    description: str
    parameters: Sequence[DeclaredParameter]
    max_tokens: int | None
    model: str | None
    freshness_sla_ms: int | None
    freshness_strict: bool
    separator: str
    on_overflow: str
    backfill: bool
    timeout_ms: int | None


class DeclaredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """All declarations of a features file."""

    entities: Sequence[DeclaredEntity]
    features: Sequence[DeclaredFeature]
    retrievers: Sequence[DeclaredRetriever]
    contexts: Sequence[DeclaredContext]
    graph: Graph


def declarations_of(store: FeatureStore) -> DeclaredResponse:
    """Return all declarations of a store and their dependency graph."""
    registry = runtime_of(store).registry
    return DeclaredResponse(
        entities=[_entity(entity) for entity in registry.entities.values()],
        features=[_feature(feature) for feature in registry.features.values()],
        retrievers=[declared_retriever(retriever) for retriever in registry.retrievers.values()],
        contexts=[declared_context(context) for context in registry.contexts.values()],
        graph=store.graph(),
    )


def _entity(entity: EntityDef) -> DeclaredEntity:
    return DeclaredEntity(
        name=entity.name, id_field=entity.id_field, id_type=entity.id_type.__name__
    )


def _feature(feature: FeatureDef) -> DeclaredFeature:
    template = feature.template
    return DeclaredFeature(
        name=feature.name,
        entity=feature.entity.name,
        type=feature.codec.expected,
        mode=feature.mode,
        description=feature.description,
        triggers=feature.triggers,
        needs=list(dict.fromkeys(template.references)) if template else (),
        refresh_ms=_millis(feature.refresh),
        ttl_ms=_millis(feature.ttl),
        materialize=feature.materialize,
        sql=feature.sql,
        template=template.render({name: f"{{{name}}}" for name in template.references})
        if template
        else None,
        default=feature.default,
    )


def declared_retriever(retriever: RetrieverDef) -> DeclaredRetriever:
    """Return the listing of a retriever."""
    return DeclaredRetriever(
        name=retriever.name,
        description=retriever.description,
        parameters=_parameters(retriever),
        cache_ttl_ms=_millis(retriever.cache_ttl),
        top_k=retriever.top_k,
        timeout_ms=_millis(retriever.timeout),
    )


def declared_context(context: ContextDef) -> DeclaredContext:
    """Return the listing of a context."""
    return DeclaredContext(
        name=context.name,
        version=context.version,
        description=context.description,
        parameters=_parameters(context),
        max_tokens=context.max_tokens,
        model=context.model,
        freshness_sla_ms=_millis(context.freshness_sla),
        freshness_strict=context.freshness_strict,
        separator=context.separator,
        on_overflow=context.on_overflow,
        backfill=context.backfill,
        timeout_ms=_millis(context.timeout),
    )


def _parameters(declared: ContextDef | RetrieverDef) -> list[DeclaredParameter]:
    hints = annotations_of(declared.function)
    return [
        DeclaredParameter(
            name=parameter.name,
            type=inspect.formatannotation(hints[name]) if name in hints else None,
            required=parameter.default is parameter.empty,
            default=_json_default(parameter.default),
        )
        for name, parameter in declared.signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _json_default(default: Any) -> Any:
    """Return a default as JSON or, if it has no JSON form, its ``repr``."""
    if default is inspect.Parameter.empty:
        return None
    try:
        return msgspec.to_builtins(plain(default))
    except TypeError:
        return repr(default)


def _millis(span: timedelta | None) -> int | None:
    return None if span is None else span // _MILLISECOND
