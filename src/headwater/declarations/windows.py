"""Families of windows: which part of a contribution counts in which windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

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
    is_float: bool = False
    is_time: bool = False
    """Whether values are moments, of which each has several texts."""
    filters: Mapping[str, Any] | None = None
    """``where`` as it was declared."""

    @property
    def all_members(self) -> list[Member]:
        """Its features for the kernel, in the order of their names."""
        plan = self.plan
        return [Member(window, a) for window in plan.windows for a in plan.aggregates]

    def taken(self, contribution: Any) -> tuple[Any, str | None] | None:
        """Return the value of a contribution, in plain JSON types, and its key; None if none."""
        if self.selects is not None and not self.selects(contribution):
            return None
        value = contribution if self.value is None else contribution.get(self.value)
        if value is None:
            return None
        if self.is_float:
            value = float(value)
        elif self.is_time:
            value = _moment(value)
        return value, None if self.by is None else _key(contribution.get(self.by))


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


def _moment(text: str) -> str:
    """Return the one text of a moment, in whatever zone and form history has it."""
    return str(msgspec.to_builtins(msgspec.convert(text, datetime).astimezone(UTC)))


def _key(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
