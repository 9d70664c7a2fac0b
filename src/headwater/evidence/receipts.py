"""Receipts: records for those who assemble elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.contexts import ContextDef
from headwater.errors import InvalidInputError, Location


class Receipt(NamedTuple):
    """A text that was assembled elsewhere."""

    name: str
    content: str
    inputs: Mapping[str, Any]
    model: str | None
    version: str | None
    interaction_ref: Mapping[str, Any] | None


def definition_of(receipt: Receipt) -> ContextDef:
    """A context that is assembled already."""
    if not isinstance(receipt.content, str):
        raise InvalidInputError(f"content is a text, not {type(receipt.content).__name__}")

    async def content(**inputs: object) -> str:
        return receipt.content

    return ContextDef(
        name=receipt.name,
        version=receipt.version,
        function=content,
        is_async=True,
        signature=_signature(receipt.inputs),
        definition=None,
        location=Location("(recorded)", 0),
        description="",
        max_tokens=None,
        freshness_sla=None,
        freshness_strict=False,
        model=receipt.model,
        separator="\n\n",
        on_overflow="error",
        backfill=False,
        timeout=None,
    )


def _signature(inputs: Mapping[str, Any]) -> inspect.Signature:
    keyword = inspect.Parameter.KEYWORD_ONLY
    try:
        return inspect.Signature([inspect.Parameter(name, keyword) for name in inputs])
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            f"{error}; inputs are named like the parameters of a function: letters, digits and _"
        ) from error
