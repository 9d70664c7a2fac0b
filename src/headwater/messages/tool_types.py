"""Definitions of tools as TypeScript types, the form in which OpenAI's models read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headwater.messages.parts import Tool
from headwater.messages.texts import json_text

_WITHOUT_FIELDS = {"title", "description", "properties", "required", "$schema", "$defs"}
"""Keys of an object's schema that say nothing of its fields, if it has no properties."""
_TYPES = {"integer": "number"}


def tool_type(tool: Tool) -> str:
    """Return the type of a function, with the comments and the line after it."""
    schema = _mapping(tool.parameters)
    types = _Types(schema)
    arguments = types.named(schema, "")
    arguments = "" if arguments == "object" else f"_: {arguments}"
    comment = f"// {tool.description}\n" if tool.description else ""
    return f"{comment}type {tool.name} = ({arguments}) => any;\n\n"


class _Types:
    """The types of the parts of a schema; those that it refers to are written out."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._open: list[str] = []
        """The references that are being written out."""

    def named(self, schema: Mapping[str, Any], indent: str) -> str:
        match schema:
            case {"$ref": str(reference)}:
                return self._referred(reference, schema, indent)
            case {"enum": [*values]}:
                return " | ".join(map(json_text, values))
            case {"anyOf": [*options]} | {"oneOf": [*options]}:
                return " | ".join(self.named(_mapping(option), indent) for option in options)
            case {"allOf": [option]}:
                return self.named(_mapping(option), indent)
            case {"properties": {**properties}} if properties:
                return "{\n" + "\n".join(self._fields(schema, indent)) + "\n}"
            case {"type": "array"}:
                return f"{self.named(_mapping(schema.get('items')), indent)}[]"
            case {"type": "object", **rest} if _says_nothing(rest):
                return "object"
            case {"type": str(name)} if name != "object":
                return _TYPES.get(name, name)
        # A schema that has no type of this form is counted as it is.
        return json_text(schema) if schema else "object" if schema is self._root else "any"

    def _referred(self, reference: str, schema: Mapping[str, Any], indent: str) -> str:
        target: object = self._root
        for name in reference.removeprefix("#/").split("/"):
            target = _mapping(target).get(name)
        if not isinstance(target, Mapping) or reference in self._open:
            return json_text(schema)
        self._open.append(reference)
        written = self.named(target, indent)
        self._open.pop()
        return written

    def _fields(self, schema: Mapping[str, Any], indent: str) -> Iterator[str]:
        required = schema.get("required") or ()
        for name, field in _mapping(schema.get("properties")).items():
            field = _mapping(field)
            if field.get("description"):
                yield f"{indent}// {field['description']}"
            mark = "" if name in required else "?"
            yield f"{indent}{name}{mark}: {self.named(field, indent + '  ')},"


def _says_nothing(rest: Mapping[str, Any]) -> bool:
    """Return whether an object's schema says nothing of the fields that it may have."""
    is_open = not isinstance(rest.get("additionalProperties"), Mapping)
    return is_open and rest.keys() <= {*_WITHOUT_FIELDS, "additionalProperties"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
