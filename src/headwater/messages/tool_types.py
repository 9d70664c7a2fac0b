"""Definitions of tools as TypeScript types, the form in which OpenAI's models read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.messages.parts import Tool
from headwater.messages.texts import json_text

_TYPES = {"integer": "number"}


def tool_type(tool: Tool) -> str:
    """Return the type of a function, with the comments and the line after it."""
    schema = tool.parameters if isinstance(tool.parameters, Mapping) else {}
    arguments = "_: {\n" + "\n".join(_fields(schema)) + "\n}" if schema.get("properties") else ""
    comment = f"// {tool.description}\n" if tool.description else ""
    return f"{comment}type {tool.name} = ({arguments}) => any;\n\n"


def _fields(schema: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    required = schema.get("required") or ()
    for name, field in _mapping(schema.get("properties")).items():
        field = _mapping(field)
        if field.get("description"):
            yield f"{indent}// {field['description']}"
        mark = "" if name in required else "?"
        yield f"{indent}{name}{mark}: {_type(field, indent + '  ')},"


def _type(schema: Mapping[str, Any], indent: str) -> str:
    match schema:
        case {"enum": [*values]}:
            return " | ".join(map(json_text, values))
        case {"type": "object", "properties": {**properties}} if properties:
            return "{\n" + "\n".join(_fields(schema, indent)) + "\n}"
        case {"type": "array"}:
            return f"{_type(_mapping(schema.get('items')), indent)}[]"
        case {"type": str(name)}:
            return _TYPES.get(name, name)
    # A schema that has no type of this form is counted as it is.
    return json_text(schema) if schema else "any"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
