"""Fingerprints of declarations: equal for declarations that behave in the same way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Set
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.core.codec import Codec
from headwater.declarations.contexts import ContextFunction, RetrieverFunction
from headwater.declarations.definitions import code_of, own_code_of
from headwater.declarations.feature_handles import Feature
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.indexes import Index
from headwater.declarations.registry import Registry
from headwater.declarations.series import shape_of
from headwater.model.evaluations import DeclarationKind

_OF_CATALOG = frozenset(
    {"series", "lineage", "foreign", "is_other_kind", "earlier_ttls", "definition"}
)
_FOR_PEOPLE = frozenset({"location", "description", "owner", "tags", "unit"})
_LEFT_OUT = _OF_CATALOG | _FOR_PEOPLE


class Declared(NamedTuple):
    """The kind and the name of a declaration."""

    kind: DeclarationKind
    name: str


class Fingerprint(NamedTuple):
    """Hashes of a declaration: with all code that it reaches, and without other declarations."""

    reached: str
    own: str


def declared(registry: Registry) -> Iterator[tuple[Declared, Any]]:
    """Yield the declarations that make contexts what they are; features of a family by that."""
    for feature in registry.features.values():
        if feature.window is None:
            yield Declared("feature", feature.name), feature
    for retriever in registry.retrievers.values():
        yield Declared("retriever", retriever.name), retriever
    for context in registry.contexts.values():
        yield Declared("context", context.name), context
    for index in registry.all_indexes().values():
        yield Declared("index", index.name), index


def fingerprints(registry: Registry) -> dict[Declared, Fingerprint]:
    """Return the fingerprint of each declaration."""
    members: dict[str, list[FeatureDef]] = {}
    for feature in registry.features.values():
        if feature.window is not None:
            members.setdefault(feature.window.family, []).append(feature)
    return {
        key: Fingerprint(
            _hash((declaration, members.get(key.name, [])), code_of),
            _hash((declaration, members.get(key.name, [])), _own_code),
        )
        for key, declaration in declared(registry)
    }


def is_same_but_default(one: FeatureDef, other: FeatureDef) -> bool:
    """Return whether features differ in nothing but their default."""
    plain = [msgspec.structs.replace(feature, default=None) for feature in (one, other)]
    return _hash(plain[0], code_of) == _hash(plain[1], code_of)


def _own_code(function: Callable[..., Any]) -> str:
    return own_code_of(function, _is_handle)


def _is_handle(value: object) -> bool:
    return isinstance(value, Feature | RetrieverFunction | ContextFunction | Index)


def _hash(value: object, code: Callable[[Callable[..., Any]], str]) -> str:
    return sha256(repr(_facts(value, code)).encode()).hexdigest()[:16]


def _facts(value: Any, code: Callable[[Callable[..., Any]], str]) -> object:
    """Return everything that decides about the behaviour of a value, in one form."""
    match value:
        case FeatureDef():
            return shape_of(value), _fields(value, code)
        case EntityDef():
            return value.name, value.id_field, value.id_type, [f for f, _ in value.belongs_to]
        case Codec():
            return value.kind, None if value.convert is None else code(value.convert)
        case msgspec.Struct():
            return type(value).__name__, _fields(value, code)
        case Mapping():
            return [(repr(key), _facts(item, code)) for key, item in value.items()]
        case list() | tuple():
            return [_facts(item, code) for item in value]
        case Set():
            return sorted(repr(_facts(item, code)) for item in value)
        case inspect.Signature() | type():
            return str(value)
        case _ if callable(value):
            return code(value)
    return repr(value)


def _fields(value: msgspec.Struct, code: Callable[[Callable[..., Any]], str]) -> object:
    return [
        (name, _facts(getattr(value, name), code))
        for name in value.__struct_fields__
        if name not in _LEFT_OUT
    ]
