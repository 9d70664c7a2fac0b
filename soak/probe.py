"""Single requests to the server, next to the load."""

from __future__ import annotations

import time

import httpx

from headwater import ServiceEvent
from headwater.client import AsyncClient
from soak.mix import ARTICLES, USERS, article, purchase

_CONTEXTS = 50


class Probe:
    """A request that does nothing, to measure how long the event loop lets it wait."""

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=30.0)

    async def seconds(self) -> float:
        """Return how long the request took."""
        began = time.perf_counter()
        (await self._client.get("/healthz")).raise_for_status()
        return time.perf_counter() - began

    async def close(self) -> None:
        await self._client.aclose()


async def fill(client: AsyncClient) -> list[str]:
    """Publish an event of each user, index the articles; return ids of recorded contexts."""
    events = [ServiceEvent(**purchase(f"u{number}")) for number in range(USERS)]
    await client.bus.publish_many(events)
    for number in range(ARTICLES):
        await client.index("articles", f"a{number}", article(number))
    asked = [
        await client.assemble("support", {"user_id": f"u{number}", "question": article(number)})
        for number in range(_CONTEXTS)
    ]
    return [each.context_id for each in asked]


async def waiting_events(client: AsyncClient) -> int:
    """Return the number of events that are not handled yet."""
    return sum(each.waiting for each in await client.admin.lag())
