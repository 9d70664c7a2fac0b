"""Traces of contexts: assemble, reads, retrieval, fit and record are one."""

import pytest
from opentelemetry.trace import StatusCode

from headwater import Chunk, FeatureStore, Index, context, entity, feature, retriever
from headwater.errors import ContextFailedError
from tests.telemetry.conftest import Spans, is_child


def declare(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="named")
    async def name(user_id: str, event: object) -> str:
        return "unused"

    @feature(entity=User)
    async def greeting(user_id: str) -> str:
        return f"Dear {await store.get_feature('name', user_id)}"

    Index(store, "manual", embedder="lexical")

    @retriever(store, index="manual", top_k=2)
    def find(question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(store, max_tokens=200)
    async def support(user_id: str, question: str) -> list[str]:
        chunks = await find(question)
        return [await store.get_feature("greeting", user_id), *(chunk.text for chunk in chunks)]

    @context(store)
    async def broken(user_id: str) -> str:
        raise ValueError(f"secret of {user_id}")


@pytest.mark.both_environments
async def test_reads_retrieval_fit_and_record_are_one_trace_with_the_context_id(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    await store.set_feature("name", "ursula", "Ada L")
    await store.index("manual", "returns", "Returns are free within thirty days.")
    assembled = await store.assemble("support", {"user_id": "ursula", "question": "Returns?"})
    root = spans.one("assemble support")
    inside = [span for span in spans.all() if span is not root and span.start_time and root.context]
    trace_id = root.context and root.context.trace_id
    names = [span.name for span in inside if span.context and span.context.trace_id == trace_id]
    assert set(names) >= {
        "read User",
        "feature greeting",
        "retrieve find",
        "search manual",
        "query vectors",
        "fit",
        "record",
    }
    assert any(name.startswith("embeddings lexical") for name in names)
    reads = spans.named("read User")
    assert not any(is_child(inner, outer) for inner in reads for outer in reads)
    assert is_child(spans.one("search manual"), spans.one("retrieve find"))
    for name in ("retrieve find", "feature greeting", "fit", "record"):
        assert is_child(spans.one(name), root)
    assert root.attributes is not None
    assert root.attributes["headwater.context.id"] == assembled.context_id
    assert root.attributes["headwater.record.hash"] == assembled.record_hash
    assert root.attributes["headwater.freshness.status"] == assembled.freshness_status
    assert root.attributes["gen_ai.usage.input_tokens"] == assembled.tokens
    record = spans.one("record").attributes
    assert record is not None
    assert record["headwater.context.id"] == assembled.context_id
    assert not any(text in spans.texts() for text in ("Returns", "Ada L", "ursula"))


async def test_reads_outside_of_a_trace_begin_none(store: FeatureStore, spans: Spans) -> None:
    declare(store)
    await store.set_feature("name", "ursula", "Ada L")
    await store.get_feature("name", "ursula")
    assert spans.names() == []


async def test_a_context_that_fails_is_an_error_without_its_message(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    with pytest.raises(ContextFailedError):
        await store.assemble("broken", {"user_id": "ursula"})
    span = spans.one("assemble broken")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ContextFailedError"
    assert "secret" not in spans.texts()
