"""Outcomes over HTTP: a client imports and exports like the store."""

from __future__ import annotations

import pytest

from headwater import FeatureStore
from headwater.client import AsyncClient
from headwater.errors import InvalidInputError


async def test_a_client_imports_and_exports_like_the_store(
    store: FeatureStore, client: AsyncClient
) -> None:
    made = await client.assemble("support", {"user_id": "ada"})
    table = f"context_id,score,value\n{made.context_id},helpful,4\n{made.context_id},helpful,x\n"
    report = await client.records.import_outcomes(table, format="csv")
    assert (report.added, report.failed, report.problems[0].line) == (1, 1, 3)
    exported = await client.records.export_outcomes(made.context_id)
    assert exported.count("gen_ai.evaluation.result") == 1
    again = await client.records.import_outcomes(exported, format="otlp")
    assert (again.added, again.known) == (0, 1)
    with pytest.raises(InvalidInputError, match="not a document of this format"):
        await client.records.import_outcomes("nothing", format="otlp")
    assert await store.records.export_outcomes(made.context_id) == exported
