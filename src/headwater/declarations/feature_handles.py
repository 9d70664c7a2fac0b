"""Declared features as Python objects: call them, or read and set their values."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError

Id = TypeVar("Id", str, int)
P = ParamSpec("P")
Plain = TypeVar("Plain", int, float, str)
R = TypeVar("R")
T = TypeVar("T")


class FeatureAccess(Protocol):
    """The verbs of a store that a feature handle calls."""

    def get_feature(self, name: str, entity_id: str | int) -> Coroutine[Any, Any, Any]: ...

    async def get_features(
        self, names: Sequence[str], entity_ids: Sequence[Id]
    ) -> dict[Id, dict[str, Any]]: ...

    async def set_feature(
        self, name: str, entity_id: str | int, value: object, *, as_of: datetime | None = None
    ) -> None: ...


class Feature(Generic[T]):
    """A declared feature with values of type ``T``."""

    def __init__(self, store: FeatureAccess, definition: FeatureDef) -> None:
        self._store = store
        self.definition = definition
        self.name = definition.name

    def get(self, entity_id: str | int) -> Coroutine[Any, Any, T | None]:
        """Return the value for one entity; None if there is none.

        >>> await total_spend.get("ada")
        25.0
        """
        return self._store.get_feature(self.name, entity_id)

    async def get_many(self, entity_ids: Sequence[Id]) -> dict[Id, T | None]:
        """Return the values for many entities in one round trip.

        >>> await total_spend.get_many(["ada", "bob"])
        {'ada': 25.0, 'bob': None}
        """
        rows = await self._store.get_features([self.name], entity_ids)
        return {entity_id: row[self.name] for entity_id, row in rows.items()}

    async def set(self, entity_id: str | int, value: T, *, as_of: datetime | None = None) -> None:
        """Write a value, online and to history; ``FeatureStore.set_feature`` has the details.

        >>> await total_spend.set("ada", 30.0)
        >>> await total_spend.get("ada")
        30.0
        """
        await self._store.set_feature(self.name, entity_id, value, as_of=as_of)

    def __repr__(self) -> str:
        return f"<feature {self.name!r} at {self.definition.location}>"

    def _repr_html_(self) -> str:
        """Return the feature and its options as HTML, which notebooks show."""
        from headwater.declarations.declared_html import (  # noqa: PLC0415 - only in notebooks
            feature_html,
        )

        return feature_html(self.definition)


class FeatureFunction(Feature[T], Generic[T, P, R]):
    """A declared feature that calls its function directly, for a plain unit test."""

    __name__: str

    def __init__(self, store: FeatureAccess, definition: FeatureDef) -> None:
        update_wrapper(self, definition.function)
        super().__init__(store, definition)
        self.function: Callable[P, R] = definition.function
        self.members: dict[tuple[str, str], Feature[Any]] = {}
        """The features of a family of windows, by aggregate and window."""

    @overload
    def __getitem__(self, key: tuple[Literal["count", "distinct"], str]) -> Feature[int]: ...

    @overload
    def __getitem__(self, key: tuple[Literal["avg", "stddev", "rate"], str]) -> Feature[float]: ...

    @overload
    def __getitem__(
        self: FeatureFunction[Plain, ..., Any], key: tuple[Literal["sum", "min", "max"], str]
    ) -> Feature[Plain]: ...

    @overload
    def __getitem__(
        self: FeatureFunction[Plain | None, ..., Any],
        key: tuple[Literal["sum", "min", "max"], str],
    ) -> Feature[Plain]: ...

    @overload
    def __getitem__(self, key: tuple[str, str]) -> Feature[Any]: ...

    def __getitem__(self, key: tuple[str, str]) -> Feature[Any]:
        """Return a feature of a family of windows, by its aggregate and its window.

        >>> spend["sum", "1h"].name
        'spend_sum_1h'
        """
        if key in self.members:
            return self.members[key]
        if not self.members:
            raise InvalidInputError(f"feature {self.name!r} has no windows; declare window=")
        keys = ", ".join(f"[{aggregate!r}, {window!r}]" for aggregate, window in self.members)
        asked = list(key) if isinstance(key, tuple) else [key]
        raise InvalidInputError(f"{self.name!r} has no {asked!r}; it has {keys}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function; nothing is stored."""
        return self.function(*args, **kwargs)


class FeatureDecorator(Protocol):
    """The second call of ``@feature(…)``: takes the function, returns its handle."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T]], /
    ) -> FeatureFunction[T, P, Coroutine[Any, Any, T]]: ...

    @overload
    def __call__(self, function: Callable[P, T], /) -> FeatureFunction[T, P, T]: ...


FeatureRef = str | Feature[Any]
"""A feature, by its name or as its handle."""


def feature_name(feature: FeatureRef) -> str:
    """Return the name of a feature."""
    return feature.name if isinstance(feature, Feature) else feature


def check_sequences(names: Sequence[FeatureRef], entity_ids: Sequence[str | int]) -> None:
    """Refuse a string in place of a list of names or ids."""
    if isinstance(names, str) or isinstance(entity_ids, str):
        value = reprlib.repr(names if isinstance(names, str) else entity_ids)
        raise InvalidInputError(f"{value} is a string; pass a list, such as [{value}]")
