"""Providers over HTTP: the requests they get, and the answers they give."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headwater.errors import DeclarationError, EmbeddingError, MissingApiKeyError
from headwater.retrieval.embeddings import remote
from tests.engine.support import until
from tests.retrieval.embeddings.provider_server import KEY, ProviderServer, Reply, vector_of
from tests.retrieval.embeddings.support import Open, declared, vector

BEARER = ("authorization", f"Bearer {KEY}")


@pytest.mark.parametrize(
    ("provider", "base", "path", "header", "body"),
    [
        (
            "openai",
            "/v1",
            "/v1/embeddings",
            BEARER,
            {"model": "m", "input": ["Hello"], "encoding_format": "base64"},
        ),
        (
            "azure",
            "",
            "/openai/v1/embeddings",
            ("api-key", KEY),
            {"model": "m", "input": ["Hello"], "encoding_format": "base64"},
        ),
        (
            "azure",
            "/?api-version=2024-10-21",
            "/openai/deployments/m/embeddings?api-version=2024-10-21",
            ("api-key", KEY),
            {"model": "m", "input": ["Hello"], "encoding_format": "base64"},
        ),
        (
            "voyage",
            "/v1/",
            "/v1/embeddings",
            BEARER,
            {"model": "m", "input": ["Hello"], "input_type": "KIND", "encoding_format": "base64"},
        ),
        (
            "cohere",
            "/v2",
            "/v2/embed",
            BEARER,
            {
                "model": "m",
                "texts": ["Hello"],
                "input_type": "search_KIND",
                "embedding_types": ["float"],
            },
        ),
    ],
)
@pytest.mark.parametrize("kind", ["document", "query"])
async def test_a_provider_gets_its_own_kind_of_request(
    server: ProviderServer,
    opened: Open,
    provider: str,
    base: str,
    path: str,
    header: tuple[str, str],
    body: dict[str, Any],
    kind: Any,
) -> None:
    every = opened(provider=provider, base_url=server.url + base, api_key=f"{KEY}\n")
    embedder = every.of(declared(f"{provider}/m", dimensions=8))
    assert (embedder.name, embedder.dimensions) == (f"{provider}/m", 8)
    [embedding] = await embedder.embed(["Hello"], kind)
    expected = vector_of("Hello", 8)
    assert vector(embedding) * sum(x * x for x in expected) ** 0.5 == pytest.approx(expected)
    [seen] = server.seen
    assert seen.path == path
    assert seen.headers[header[0]] == header[1]
    if "input_type" in body:
        body = body | {"input_type": body["input_type"].replace("KIND", kind)}
    assert seen.body == body


@pytest.mark.parametrize(
    ("provider", "model", "dimensions", "field"),
    [
        ("openai", "text-embedding-3-small", 1536, "dimensions"),
        ("openai", "text-embedding-3-large", 3072, "dimensions"),
        ("voyage", "voyage-3.5", 1024, "output_dimension"),
        ("cohere", "embed-v4.0", 1536, "output_dimension"),
    ],
)
async def test_other_dimensions_than_the_model_s_own_are_asked_for(
    server: ProviderServer, opened: Open, provider: str, model: str, dimensions: int, field: str
) -> None:
    server.dimensions = dimensions
    every = opened(provider=provider, base_url=server.url)
    name = f"{provider}/{model}"
    assert every.of(declared(name)).dimensions == dimensions
    await every.of(declared(name)).embed(["a"], "document")
    [embedding] = await every.of(declared(name, dimensions=256)).embed(["a"], "document")
    assert vector(embedding).shape == (256,)
    assert [seen.body.get(field) for seen in server.seen] == [None, 256]


async def test_a_server_like_ollama_needs_no_key_and_may_send_lists(
    server: ProviderServer, opened: Open
) -> None:
    server.as_floats = True
    every = opened(
        provider="openai",
        base_url=server.url,
        model="nomic-embed-text",
        dimensions=8,
        openai_api_key=KEY,
    )
    embedder = every.of(declared())
    assert embedder.name == "openai/nomic-embed-text"
    one, other = await embedder.embed(["a", "bcd"], "document")
    assert vector(one)[0] < vector(other)[0]
    # The key of OpenAI is not for other servers.
    assert "authorization" not in server.seen[0].headers


async def test_the_settings_of_one_provider_are_not_used_for_another(opened: Open) -> None:
    every = opened(provider="openai", base_url="http://127.0.0.1:9", api_key=KEY)
    with pytest.raises(MissingApiKeyError, match="COHERE_API_KEY"):
        await every.of(declared("cohere")).embed(["a"], "document")


@pytest.mark.parametrize(
    ("provider", "variable"),
    [("openai", "OPENAI_API_KEY"), ("cohere", "COHERE_API_KEY"), ("voyage", "VOYAGE_API_KEY")],
)
async def test_the_error_of_a_missing_key_names_its_variables(
    opened: Open, provider: str, variable: str
) -> None:
    embedder = opened(provider=provider).of(declared())
    with pytest.raises(
        MissingApiKeyError,
        match=f"{provider}/.* needs an API key; set HEADWATER_EMBEDDINGS_API_KEY or {variable}",
    ):
        await embedder.embed(["a"], "document")


@pytest.mark.parametrize(
    ("embedder", "settings", "problem"),
    [
        ("openai/unknown", {}, r"dimensions of openai/unknown are unknown.*embeddings\.dimensions"),
        (
            "azure/deployed",
            {},
            r"address of the provider 'azure' must be set: embedd",
        ),
        ("opnai", {}, "unknown provider 'opnai'; did you mean 'openai'"),
        ("openai", {"base_url": "localhost:11434"}, "not 'localhost:11434'"),
        ("openai", {"base_url": "https://:hunter2"}, r"not 'https://\*\*\*'"),
    ],
)
def test_an_embedder_that_cannot_work_is_refused(
    opened: Open, embedder: str, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DeclarationError, match=r"^app\.py:7: index 'docs': .*" + problem):
        opened(**settings).of(declared(embedder, dimensions=None if "unk" in embedder else 8))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<html>", "answer cannot be read: .*check that embeddings.base_url"),
        (b'{"data": [{"embedding": "AAA"}]}', "answer cannot be read"),
        (b'{"data": []}', "returned 0 vectors for 1 texts"),
        (b'{"data": [{"embedding": [1, 2]}]}', "a vector of 2 dimensions, not 8; declare"),
        (b'{"data": [{"embedding": [0,0,0,0,0,0,0,0]}]}', "only zeros"),
        (b'{"data": [{"index": 1, "embedding": [1]}]}', "not numbered from 0"),
    ],
)
async def test_answers_that_cannot_be_used_are_refused(
    server: ProviderServer, opened: Open, content: bytes, problem: str
) -> None:
    server.faults.append(Reply(200, content))
    every = opened(provider="openai", base_url=server.url)
    with pytest.raises(EmbeddingError, match=f"openai/m failed: .*{problem}"):
        await every.of(declared("openai/m", dimensions=8)).embed(["a"], "document")
    assert len(server.seen) == 1


async def test_any_text_can_be_embedded(server: ProviderServer, opened: Open) -> None:
    every = opened(provider="openai", base_url=server.url)
    texts = ["", " ", "\x00", "half \ud83d", "🎉 東京"]
    embedded = await every.of(declared("openai/m", dimensions=8)).embed(texts, "document")
    assert len(embedded) == 5


async def test_requests_are_limited_by_texts_and_by_tokens(
    server: ProviderServer, opened: Open
) -> None:
    embedder = opened(provider="openai", base_url=server.url, batch_size=3, concurrency=1).of(
        declared("openai/m", dimensions=8)
    )
    long = "x" * 500_000
    texts = ["a", "b", "c", "d", long, long + "y", "e"]
    assert len(await embedder.embed(texts, "document")) == 7
    assert [len(seen.texts) for seen in server.seen] == [3, 2, 2]


async def test_connections_end_with_their_event_loop(server: ProviderServer, opened: Open) -> None:
    embedder = opened(provider="openai", base_url=server.url).of(declared("openai/m", dimensions=8))
    await asyncio.to_thread(lambda: asyncio.run(embedder.embed(["a"], "query")))
    await until(lambda: server.connections == 0)
    await embedder.embed(["b"], "query")
    assert len(server.seen) == 2


async def test_closing_ends_the_connections_of_all_event_loops(
    server: ProviderServer, opened: Open
) -> None:
    every = opened(provider="openai", base_url=server.url)
    embedder = every.of(declared("openai/m", dimensions=8))
    await embedder.embed(["a"], "query")
    other = asyncio.new_event_loop()
    thread = threading.Thread(target=other.run_forever)
    thread.start()
    try:
        call = asyncio.run_coroutine_threadsafe(embedder.embed(["b"], "query"), other)
        await asyncio.wrap_future(call)
        assert server.connections == 2
        await every.close()
        await until(lambda: server.connections == 0)
    finally:
        other.call_soon_threadsafe(other.stop)
        await asyncio.to_thread(thread.join)
        other.close()


async def test_an_answer_that_does_not_end_is_refused(
    server: ProviderServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_LARGEST_ANSWER", 1_000)
    server.faults.append(Reply(200, b" " * 1_001))
    embedder = opened(provider="openai", base_url=server.url).of(declared("openai/m", dimensions=8))
    with pytest.raises(EmbeddingError, match="has more than 1,000 bytes; check that"):
        await embedder.embed(["a"], "document")
    assert len(server.seen) == 1


async def test_credentials_in_the_address_of_a_provider_are_sent_and_not_logged(
    server: ProviderServer, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "httpx")
    url = server.url.replace("://", "://me:hunter2@")
    embedder = opened(provider="openai", base_url=url).of(declared("openai/m", dimensions=8))
    await embedder.embed(["a"], "document")
    assert server.seen[0].headers["authorization"] == "Basic bWU6aHVudGVyMg=="
    assert "HTTP Request: POST" in caplog.text
    assert "hunter2" not in caplog.text
