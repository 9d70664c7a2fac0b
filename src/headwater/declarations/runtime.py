"""How Headwater's own packages reach the internals of a FeatureStore."""

from __future__ import annotations

from typing import Protocol, TypeVar

R_co = TypeVar("R_co", covariant=True)


class HasRuntime(Protocol[R_co]):
    """A FeatureStore, as the layers below it know it."""

    @property
    def _runtime(self) -> R_co: ...


def runtime_of(store: HasRuntime[R_co]) -> R_co:
    """Return the internals of a store; not part of the public API."""
    return store._runtime  # noqa: SLF001
