"""The tools of contexts: their names, and the schemas of their parameters."""

from typing import Any, Literal

import msgspec
import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.mcp.context_tools import context_tools
from headwater.settings.schema import Settings


class Place(msgspec.Struct):
    city: str
    zip_code: int | None = None


class Opaque:
    """A class without a JSON form."""


def schema_of(declare: Any) -> dict[str, Any]:
    store = FeatureStore(settings=Settings())
    context(store)(declare)
    (tool,) = context_tools(store)
    return tool.input_schema


def test_annotations_become_schemas_with_defaults() -> None:
    def support(
        user_id: int,
        place: Place,
        order: Literal["new", "old"] = "new",
        anything: Any = None,
        opaque: Opaque | None = None,
    ) -> list[ContextItem]:
        return []

    schema = schema_of(support)
    assert schema["required"] == ["user_id", "place"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["user_id"] == {"type": "integer"}
    assert properties["order"] == {"enum": ["new", "old"], "default": "new"}
    assert properties["place"] == {"$ref": "#/$defs/Place"}
    assert properties["anything"] == {"default": None}
    assert schema["$defs"]["Place"]["required"] == ["city"]


def test_parameters_without_names_are_lists_and_free_members() -> None:
    def support(*questions: str, **facts: int) -> list[ContextItem]:
        return []

    schema = schema_of(support)
    assert schema["properties"] == {"questions": {"type": "array", "items": {"type": "string"}}}
    assert schema["required"] == []
    assert schema["additionalProperties"] == {"type": "integer"}


@pytest.mark.parametrize("name", ["größe", "c" * 57])
def test_a_name_that_hosts_refuse_has_no_tool(name: str) -> None:
    store = FeatureStore(settings=Settings())

    def support() -> list[ContextItem]:
        return []

    support.__name__ = name
    context(store)(support)
    assert context_tools(store) == []
