"""Match the elements of two lists by identity. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

Identity = Callable[[T], Hashable | None]
"""Returns the identity of an element, or None if it has none of this kind."""


def pairs_of(
    before: Sequence[T], after: Sequence[T], *identities: Identity[T]
) -> list[tuple[T | None, T | None]]:
    """Pair elements by the first identity that both share; unmatched ones pair with None."""
    partners: dict[int, int] = {}
    for identity in identities:
        unmatched = _unmatched(after, set(partners.values()), identity)
        for place, element in enumerate(before):
            places = None if place in partners else unmatched.get(identity(element))
            if places:
                partners[place] = places.pop(0)
    taken = set(partners.values())
    return [
        *((one, after[partners[n]] if n in partners else None) for n, one in enumerate(before)),
        *((None, other) for place, other in enumerate(after) if place not in taken),
    ]


def _unmatched(
    elements: Sequence[T], taken: Collection[int], identity: Identity[T]
) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, element in enumerate(elements):
        key = identity(element)
        if place not in taken and key is not None:
            places.setdefault(key, []).append(place)
    return places
