"""Families of windows: which part of a contribution counts in which windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
from msgspec.inspect import (
    CollectionType,
    DataclassType,
    DictType,
    NamedTupleType,
    StructType,
    TypedDictType,
    type_info,
)

from headwater.core.codec import decode_custom, encode_custom
from headwater.windows.plan import Aggregate, Member, Window, WindowPlan


class WindowDef(msgspec.Struct, frozen=True):
    """The windows of a family, and which part of a contribution counts in them."""

    plan: WindowPlan
    members: tuple[str, ...]
    """The names of its features."""
    value: str | None = None
    by: str | None = None
    selects: Callable[[Any], bool] | None = None
    """Returns whether a contribution counts; None if all do."""
    value_form: Callable[[Any], Any] | None = None
    """Gives equal values one form, of those in JSON: 5 and 5.0, or one moment in two zones."""
    by_form: Callable[[Any], Any] | None = None
    defaults: Mapping[str, Any] | None = None
    """What a contribution has that is older than a field of its class."""
    filters: Mapping[str, Any] | None = None
    """``where`` as it was declared."""

    @property
    def all_members(self) -> list[Member]:
        """Its features for the kernel, in the order of their names."""
        plan = self.plan
        return [Member(window, a) for window in plan.windows for a in plan.aggregates]

    def taken(self, contribution: Any) -> tuple[Any, str | None] | None:
        """Return the value of a contribution, in plain JSON types, and its key; None if none."""
        if self.defaults is not None:
            contribution = {**self.defaults, **contribution}
        if self.selects is not None and not self.selects(contribution):
            return None
        value = contribution if self.value is None else contribution.get(self.value)
        if value is None:
            return None
        if self.value_form is not None:
            value = self.value_form(value)
        if self.by is None:
            return value, None
        key = contribution.get(self.by)
        return value, _key(key if key is None or self.by_form is None else self.by_form(key))


class WindowMember(msgspec.Struct, frozen=True):
    """What a feature of a family is: one aggregate of one window."""

    family: str
    window: Window
    aggregate: Aggregate
    of: WindowDef
    """The windows of the family."""

    @property
    def member(self) -> Member:
        """The same for the kernel."""
        return Member(self.window, self.aggregate)


def form_of(kind: Any) -> Callable[[Any], Any] | None:
    """Return what gives equal values of a type one form; None if they have one in JSON."""
    if kind in _FORMS:
        return _FORMS[kind]
    return partial(_ordered, kind) if isinstance(type_info(kind), _SEVERAL_FORMS) else None


def _moment(text: str) -> str:
    return str(msgspec.to_builtins(msgspec.convert(text, datetime).astimezone(UTC)))


def _number(text: str | float) -> str:
    return format(Decimal(str(text)).normalize(), "f")


def _ordered(kind: Any, value: Any) -> Any:
    """Return a value with the members of its sets in one order, and numbers of its types."""
    try:
        typed = msgspec.convert(value, kind, str_keys=True, dec_hook=decode_custom)
    except msgspec.ValidationError:  # from before the type was changed
        return value
    return msgspec.to_builtins(typed, order="deterministic", str_keys=True, enc_hook=encode_custom)


_FORMS: Mapping[Any, Callable[[Any], Any] | None] = {
    **dict.fromkeys((int, str, bool, Any)),
    float: float,
    datetime: _moment,
    Decimal: _number,
}
_SEVERAL_FORMS = (
    CollectionType,
    DictType,
    DataclassType,
    StructType,
    TypedDictType,
    NamedTupleType,
)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
