"""The table of consumer groups, and the age of a time."""

from collections.abc import Sequence
from datetime import datetime

from headwater.cli.output import span_text
from headwater.model.admin import ConsumerGroup

GROUP_COLUMNS = ("group", "workers", "waiting", "oldest", "last commit")


def group_rows(groups: Sequence[ConsumerGroup], now: datetime) -> list[tuple[object, ...]]:
    """Return the rows of the table of consumer groups."""
    return [
        (
            group.name,
            len(group.workers),
            group.waiting,
            span_text(age_ms(group.oldest_at, now)),
            span_text(age_ms(group.committed_at, now)),
        )
        for group in groups
    ]


def age_ms(since: datetime | None, now: datetime) -> int | None:
    """Return the age of a time; not negative, even if the server's clock is ahead."""
    return None if since is None else max(0, int((now - since).total_seconds() * 1000))
