"""Outcomes of contexts: answers, scores, corrections and errors, in each environment."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from headwater import Context, ContextItem, Message, Response, Score, Usage, context
from headwater.errors import (
    InvalidInputError,
    OutcomeError,
    RedactionError,
    ReplayWriteError,
    UnknownContextError,
    UnknownOutcomeError,
)
from headwater.messages.parts import Blob, TextPart, ToolCall
from headwater.testing import ManualClock
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop

pytestmark = pytest.mark.both_environments

ANSWER = "It arrives on Friday."
RATES = {"prices": {"gpt-4o": {"input": 2_000_000, "output": 8_000_000, "cache_read": 1_000_000}}}


async def chat(shop: Shop) -> Context:
    """A context of messages, whose request is counted as a whole."""

    @context(shop.store, model="gpt-4o")
    async def chat() -> list[ContextItem]:
        return [ContextItem("Be brief.", role="system"), ContextItem("Where is it?", role="user")]

    return await chat()


async def test_all_kinds_of_outcomes_are_read_with_their_context(opens: Opens) -> None:
    shop = opens(**RATES)
    ctx = await chat(shop)
    usage = Usage(input=50, output=10, cache_read=20, raw={"prompt_tokens": 50})
    answer = await ctx.add_outcome(answer=ANSWER, model="gpt-4o", usage=usage)
    score = await ctx.add_outcome(score="helpful", value=4, judge="human", actor="ada")
    correction = await ctx.add_outcome(correction="It arrives on Monday.")
    error = await ctx.add_outcome(error="RateLimitError", model="gpt-4o")
    records = shop.store.records
    listed = await records.outcomes(ctx.context_id[:13])
    assert listed == [answer, score, correction, error]
    assert [outcome.kind for outcome in listed] == ["response", "score", "correction", "error"]
    assert {outcome.record_hash for outcome in listed} == {ctx.record_hash}
    assert answer.response is not None
    assert answer.response.messages[0].text == ANSWER
    assert answer.response.usage == usage
    assert answer.predicted == ctx.tokens
    # 30 uncached, 20 cached and 10 of output, in nano-USD per million.
    assert answer.cost_nano_usd == 60 + 20 + 80
    assert score.predicted is None
    assert score.score == Score(name="helpful", value=4)
    assert (score.actor, score.judge) == ("ada", "human")
    assert error.response == Response(error_type="RateLimitError", model="gpt-4o")
    assert (await shop.store.get_context_at(ctx.context_id)).outcomes == listed
    assert (await records.explain(ctx.record_hash)).outcomes == listed
    assert await records.outcome(answer.outcome_id) == answer
    assert await records.outcomes(ctx.context_id, limit=2) == [answer, score]


async def test_parts_of_an_answer_are_read_as_they_were_given(shop: Shop) -> None:
    ctx = await shop.asks()
    parts = (
        TextPart(content="Looking."),
        ToolCall(id="c1", name="track", arguments={"parcel": 7, "fast": True}),
        Blob(mime_type="image/png", content=b"\x89PNG\x00"),
    )
    said = [Message(role="assistant", parts=parts, finish_reason="tool_calls")]
    added = await ctx.add_outcome(answer=said)
    assert added.response is not None
    assert added.response.messages == tuple(said)
    assert (await shop.store.records.outcomes(ctx.context_id)) == [added]


async def test_an_outcome_needs_a_recorded_context(shop: Shop) -> None:
    with pytest.raises(UnknownContextError):
        await shop.store.records.add_outcome("01a1de13-0000-7000-8000-000000000000", answer=ANSWER)
    with pytest.raises(UnknownOutcomeError, match="headwater context outcomes"):
        await shop.store.records.outcome("01a1de13")


@pytest.mark.parametrize(
    ("given", "error", "problem"),
    [
        ({}, InvalidInputError, "exactly one"),
        ({"score": "helpful"}, OutcomeError, "value, label, flag, text"),
        ({"answer": Response(usage=Usage(input="5"))}, OutcomeError, "number of tokens"),  # type: ignore[arg-type]
        ({"answer": ANSWER, "usage": {"prompt_tokens": 5}}, InvalidInputError, "prompt_tokens"),
        ({"score": "helpful", "value": float("nan")}, OutcomeError, "finite"),
        ({"answer": ANSWER, "source_id": "7"}, OutcomeError, "source"),
        ({"answer": ANSWER, "outcome_id": "seven"}, InvalidInputError, "give a UUID"),
        ({"answer": ANSWER, "at": datetime(2026, 1, 1)}, InvalidInputError, "time zone"),  # noqa: DTZ001
        ({"answer": ANSWER, "limit": 3}, InvalidInputError, "unknown option 'limit'"),
    ],
)
async def test_invalid_outcomes_are_refused_and_nothing_is_stored(
    shop: Shop, given: dict[str, Any], error: type[Exception], problem: str
) -> None:
    ctx = await shop.asks()
    with pytest.raises(error, match=problem):
        await shop.store.records.add_outcome(ctx.context_id, **given)
    assert await shop.store.records.outcomes(ctx.context_id) == []


async def test_an_outcome_has_its_own_time_but_none_of_the_future(
    shop: Shop, clock: ManualClock
) -> None:
    ctx, earlier = await shop.asks(), clock.now() - timedelta(days=3)
    first = await ctx.add_outcome(score="helpful", flag=True, at=earlier)
    second = await ctx.add_outcome(score="helpful", flag=False)
    assert (first.at, second.at) == (earlier, clock.now())
    with pytest.raises(InvalidInputError, match="in the future"):
        await ctx.add_outcome(score="helpful", flag=True, at=clock.now() + timedelta(hours=1))


async def test_the_same_source_id_or_outcome_id_is_stored_once(shop: Shop) -> None:
    ctx, other, own = await shop.asks(), await shop.asks("u2"), str(uuid4())
    imported = [
        await ctx.add_outcome(score="helpful", value=1, source="langfuse", source_id="s-1")
        for _ in range(2)
    ]
    sent = await asyncio.gather(*(ctx.add_outcome(answer=ANSWER, outcome_id=own) for _ in range(5)))
    assert imported[0] == imported[1]
    assert {outcome.outcome_id for outcome in sent} == {own}
    listed = await shop.store.records.outcomes(ctx.context_id)
    # Outcomes of one moment are in the order of their ids.
    assert listed == sorted([imported[0], sent[0]], key=lambda outcome: outcome.outcome_id)
    repeated: list[dict[str, Any]] = [
        {"outcome_id": own},
        {"source": "langfuse", "source_id": "s-1"},
    ]
    for again in repeated:
        with pytest.raises(InvalidInputError, match="another context has an outcome"):
            await other.add_outcome(answer=ANSWER, **again)
    assert await shop.store.records.outcomes(other.context_id) == []


async def test_outcomes_are_signed_as_records_are(opens: Opens) -> None:
    ctx = await opens().asks()
    signing = opens(signing_key="k1:correct horse battery")
    added = await signing.store.records.add_outcome(ctx.context_id, answer=ANSWER)
    assert added.signed_by == "k1"
    unsigned = opens(signing_key="k1:correct horse battery", signature_mode="off")
    again = await unsigned.store.records.add_outcome(ctx.context_id, answer=ANSWER)
    assert again.signed_by is None


async def test_values_of_an_outcome_are_redacted_permanently(
    shop: Shop, database: Database
) -> None:
    ctx = await shop.asks()
    added = await ctx.add_outcome(answer="Zerlina lives there.", actor="quibbledash")
    records, pointers = shop.store.records, ("/response/messages/0", "/actor")
    redacted = await records.redact_outcome(added.outcome_id, *pointers, reason="asked", by="ops")
    assert list(redacted.redacted) == list(pointers)
    assert redacted.outcome_hash == added.outcome_hash
    assert redacted.actor is None
    assert await records.outcome(added.outcome_id) == redacted
    stored = await database.everything()
    assert b"Zerlina" not in stored
    assert b"quibbledash" not in stored
    with pytest.raises(RedactionError):
        await records.redact_outcome(added.outcome_id, "/actor", reason="again")
    with pytest.raises(InvalidInputError, match="which value"):
        await records.redact_outcome(added.outcome_id, reason="nothing")
    (entry,) = (await shop.store.audit_log(action="outcomes.redact")).entries[:1]
    assert entry.target == added.outcome_id


async def test_without_content_no_text_of_an_outcome_is_stored(
    opens: Opens, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    shop = opens(record={"include_content": False})
    ctx = await shop.asks()
    added = await ctx.add_outcome(
        answer="Zerlina lives there.", actor="quibbledash", links={"trace": "k-wombat"}
    )
    scored = await ctx.add_outcome(
        score="tone", label="flugelish", explanation="marzipan", source="kumquat", source_id="s-xyl"
    )
    assert added.response == Response()
    assert scored.score == Score(name="tone")
    assert "/score/label" in scored.withheld
    stored, written = await database.everything(), capfd.readouterr()
    for secret in ("Zerlina", "quibbledash", "k-wombat", "flugelish", "marzipan", "s-xyl"):
        assert secret.encode() not in stored
        assert secret not in written.err + written.out
    again = await ctx.add_outcome(score="tone", label="x", source="kumquat", source_id="s-xyl")
    assert again.outcome_id == scored.outcome_id


async def test_contexts_read_outcomes_but_replays_add_none(shop: Shop) -> None:
    ctx, store = await shop.asks(), shop.store

    @context(store)
    async def judging(context_id: str, *, score: bool = False) -> list[ContextItem]:
        if score:
            await store.records.add_outcome(context_id, score="helpful", flag=True)
        listed = await store.records.outcomes(context_id)
        return [ContextItem(f"{len(listed)} outcomes")]

    made = await judging(ctx.context_id, score=True)
    assert made.content == "1 outcomes"
    with pytest.raises(ReplayWriteError, match="add_outcome"):
        await store.replay(made.context_id, "live")
    assert len(await store.records.outcomes(ctx.context_id)) == 1


def billed(model: str) -> tuple[float, float]:
    """The answers of a model that were counted, and the sum of their ratios."""
    name, labels = "headwater_billed_to_predicted_ratio", {"model": model}
    return (
        REGISTRY.get_sample_value(f"{name}_count", labels) or 0.0,
        REGISTRY.get_sample_value(f"{name}_sum", labels) or 0.0,
    )


async def test_outcomes_are_counted_by_kind_and_by_declared_model(shop: Shop) -> None:
    def scores() -> float:
        return REGISTRY.get_sample_value("headwater_outcomes_total", {"kind": "score"}) or 0.0

    ctx, text = await chat(shop), await shop.asks()
    before, known = scores(), billed("gpt-4o")
    await ctx.add_outcome(score="helpful", value=1, source="a", source_id="1")
    await ctx.add_outcome(score="helpful", value=1, source="a", source_id="1")
    await ctx.add_outcome(
        answer=ANSWER, model="gpt-4o-2026-08-01", usage=Usage(input=2 * ctx.tokens)
    )
    # Neither are those of another model, or of another request.
    await ctx.add_outcome(answer=ANSWER, model="chosen", usage=Usage(input=ctx.tokens))
    await ctx.add_outcome(answer=ANSWER, as_sent=False, usage=Usage(input=3 * ctx.tokens))
    # The tokens of a text are not those of the request that it becomes.
    await text.add_outcome(answer=ANSWER, usage=Usage(input=text.tokens))
    await ctx.add_outcome(answer=ANSWER)
    assert scores() == before + 1
    assert billed("gpt-4o") == (known[0] + 1, known[1] + 2.0)
    assert billed("chosen") == (0.0, 0.0)


def test_blocking_code_adds_outcomes(opens: Opens) -> None:
    shop = opens()
    ctx = shop.store.sync.run(shop.asks())
    added = ctx.sync.add_outcome(answer=ANSWER)
    assert shop.store.sync.records.outcomes(ctx.context_id) == [added]
    shop.store.sync.close()
