"""Records of contexts that other programs assembled."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Mapping
from keyword import iskeyword
from typing import Any, NamedTuple

from headwater.declarations.contexts import ContextDef, is_text, reference
from headwater.errors import InvalidInputError
from headwater.errors.hints import Location
from headwater.model.values import LONGEST_NAME

EXTERNAL = Location("(recorded)", 0)
"""The place of a context that is not declared."""


class ExternalContext(NamedTuple):
    """A text that another program assembled, and its inputs."""

    name: str
    content: str
    inputs: Mapping[str, Any]
    model: str | None
    version: str | None
    interaction_ref: Mapping[str, Any] | None


def definition_of(external: ExternalContext) -> ContextDef:
    """Return the definition of a context whose function returns the text."""
    _check(external)

    async def content(**inputs: object) -> str:
        return external.content

    return ContextDef(
        name=external.name,
        version=external.version,
        function=content,
        is_async=True,
        signature=_signature(external.inputs),
        location=EXTERNAL,
        model=external.model,
    )


def _check(external: ExternalContext) -> None:
    """Raise `InvalidInputError` for values that a record cannot hold."""
    name, inputs = external.name, external.inputs
    if type(name) is not str or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidInputError(
            f"name is {reprlib.repr(name)}; give printable text of 1 to {LONGEST_NAME} characters"
        )
    if not is_text(external.content):
        raise InvalidInputError(f"content must be text, {_not(external.content)}")
    for option, value in (("model", external.model), ("version", external.version)):
        if value is not None and not is_text(value):
            raise InvalidInputError(f"{option} must be text or None, {_not(value)}")
    if not isinstance(inputs, Mapping):
        raise InvalidInputError(
            f"inputs must be a mapping such as {{'question': …}}, not {type(inputs).__name__}"
        )
    reference(external.interaction_ref)


def _not(value: object) -> str:
    kind = "one with a lone surrogate" if type(value) is str else type(value).__name__
    return f"not {kind}"


def _signature(inputs: Mapping[str, Any]) -> inspect.Signature:
    for name in inputs:
        if type(name) is not str or not name.isidentifier() or iskeyword(name):
            raise InvalidInputError(
                f"{name!r} is not a valid name of an input; use a Python identifier: letters, "
                "digits and _"
            )
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([inspect.Parameter(name, keyword) for name in inputs])
