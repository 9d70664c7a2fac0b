"""Importing and exporting the outcomes of recorded contexts, in each environment."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from headwater import Message, Outcome, Response, Usage
from headwater.errors import InvalidInputError, UnknownContextError
from headwater.messages.parts import TextPart
from headwater.model.callers import Caller, CallerLimits, set_caller
from tests.contexts.recorded.shop import Opens, Shop

pytestmark = pytest.mark.both_environments


def score(context_id: str, score_id: str, **changed: Any) -> dict[str, Any]:
    """A score as the API of Langfuse returns it, of a trace that was exported to it."""
    return {
        "id": score_id,
        "traceId": context_id.replace("-", ""),
        "name": "accuracy",
        "source": "EVAL",
        "dataType": "NUMERIC",
        "value": 0.9,
        "timestamp": "2026-01-01T10:00:00.000Z",
    } | changed


async def test_scores_of_langfuse_are_stored_once_and_bad_lines_are_named(shop: Shop) -> None:
    ctx = await shop.asks()
    other = "00000000-0000-7000-8000-000000000000"
    text = "\n".join(
        json.dumps(line)
        for line in [
            score(ctx.context_id, "s1"),
            score(other, "s2"),
            score(ctx.context_id, "s3", dataType="BOOLEAN", value=1),
            score(ctx.context_id, "s4", timestamp="2999-01-01T10:00:00Z"),
            score(ctx.context_id, "s5", name=""),
        ]
    )
    report = await shop.store.records.import_outcomes(text, format="langfuse")
    assert (report.added, report.known, report.failed) == (2, 0, 3)
    assert [problem.line for problem in report.problems] == [2, 4, 5]
    assert "in the future" in report.problems[1].problem
    again = await shop.store.records.import_outcomes(text, format="langfuse")
    assert (again.added, again.known, again.failed) == (0, 2, 3)
    stored = await shop.store.records.outcomes(ctx.context_id)
    assert {(each.source, each.source_id, each.judge) for each in stored} == {
        ("langfuse", "s1", "model"),
        ("langfuse", "s3", "model"),
    }


async def test_what_is_exported_is_imported_again_and_known_where_it_comes_from(
    shop: Shop,
) -> None:
    ctx = await shop.asks()
    response = Response(
        messages=(Message(role="assistant", parts=(TextPart(content="On Friday."),)),),
        model="gpt-4o-2024-11-20",
        usage=Usage(input=50, output=3, raw={"prompt_tokens": 50}),
        latency_ms=812.5,
        first_token_ms=120.25,
        finish_reasons=("stop",),
    )
    await ctx.add_outcome(answer=response, links={"trace_id": "4bf92f35"})
    await ctx.add_outcome(score="helpful", value=4, judge="human", actor="ada")
    await ctx.add_outcome(score="safe", flag=False, explanation="it names a person")
    await ctx.add_outcome(correction="On Monday.")
    await ctx.add_outcome(error="RateLimitError", model="gpt-4o", source="gateway", source_id="7")
    before = await shop.store.records.outcomes(ctx.context_id)
    exported = await shop.store.records.export_outcomes(ctx.context_id)
    assert exported.count("\n") == 5
    known = await shop.store.records.import_outcomes(exported, format="otlp")
    assert (known.added, known.known, known.failed) == (0, 5, 0)
    assert await shop.store.records.outcomes(ctx.context_id) == before

    # Another context stands for another store, which has the same contexts.
    twin = await shop.asks(question="And now?")
    moved = exported.replace(ctx.context_id, twin.context_id)
    for outcome in before:
        moved = moved.replace(outcome.outcome_id, f"f{outcome.outcome_id[1:]}")
    moved = moved.replace("gateway", "gateway-2")
    report = await shop.store.records.import_outcomes(moved, format="otlp")
    assert (report.added, report.failed) == (5, 0), report.problems
    after = await shop.store.records.outcomes(twin.context_id)
    assert {_facts(each) for each in after} == {_facts(each) for each in before}


def _facts(outcome: Outcome) -> str:
    """What an outcome says, without what names the store or the context that it is stored in."""
    facts = msgspec.to_builtins(outcome)
    hidden = ("outcome_id", "context_id", "record_hash", "outcome_hash", "predicted")
    return json.dumps(
        {name: value for name, value in facts.items() if name not in hidden}, sort_keys=True
    ).replace("gateway-2", "gateway")


async def test_a_caller_imports_and_exports_only_for_contexts_that_it_may_read(
    shop: Shop,
) -> None:
    mine, theirs = await shop.plain("a"), await shop.asks()
    lines = [json.dumps(score(each.context_id, each.context_id)) for each in (mine, theirs)]
    set_caller(Caller("desk", limits=CallerLimits(contexts=frozenset({"plain"}))))
    report = await shop.store.records.import_outcomes("\n".join(lines), format="langfuse")
    assert (report.added, report.failed) == (1, 1)
    assert report.problems[0].line == 2
    assert (await shop.store.records.export_outcomes(mine.context_id)).count("\n") == 1
    with pytest.raises(UnknownContextError):
        await shop.store.records.export_outcomes(theirs.context_id)
    set_caller(None)
    assert await shop.store.records.outcomes(theirs.context_id) == []


async def test_without_content_an_export_has_no_texts(opens: Opens) -> None:
    shop = opens(record={"include_content": False})
    ctx = await shop.asks()
    await ctx.add_outcome(answer="the canary sings", model="gpt-4o")
    await ctx.add_outcome(score="helpful", value=4, explanation="the canary sings")
    exported = await shop.store.records.export_outcomes(ctx.context_id)
    assert "canary" not in exported
    assert "gen_ai.evaluation.score.value" in exported


async def test_a_text_of_no_format_is_refused_as_a_whole(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match="not a document of this format"):
        await shop.store.records.import_outcomes("nothing", format="otlp")
