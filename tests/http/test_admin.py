"""Routes for administrators."""

from __future__ import annotations

import httpx

from headwater import FeatureStore


async def test_the_audit_log_is_read_page_by_page(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await store.admin.rebuild()
    page = (await client.get("/v1/audit-log", params={"limit": 1})).json()
    (entry,) = page["entries"]
    assert (entry["action"], entry["outcome"]) == ("admin.rebuild", "done")
    assert page["next_cursor"] is None
    assert (await client.get("/v1/audit-log", params={"actor": "eve"})).json()["entries"] == []
    refused = await client.get("/v1/audit-log", params={"cursor": "x"})
    assert refused.status_code == 422
    assert "next_cursor" in refused.json()["detail"]
