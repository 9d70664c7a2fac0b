"""Consumer groups and their lag."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr


class ConsumerLag(msgspec.Struct, frozen=True):
    """The lag of one partition: owner, number of waiting events, and time of the oldest.

    ``committed`` counts the events that the group has committed; it only grows.
    """

    partition: int
    owner: str | None
    waiting: int
    oldest_at: datetime | None
    committed: int = 0

    __repr__ = short_repr("partition", "owner", "waiting", "oldest_at")


class ConsumerGroup(msgspec.Struct, frozen=True):
    """A consumer group: its live workers, its waiting events, and the time of its last commit.

    ``heartbeats`` are the times of the workers' last heartbeats, in the order of the workers.
    """

    name: str
    workers: Sequence[str]
    waiting: int
    oldest_at: datetime | None
    committed_at: datetime | None
    heartbeats: Sequence[datetime] = ()

    __repr__ = short_repr("name", "workers", "waiting", "oldest_at")


GroupName = Annotated[
    str, Meta(description="The name of a consumer group.", examples=["headwater_workers"])
]


class GroupList(msgspec.Struct, frozen=True):
    """All consumer groups."""

    groups: Sequence[ConsumerGroup]


class LagList(msgspec.Struct, frozen=True):
    """The lag of each partition."""

    partitions: Sequence[ConsumerLag]
