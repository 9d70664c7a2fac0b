"""Receipts: records for those who assemble elsewhere."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, NamedTuple

from headwater.core.values import LONGEST_NAME
from headwater.declarations import ContextDef, reference
from headwater.declarations.contexts import is_text
from headwater.errors import InvalidInputError
from headwater.errors.hints import Location


class ExternalContext(NamedTuple):
    """A text that was assembled elsewhere."""

    name: str
    content: str
    inputs: Mapping[str, Any]
    model: str | None
    version: str | None
    interaction_ref: Mapping[str, Any] | None


def definition_of(receipt: ExternalContext) -> ContextDef:
    """A context that is assembled already."""
    _check(receipt)

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


def _check(receipt: ExternalContext) -> None:
    """Refuses what the record of it could not say."""
    name, inputs = receipt.name, receipt.inputs
    if type(name) is not str or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidInputError(
            f"name is {reprlib.repr(name)}; give printable text of 1 to {LONGEST_NAME} characters"
        )
    if not is_text(receipt.content):
        raise InvalidInputError(f"content is a text, {_not(receipt.content)}")
    for option, given in (("model", receipt.model), ("version", receipt.version)):
        if given is not None and not is_text(given):
            raise InvalidInputError(f"{option} is a text or None, {_not(given)}")
    if not isinstance(inputs, Mapping):
        raise InvalidInputError(
            f"inputs are a mapping such as {{'question': …}}, not {type(inputs).__name__}"
        )
    reference(receipt.interaction_ref)


def _not(given: object) -> str:
    kind = "one with a lone surrogate" if type(given) is str else type(given).__name__
    return f"not {kind}"


def _signature(inputs: Mapping[str, Any]) -> inspect.Signature:
    for name in inputs:
        if type(name) is not str or not name.isidentifier() or iskeyword(name):
            raise InvalidInputError(
                f"{name!r} is no name of an input; inputs are named like the parameters of a "
                "function: letters, digits and _"
            )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, keyword) for name in inputs])
