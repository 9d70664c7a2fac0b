"""A context of messages over HTTP: it is rendered as in the process that assembled it."""

from __future__ import annotations

from headwater import ContextItem, FeatureStore
from headwater.client import AsyncClient

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
THOUGHT = {"type": "thinking", "thinking": "An order.", "signature": "c2ln"}


async def test_a_client_renders_a_context_like_the_store(
    store: FeatureStore, client: AsyncClient
) -> None:
    @store.context(model="claude-opus-5", max_output=100)
    async def chat(user_id: str) -> list[ContextItem]:
        return [
            ContextItem.tool("find", {"type": "object"}, "Finds an order.", cache=True),
            ContextItem("Be brief.", role="system"),
            ContextItem.image(PNG),
            ContextItem("Where is it?", role="user", cache=True),
            ContextItem.reasoning(THOUGHT),
            ContextItem.tool_call("find", {"order": 7, "by": "id"}, id="a"),
            ContextItem.tool_result("a", {"state": "shipped", "at": None}),
            ContextItem("So?", role="user"),
        ]

    sent = await client.assemble("chat", {"user_id": "ada"})
    explained = await client.records.explain(sent.context_id)
    past = await store.records.explain(sent.context_id)
    assert sent.messages == explained.messages == past.messages
    for one in (explained, past):
        assert sent.to_openai() == one.to_openai()
        assert sent.to_openai_responses() == one.to_openai_responses()
        assert sent.to_anthropic() == one.to_anthropic()
        assert sent.to_gemini() == one.to_gemini()
    body = sent.to_anthropic()
    assert body["messages"][1]["content"][0] == THOUGHT
    assert body["model"] == "claude-opus-5"
    assert body["max_tokens"] == 100
