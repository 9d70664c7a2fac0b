"""The short forms of a store and its results, and a context's form in a notebook."""

from __future__ import annotations

from datetime import UTC, datetime

from headwater import ContextItem, FeatureStore, ServiceEvent, Settings
from headwater.testing import ManualClock, temporary

store = FeatureStore(settings=Settings())


@store.entity
class User:
    user_id: str


@store.feature(User, ttl="5m", default=0)
def visits(user_id: str) -> int:
    return 1


@store.feature(User, trigger="login", max_retries=0)
def name(user_id: str, event: ServiceEvent) -> str:
    return str(event.payload["name"])


@store.context(max_tokens=400, freshness_sla="1h", allow_looser="max_tokens")
async def page(user_id: str) -> list[ContextItem]:
    await visits.get(user_id)
    return [ContextItem(f"<b>{user_id}</b> & co", required=True)]


async def test_a_store_and_its_results_have_a_short_repr() -> None:
    assert repr(store) == f"<FeatureStore in {store.settings.home!r}: features=2, contexts=1>"
    assert repr(ContextItem("Hi", required=True)) == "ContextItem(content='Hi', required=True)"
    async with temporary(store):
        made = await page("ada")
        ref, tokens = made.context_id, made.tokens
        state = f"{tokens} tokens, guaranteed"
        assert repr(made) == f"<Context 'page' {ref}: {state}>"
        assert repr(await store.get_context_at(ref)) == f"<PastContext 'page' {ref}: {state}>"
        assert repr(await store.records.explain(ref)) == f"<ContextTrace 'page' {ref}: {state}>"
        assert repr(await store.list_contexts()) == "<ContextPage contexts=1, the last page>"
        assert repr(await store.replay(ref)) == f"<Replay 'show' of {ref}: same text>"
        assert repr(await store.records.verify(ref)).startswith("<VerificationReport ok: ")
        difference = await store.records.diff(ref, ref)
        assert repr(difference) == f"<ContextDiff {ref} → {ref}: same text, +0 tokens>"


async def test_results_that_are_not_contexts_have_a_short_repr_too() -> None:
    clock = ManualClock(datetime(2026, 1, 15, 12, tzinfo=UTC))
    async with temporary(store, clock=clock):
        assert repr(store.sync) == f"<SyncStore of {store!r}>"
        (row,) = await store.get_feature_values([visits], ["ada"])
        at = "2026-01-15T12:00:00+00:00"
        assert repr(row["visits"]) == f"<FeatureValue value=1 as_of={at} source='computed'>"
        lineage = (await page("ada")).lineage
        assert repr(lineage).startswith("<ContextLineage items_included=1 items_dropped=0 tokens=")
        lag = "<ConsumerLag partition=0 owner=None waiting=0 oldest_at=None>"
        assert repr((await store.admin.lag())[0]) == lag
        assert repr((await store.admin.health())[0]).startswith("<Health name='")
        assert repr(await store.admin.rebuild()) == "<RebuildReport entity_ids=1 values=1>"
        audit = "<AuditReport entity_ids=1 values=0 differences=[] complete=True>"
        assert repr(await store.admin.audit()) == audit
        await store.publish("login", "ada", {"secret": "s"})
        await store.drain()
        (letter,) = await store.dead_letters.list()
        start = f"<DeadLetter id='{letter.id}' feature='name' error=\"KeyError: 'name'\" attempts="
        assert repr(letter).startswith(start)
        assert "\n" not in repr(letter)


async def test_a_notebook_shows_the_escaped_text_the_budget_and_the_freshness() -> None:
    async with temporary(store):
        made = await page("ada")
        html = made._repr_html_()
        assert "&lt;b&gt;ada&lt;/b&gt; &amp; co" in html
        assert "<b>ada</b>" not in html
        assert f"{made.tokens} of 400 tokens" in html
        assert "freshness guaranteed" in html
        unlimited = await page.options(max_tokens=None)("ada")
        assert f"{unlimited.tokens} tokens" in unlimited._repr_html_()
