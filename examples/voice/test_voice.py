"""A call is answered turn by turn, and found again: `pytest` in this folder."""

from collections.abc import AsyncIterator

import pytest
from voice import SCRIPT, call, sentences, store

from headwater import PastContext
from headwater.testing import temporary


@pytest.fixture(autouse=True)
async def _no_key(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with temporary(store):
        yield


async def turns_of(call_id: str) -> list[PastContext]:
    page = await store.records.find(entity="Call", entity_id=call_id, oldest_first=True)
    return [await store.get_context_at(each.context_id) for each in page.contexts]


async def test_a_call_is_found_with_its_turns_in_order() -> None:
    await call("c-17")
    await call("c-18")
    past = await turns_of("c-17")
    assert [each.interaction_ref for each in past] == [
        {"call_id": "c-17", "turn_id": f"c-17-{index}", "turn_index": index} for index in range(3)
    ]
    for context, heard in zip(past, SCRIPT, strict=True):
        (answer,) = await store.records.outcomes(context.context_id)
        assert answer.response is not None
        assert answer.response.first_token_ms is not None
        assert heard in str(context)


async def test_a_turn_has_the_parcel_and_what_was_said_before() -> None:
    await call("c-17")
    _, _, last = await turns_of("c-17")
    assert "The parcel is in Hamburg." in str(last)
    assert "It will arrive on Friday." in str(last)
    assert last.tokens <= 120
    assert last.freshness_status == "guaranteed"


async def test_calls_are_forgotten_with_their_customer() -> None:
    await call("c-17")
    report = await store.admin.forget("Customer", "ada", reason="asked for it")
    assert dict(report.belonging) == {"Call": ["c-17"]}
    assert await store.get_feature("turns", "c-17") == []
    assert [each.content for each in await turns_of("c-17")] == [None] * 3


async def test_speech_begins_with_the_first_whole_sentence() -> None:
    async def words() -> AsyncIterator[str]:
        for word in ("It is ", "here. ", "Come ", "at 7.", "30 please. ", "Bye"):
            yield word

    assert [each async for each in sentences(words())] == [
        *("It is here.", "Come at 7.30 please.", "Bye"),
    ]
