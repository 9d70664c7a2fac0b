"""The routes that show how a store is and was in the last hour."""

from typing import Any

import httpx

from headwater import FeatureStore
from tests.http.conftest import Serving, wait_until


async def test_a_server_has_a_series_from_its_start(store: FeatureStore, serving: Serving) -> None:
    async with serving(store) as client:

        async def is_sampled() -> bool:
            return bool((await series_of(client))["waiting"][-1] == 0)

        await wait_until(is_sampled)
        series = await series_of(client)
        assert series["step_seconds"] == 10
        lengths = {len(each) for each in series.values() if isinstance(each, list)}
        assert lengths == {360}


async def series_of(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/v1/series")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body
