"""Commands that show what a server does, made of the names that its features file declares."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from headwater.declarations import ContextDef, annotations_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.store.feature_store import FeatureStore

_JSON = "-H 'Content-Type: application/json'"
_ID = "1"
_VALUES: dict[Any, object] = {int: 1, float: 1.5, bool: True}


def suggestions(store: FeatureStore, path: Path, url: str) -> Iterator[str]:
    """Commands to try: an event, a value, a context and its proof, and the graph."""
    declared = runtime_of(store).registry
    file = quote(str(path))
    curl = "curl -H 'X-API-Key: …'" if store.settings.api_keys else "curl"
    features = list(declared.features.values())
    triggered = [feature for feature in features if feature.triggers]
    for event_type in [feature.triggers[0] for feature in triggered[:1]]:
        handlers = [feature for feature in triggered if event_type in feature.triggers]
        body = _text({"entity_id": _ID, "payload": payload_of(*handlers)})
        yield f"{curl} {_JSON} {url}/ingest/{quote(event_type)} -d {quote(body)}"
    for feature in (triggered or features)[:1]:
        yield f"{curl} {quote(f'{url}/v1/features/{feature.name}?entity_id={_ID}')}"
        yield f"headwater features get {feature.name} {_ID} --file {file}"
    for name, params in _callable_contexts(declared)[:1]:
        body = _text({"params": params})
        yield f"{curl} {_JSON} {url}/v1/contexts/{quote(name)} -d {quote(body)}"
        yield f"headwater context list --file {file}"
        yield f"headwater context verify ID --file {file}"
    yield f"headwater graph {file}"


def payload_of(*handlers: FeatureDef) -> dict[str, object]:
    """A payload with the names that the handlers of an event look up in it."""
    payload: dict[str, object] = {}
    for handler in handlers:
        for name, value in _read_by(handler).items():
            # A number can be put into a text, but no text can be added to a number.
            if name not in payload or isinstance(value, int):
                payload[name] = value
    return payload


def _read_by(feature: FeatureDef) -> dict[str, int | str]:
    """The names that one handler looks up, each with a value that its type suggests."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(feature.function)))
    except (OSError, TypeError, SyntaxError):
        return {}  # it has no source, or one that begins in the middle of a line
    returns = annotations_of(feature.function).get("return")
    return {
        name: f"some {name}" if returns is str else 1
        for node in ast.walk(tree)
        for name in _looked_up(node)
    }


def _looked_up(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Subscript(ast.Attribute(attr="payload"), ast.Constant(str(name))):
            yield name


def _callable_contexts(declared: Registry) -> list[tuple[str, dict[str, object]]]:
    """The contexts whose arguments can be thought up, with such arguments."""
    ids = {entity.id_field for entity in declared.entities.values()}
    found = ((name, params_of(context, ids)) for name, context in declared.contexts.items())
    return [(name, params) for name, params in found if params is not None]


def params_of(context: ContextDef, ids: set[str]) -> dict[str, object] | None:
    """Arguments for what a context requires, or None if one is of a kind of its own."""
    kinds = annotations_of(context.function)
    params: dict[str, object] = {}
    for name, parameter in context.signature.parameters.items():
        variable = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variable or parameter.default is not parameter.empty:
            continue
        kind = kinds.get(name, str)
        if kind is str:
            params[name] = _ID if name in ids else f"some {name.replace('_', ' ')}"
        elif kind in _VALUES:
            params[name] = _VALUES[kind]
        else:
            return None
    return params


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
