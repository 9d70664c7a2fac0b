"""Links from responses to the requests that can follow, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

_READ = {"id": "$response.body#/context_id"}
_ASSEMBLED = {
    "read_context": _READ,
    "read_lineage": _READ,
    "explain_context": _READ,
    "read_causes": _READ,
    "read_record": {"ref": "$response.body#/record_hash"},
}
_FIRST_LISTED = {
    "read_context": {"id": "$response.body#/contexts/0/context_id"},
    "read_record": {"ref": "$response.body#/contexts/0/record_hash"},
}
_DOCUMENT = {"index": "$response.body#/index", "document": "$response.body#/document"}

LINKS: dict[str, dict[str, dict[str, str]]] = {
    "list_declarations": {
        "read_feature": {"name": "$response.body#/features/0/name"},
        "assemble_context": {"name": "$response.body#/contexts/0/name"},
        "search_index": {"index": "$response.body#/indexes/0/name"},
    },
    "ingest_event": {
        "read_feature": {"entity_id": "$response.body#/entity_id"},
        "read_history": {"entity_id": "$response.body#/entity_id"},
    },
    "assemble_context": _ASSEMBLED,
    "assemble": _ASSEMBLED,
    "list_contexts": {
        **_FIRST_LISTED,
        "list_contexts": {"cursor": "$response.body#/next_cursor"},
    },
    "find_contexts": _FIRST_LISTED,
    "read_context": {
        "read_lineage": {"id": "$response.body#/context_id"},
        "explain_context": {"id": "$response.body#/context_id"},
        "read_record": {"ref": "$response.body#/record_hash"},
    },
    "index_document": {
        "read_document": _DOCUMENT,
        "remove_document": _DOCUMENT,
        "search_index": {"index": "$response.body#/index"},
    },
    "list_indexes": {"search_index": {"index": "$response.body#/indexes/0/name"}},
}
"""Operations that follow each operation, and where their parameters are in its response."""


def links_of(operation: str) -> dict[str, Any]:
    """Return the links of an operation's response."""
    return {
        target: {"operationId": target, "parameters": parameters}
        for target, parameters in LINKS.get(operation, {}).items()
    }
