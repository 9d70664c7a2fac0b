"""Types of the fields and parameters of the API, with their limits and examples.

Limits that the store checks are documented here and not checked again: it names the remedy, and a
second check would slow every request down.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from headwater.model.values import INTERNAL, LONGEST_ID, LONGEST_NAME, REDRIVE


def _text(longest: int, **more: object) -> dict[str, object]:
    """Return the schema of printable text; ``format`` names what no pattern expresses."""
    return {"minLength": 1, "maxLength": longest, "format": "printable", **more}


EntityId = Annotated[
    str,
    Meta(
        description="The entity's id: printable text, also if the entity's class annotates int.",
        examples=["ada"],
        extra_json_schema=_text(LONGEST_ID),
    ),
]
EventType = Annotated[
    str,
    Meta(
        description=f"The type of the event, which triggers features; {INTERNAL!r} is reserved.",
        examples=["purchase"],
        extra_json_schema=_text(LONGEST_NAME, pattern=rf"^(?!{INTERNAL[:-1]}\.)"),
    ),
]
EventId = Annotated[
    str,
    Meta(
        description=f"Makes a retry safe; {REDRIVE!r} is reserved. Generated if it is left out.",
        examples=["order-17"],
        extra_json_schema=_text(LONGEST_ID, pattern=rf"^(?!{REDRIVE})"),
    ),
]
EntityIdFilter = Annotated[
    str, Meta(description="Only of the entity with this id.", examples=["ada"])
]
EventTypeFilter = Annotated[
    str, Meta(description="Only of events of this type.", examples=["purchase"])
]
EventIdFilter = Annotated[
    str, Meta(description="Only the event with this id.", examples=["order-17"])
]
FeatureFilter = Annotated[
    str, Meta(description="Only of the feature with this name.", examples=["total_spend"])
]
ExternalName = Annotated[
    str,
    Meta(
        description="The name to record the text under: printable text.",
        examples=["answer"],
        extra_json_schema=_text(LONGEST_NAME),
    ),
]
Moment = Annotated[
    datetime,
    Meta(
        tz=True,
        description="A time with a time zone (RFC 3339), in the years 2 to 9998.",
        examples=["2026-01-15T09:23:12Z"],
    ),
]
ROWS = "rows"
"""Marks a number of rows; the verb that takes it declares how many it may be."""
Limit = Annotated[int, ROWS, Meta(ge=1, description="How many at most.", examples=[20])]
Cursor = Annotated[
    str,
    Meta(
        description="The ``next_cursor`` of the page before; leave it out for the first page.",
        examples=["01a1de13-6731-767b-b9ee-76ce545fa0ef"],
    ),
]
DeclaredName = Annotated[
    str,
    Meta(
        description="The name of a declaration, an event type or a source.",
        examples=["total_spend"],
        min_length=1,
    ),
]
SearchText = Annotated[
    str,
    Meta(
        description="A part of a name, the beginning of an entity's id or of an id or hash of a "
        "record, or a document's id.",
        examples=["spend"],
        extra_json_schema={"minLength": 1, "maxLength": 256, "pattern": r"\S"},
    ),
]
SearchLimit = Annotated[int, Meta(ge=1, le=50, description="How many at most.", examples=[20])]
FeatureName = Annotated[
    str, Meta(description="The name of a declared feature.", examples=["total_spend"], min_length=1)
]
EntityName = Annotated[
    str, Meta(description="The name of a declared entity.", examples=["User"], min_length=1)
]
ContextName = Annotated[
    str, Meta(description="The name of a declared context.", examples=["support"], min_length=1)
]
IndexName = Annotated[
    str, Meta(description="The name of an index.", examples=["help"], min_length=1)
]
RetrieverName = Annotated[
    str,
    Meta(description="The name of a declared retriever.", examples=["search_help"], min_length=1),
]
DocumentId = Annotated[
    str,
    Meta(
        description="The id of a document: printable text. Percent-encode it in a path.",
        examples=["shipping"],
        extra_json_schema=_text(LONGEST_ID),
    ),
]
ContextId = Annotated[
    str,
    Meta(
        description="A context id, at least its first 8 characters, or a record hash.",
        examples=["01a1de13-6731-767b-b9ee-76ce545fa0ef"],
        min_length=1,
    ),
]
OutcomeId = Annotated[
    str,
    Meta(
        description="The id of an outcome.",
        examples=["01a1de13-6731-767b-b9ee-76ce545fa0f0"],
        min_length=1,
    ),
]
RecordHash = Annotated[
    str,
    Meta(
        description="SHA-256 of the core of a record.",
        examples=["sha256:76f754e21eb349382fad06c8dfc87210476e3b06ea1e4a02653d3b39084404d8"],
        extra_json_schema={"pattern": "^sha256:[0-9a-f]{64}$"},
    ),
]
RecordRef = Annotated[
    str,
    Meta(
        description="A record hash, a context id, or at least its first 8 characters.",
        examples=["sha256:76f754e21eb349382fad06c8dfc87210476e3b06ea1e4a02653d3b39084404d8"],
        min_length=1,
    ),
]
DurationText = Annotated[
    str,
    Meta(
        description="A duration of 1 ms or more: a number and ms, s, m, h or d.",
        examples=["5m"],
        extra_json_schema={"pattern": r"^[1-9][0-9]{0,8}(\.[0-9]{1,3})?(ms|s|m|h|d)$"},
    ),
]

Wait = Annotated[
    str,
    Meta(
        description="How long to wait for the events to be visible: 1 ms to 60 s.",
        examples=["2s"],
        extra_json_schema={"pattern": r"^([1-9][0-9]{0,3}ms|([1-9]|[1-5][0-9]|60)s|1m)$"},
    ),
]

_METADATA_NAMES = {"pattern": "^[^$]"}
_WITHOUT_ZERO = {"pattern": r"^[^\u0000]*$"}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _value(
    name: str, description: str, names: dict[str, str], texts: dict[str, str]
) -> dict[str, object]:
    """Return the schema of JSON values whose integers have at most 64 bits.

    A schema cannot limit them without also forbidding `1e300`, which is an integer to it.
    """
    objects = {"type": "object", "additionalProperties": _reference(name), "propertyNames": names}
    return {
        "title": name,
        "description": description,
        "anyOf": [
            {"type": ["null", "boolean", "number", "string"], **texts},
            {"type": "array", "items": _reference(name)},
            objects,
        ],
    }


Payload = Annotated[
    dict[str, Any],
    Meta(
        description="Data for the handlers.",
        examples=[{"amount": 40}],
        extra_json_schema={
            "propertyNames": _WITHOUT_ZERO,
            "additionalProperties": _reference("PayloadValue"),
        },
    ),
]

Metadata = Annotated[
    dict[str, Any],
    Meta(
        description="Data to filter by; names are not empty and do not begin with a dollar.",
        examples=[{"topic": "shipping"}],
        extra_json_schema={
            "propertyNames": _METADATA_NAMES,
            "additionalProperties": _reference("MetadataValue"),
        },
    ),
]

SCHEMAS: dict[str, dict[str, object]] = {
    "PayloadValue": _value(
        "PayloadValue",
        "Any JSON value with integers of 64 bits and texts without U+0000.",
        names=_WITHOUT_ZERO,
        texts=_WITHOUT_ZERO,
    ),
    "MetadataValue": _value(
        "MetadataValue",
        "Any JSON value with integers of 64 bits, and names as in metadata.",
        names=_METADATA_NAMES,
        texts={},
    ),
}
"""Schemas that the types above refer to and that no Struct has."""
