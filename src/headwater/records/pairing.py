"""Which things of two lists belong together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

Identity = Callable[[T], Hashable | None]
"""What makes something the same on both sides; None where nothing does."""


def pairs_of(
    before: Sequence[T], after: Sequence[T], *identities: Identity[T]
) -> list[tuple[T | None, T | None]]:
    """What belongs together by the first identity that both share; the rest stands alone."""
    partners: dict[int, int] = {}
    for identity in identities:
        waiting = _waiting(after, set(partners.values()), identity)
        for place, thing in enumerate(before):
            places = None if place in partners else waiting.get(identity(thing))
            if places:
                partners[place] = places.pop(0)
    taken = set(partners.values())
    return [
        *((one, after[partners[n]] if n in partners else None) for n, one in enumerate(before)),
        *((None, other) for place, other in enumerate(after) if place not in taken),
    ]


def _waiting(
    things: Sequence[T], taken: Collection[int], identity: Identity[T]
) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for place, thing in enumerate(things):
        key = identity(thing)
        if place not in taken and key is not None:
            places.setdefault(key, []).append(place)
    return places
