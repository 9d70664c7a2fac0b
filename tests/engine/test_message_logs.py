"""Logs and errors about messages and outcomes do not quote them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.errors import HeadwaterError
from headwater.messages.parts import Message, TextPart, ToolCall, ToolResult
from headwater.model.outcomes import Response
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.canaries import OF_MESSAGES, USER, converse, declare_messages, picture
from tests.places import has_text

SECRET = "zqsecret"


def call() -> ContextItem:
    return ContextItem.tool_call("find", {"text": SECRET}, id="call")


def result() -> ContextItem:
    return ContextItem.tool_result("call", {"found": SECRET})


ITEMS: dict[str, Callable[[], list[ContextItem]]] = {
    "too_long": lambda: [ContextItem(f"{SECRET} " * 500, role="user", required=True)],
    "dropped": lambda: [ContextItem(f"{SECRET} " * 500, role="user"), ContextItem("a")],
    "unanswered": lambda: [call()],
    "unasked": lambda: [result()],
    "twice": lambda: [call(), call(), result()],
    "no_image": lambda: [ContextItem.image(SECRET.encode())],
    "no_picture": lambda: [ContextItem.image(SECRET.encode(), mime_type="image/png")],
    "mixed": lambda: [ContextItem(SECRET, role="tool"), ContextItem.image(picture(SECRET))],
    "schema": lambda: [ContextItem.tool("find", {"type": object()}, SECRET)],
    "arguments": lambda: [ContextItem.tool_call("find", {"a": {SECRET}, "b": object()}, id="c")],
    "response": lambda: [call(), ContextItem.tool_result("call", {SECRET: object()})],
    "reasoning": lambda: [ContextItem.reasoning({"thinking": SECRET, "signature": [object()]})],
    "surrogate": lambda: [ContextItem(f"{SECRET}\ud800", role="user")],
    "conversation": lambda: ContextItem.conversation([{"role": "user", "content": {SECRET: 1}}]),
    "role": lambda: ContextItem.conversation([{"role": "robot", "content": SECRET}]),
}


@pytest.fixture
def chats(settings: Settings, clock: ManualClock) -> FeatureStore:
    """Return a store with contexts of messages that have a text of their own."""
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="told")
    async def given(user_id: str, event: ServiceEvent) -> str:
        return "told"

    declare_messages(store)

    @context(store, model="gpt-4o", max_tokens=50)
    async def sample(kind: str) -> list[ContextItem]:
        return ITEMS[kind]()

    return store


async def attempts(store: FeatureStore) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return calls, most of which fail, with a secret in what they are given."""
    chat = await store.assemble("chat", {"user_id": "somebody"})
    ref = str(chat.context_id)
    add = store.records.add_outcome
    bad_part = Message(role="assistant", parts=(TextPart(content=f"{SECRET}\ud800"),))
    bad_call = Message(
        role="assistant", parts=(ToolCall(id="c", name="find", arguments={SECRET: object()}),)
    )
    bad_result = Message(role="tool", parts=(ToolResult(id="c", response={SECRET: {1, 2}}),))
    return {
        **{name: partial(store.assemble, "sample", {"kind": name}) for name in ITEMS},
        "lone surrogate": lambda: add(ref, answer=Response(messages=(bad_part,))),
        "called": lambda: add(ref, answer=Response(messages=(bad_call,))),
        "returned": lambda: add(ref, answer=Response(messages=(bad_result,))),
        "two": lambda: add(ref, answer=SECRET, score="tone", label=SECRET),
        "no kind": lambda: add(ref, label=SECRET, explanation=SECRET),
        "long label": lambda: add(ref, score="tone", label=SECRET * 5_000),
        "long actor": lambda: add(ref, answer="a", actor=SECRET * 5_000),
        "unknown": lambda: add("0" * 32, answer=SECRET),
    }


@pytest.mark.both_environments
async def test_no_log_line_and_no_error_quotes_a_message_or_an_outcome(
    chats: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    said: dict[str, str] = {}
    async with chats as store:
        await store.set_feature("given", USER, "told")
        await store.set_feature("given", "somebody", "told")
        await converse(store, USER)
        for name, attempt in (await attempts(store)).items():
            try:
                made = await attempt()
            except HeadwaterError as error:
                said[name] = f"{error!r} {error}"
            else:
                said[name] = str(getattr(made, "meta", ""))
        await store.admin.forget("User", USER, reason="request 12")
    written = capsys.readouterr()
    said["log"] = written.out + written.err
    quoted = {
        (place, text)
        for place, whole in said.items()
        for text in (SECRET, *OF_MESSAGES)
        if has_text(whole.encode(errors="surrogatepass"), text)
    }
    assert quoted == set()
    assert len([name for name in said if "Error" in said[name]]) >= 8
