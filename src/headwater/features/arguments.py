"""The arguments of a call: bound to parameters, and copied for the record."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from headwater.core.canonical_json import child, to_tagged
from headwater.declarations import ContextDef, RetrieverDef
from headwater.errors import InvalidInputError
from headwater.features.read_tracking import IMMUTABLE


def bind(
    definition: ContextDef | RetrieverDef, arguments: Sequence[Any], named: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments by the names of their parameters, defaults included."""
    try:
        bound = definition.signature.bind(*arguments, **named)
    except TypeError as error:
        raise InvalidInputError(f"{definition.name!r}: {error}") from error
    bound.apply_defaults()
    return bound


def recordable(values: Mapping[str, Any], pointer: str) -> dict[str, Any]:
    """Return copies of the values; raise RecordValueError for one that a record cannot hold.

    A function may change the arguments that it gets; the record has them as they were.
    """
    for name, value in values.items():
        to_tagged(value, child(pointer, name))
    return {
        name: value if type(value) in IMMUTABLE else deepcopy(value)
        for name, value in values.items()
    }
