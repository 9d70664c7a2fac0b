"""Outcomes as sealed in a store: verified with their record, and redacted with its values."""

from __future__ import annotations

import pytest

from headwater.errors import DamagedRecordError
from headwater.messages.parts import Message, ToolCall
from headwater.model.contexts import CheckName
from headwater.records.verify import verify_record
from tests.contexts.recorded.database import Database
from tests.contexts.recorded.shop import Opens, Shop

pytestmark = pytest.mark.both_environments

KEY = "2026-01:correct horse battery staple"


async def test_a_record_is_verified_with_its_outcomes(opens: Opens) -> None:
    shop = opens(signing_key=KEY)
    ctx = await shop.asks()
    answer = await ctx.add_outcome(answer="On Friday.", model="gpt-4o")
    score = await ctx.add_outcome(score="helpful", value=0.3, judge="human")
    report = await shop.store.records.verify(ctx.context_id)
    assert (report.ok, report.verdict) == (True, "Nothing is broken.")
    assert [each.outcome_id for each in report.outcomes] == [answer.outcome_id, score.outcome_id]
    assert all(check.ok for each in report.outcomes for check in each.checks)
    sealed = await shop.store.records.sealed_outcomes(ctx.context_id)
    assert [each.outcome_hash for each in sealed] == [answer.outcome_hash, score.outcome_hash]
    record = await shop.store.get_record(ctx.context_id)
    assert verify_record(record, KEY, outcomes=sealed).ok
    other = await shop.store.get_record((await shop.asks()).context_id)
    assert not verify_record(other, KEY, outcomes=sealed).ok


@pytest.mark.parametrize(
    ("column", "value", "check", "said"),
    [
        ("value", 4.5, "hash", "the log lists it with value 4.5, but the core says 0.3"),
        ("name", "kind", "hash", "the log lists it with name kind, but the core says helpful"),
        ("outcome_hash", "sha256:0", "hash", "not to outcome_hash sha256:0"),
        ("core", b"x", "hash", "the core is not readable"),
        ("disclosures", b"x", "disclosures", "the disclosures cannot be read"),
        ("redactions", b"[7]", "disclosures", "the redactions cannot be read"),
        ("signature", b"7", "signature", "the signature cannot be read"),
    ],
)
async def test_an_altered_row_of_an_outcome_is_found(
    opens: Opens, database: Database, column: str, value: object, check: CheckName, said: str
) -> None:
    shop = opens(signing_key=KEY)
    ctx = await shop.asks()
    added = await ctx.add_outcome(score="helpful", value=0.3, explanation="Nearly.")
    await database.run(f"UPDATE {{outcomes}} SET {column} = $1", value)
    report = await shop.store.records.verify(ctx.context_id)
    (outcome,) = report.outcomes
    assert report.verdict == f"Outcome {added.outcome_id} is broken."
    assert (outcome.of(check).ok, said in outcome.of(check).detail) == (False, True)


async def test_a_damaged_outcome_is_not_returned(shop: Shop, database: Database) -> None:
    ctx = await shop.asks()
    first, second = [await ctx.add_outcome(score="x", text=text) for text in ("Yes.", "No.")]
    swapped = "SELECT disclosures FROM {outcomes} WHERE outcome_id = $1"
    ((disclosures,),) = await database.run(swapped, second.outcome_id)
    await database.run("UPDATE {outcomes} SET disclosures = $1", disclosures)
    named = f"values of outcome {first.outcome_id} of context {ctx.context_id}"
    for read in (shop.store.get_context_at, shop.store.records.outcomes):
        with pytest.raises(DamagedRecordError, match=named):
            await read(ctx.context_id)


async def test_a_value_that_is_erased_everywhere_is_erased_in_the_answers(
    shop: Shop, database: Database
) -> None:
    ctx = await shop.asks(question="Where does Zerlina live?")
    call = ToolCall(id="c", name="find", arguments={"text": "Where does Zerlina live?"})
    said = await ctx.add_outcome(answer="You asked: Where does Zerlina live? I do not know.")
    called = await ctx.add_outcome(answer=[Message(role="assistant", parts=(call,))])
    scored = await ctx.add_outcome(score="helpful", value=1, explanation="Zerlina is not asked.")
    records, pointer = shop.store.records, "/inputs/question"
    copies = await records.copies(ctx.context_id, pointer)
    assert copies.pop(ctx.context_id)
    answers = [f"outcomes/{each.outcome_id}" for each in (said, called)]
    assert copies == {name: ["/response/messages/0"] for name in answers}
    await records.redact(ctx.context_id, pointer, reason="asked", by="dpo", everywhere=True)
    erased = await records.outcomes(ctx.context_id)
    assert [list(each.redacted) for each in erased] == [["/response/messages/0"]] * 2 + [[]]
    assert erased[2] == scored
    assert b"Where does Zerlina live" not in await database.everything()
    assert (await records.verify(ctx.context_id)).ok


async def test_outcomes_stay_if_a_value_is_erased_in_the_record_alone(shop: Shop) -> None:
    ctx = await shop.asks(question="Where does Zerlina live?")
    said = await ctx.add_outcome(answer="You asked: Where does Zerlina live?")
    await shop.store.records.redact(ctx.context_id, "/inputs/question", reason="asked")
    assert await shop.store.records.outcomes(ctx.context_id) == [said]


async def test_copies_are_found_in_the_outcomes_of_inner_contexts(shop: Shop) -> None:
    await shop.spends("u1", 40, name="Zerlina")
    ctx = await shop.outer("u1")
    (inner,) = await shop.store.records.inner(ctx.context_id)
    added = await shop.store.records.add_outcome(inner.context_id, answer="Hello Zerlina.")
    record = await shop.store.get_record(inner.context_id)
    at = next(each.pointer for each in record.disclosures if each.value == "Zerlina")
    own = await shop.store.records.copies(inner.context_id, at)
    assert own[f"outcomes/{added.outcome_id}"] == ["/response/messages/0"]
    item = "/items/0/content"
    assert f"{inner.context_id}/outcomes/{added.outcome_id}" not in (
        await shop.store.records.copies(ctx.context_id, item)
    )
