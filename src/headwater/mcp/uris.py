"""Addresses of resources: records, recorded contexts and the declarations."""

from __future__ import annotations

from urllib.parse import quote, unquote

DECLARATIONS = "headwater://declarations"
RECORD_TEMPLATE = "headwater://record/{hash}"
CONTEXT_TEMPLATE = "headwater://context/{id}"

_RECORD = RECORD_TEMPLATE.removesuffix("{hash}")
_CONTEXT = CONTEXT_TEMPLATE.removesuffix("{id}")


def context_uri(context_id: str) -> str:
    """Return the address of a recorded context."""
    return _CONTEXT + quote(context_id, safe="")


def reference_in(uri: str) -> tuple[str, str] | None:
    """Return ``record`` or ``context`` and the reference in an address, or None if it has none."""
    for kind, prefix in (("record", _RECORD), ("context", _CONTEXT)):
        if uri.startswith(prefix):
            return kind, unquote(uri.removeprefix(prefix))
    return None
