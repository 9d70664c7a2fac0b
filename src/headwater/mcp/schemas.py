"""JSON schemas of the arguments and results of tools."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from headwater.core.json_values import plain
from headwater.declarations.contexts import ContextDef
from headwater.declarations.function_checks import annotations_of

_REF = "#/$defs/{name}"


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the schema of a Struct, with an object at its root as the protocol demands."""
    (root,), definitions = msgspec.json.schema_components([kind], ref_template=_REF)
    own = definitions.pop(root["$ref"].rpartition("/")[2])
    return {**own, "$defs": definitions} if definitions else own


def parameters_schema(context: ContextDef) -> dict[str, Any]:
    """Return the schema of the parameters of a context's function."""
    kinds = annotations_of(context.function)
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    others: Any = False
    declared = context.signature.parameters
    for name, parameter in declared.items():
        schema = _annotation_schema(kinds.get(name, Any), definitions)
        if parameter.kind is parameter.VAR_KEYWORD:
            others = schema
        elif parameter.kind is parameter.VAR_POSITIONAL:
            properties[name] = {"type": "array", "items": schema}
        else:
            properties[name] = {**schema, **_default(parameter)}
    required = [name for name in properties if _is_required(declared[name])]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": others,
        **({"$defs": definitions} if definitions else {}),
    }


def _is_required(parameter: inspect.Parameter) -> bool:
    is_positional = parameter.kind is parameter.VAR_POSITIONAL
    return parameter.default is parameter.empty and not is_positional


def _annotation_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    try:
        (schema,), components = msgspec.json.schema_components([kind], ref_template=_REF)
    except TypeError:
        return {}  # the annotation has no JSON form; calls accept any value for it
    definitions |= components
    return schema


def _default(parameter: inspect.Parameter) -> dict[str, Any]:
    if parameter.default is parameter.empty:
        return {}
    try:
        return {"default": msgspec.to_builtins(plain(parameter.default), str_keys=True)}
    except TypeError:
        return {}
