"""Lists of recorded contexts, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from headwater.model.contexts import LARGEST_PAGE, ContextPage, RecordSummary


async def all_contexts(
    read_page: Callable[..., Awaitable[ContextPage]],
) -> AsyncIterator[RecordSummary]:
    """Yield the contexts of all pages; ``read_page`` gets ``limit`` and ``cursor``."""
    cursor: str | None = None
    while True:
        page = await read_page(limit=LARGEST_PAGE, cursor=cursor)
        for context in page.contexts:
            yield context
        cursor = page.next_cursor
        if cursor is None:
            return
