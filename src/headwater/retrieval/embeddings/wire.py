"""The wire formats of the providers: pure functions from texts to requests, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
import numpy as np

from headwater.declarations.indexes import MODELS
from headwater.retrieval.embeddings.embedder import TextKind


class EmbeddingRequest(NamedTuple):
    """Texts for a model; without ``dimensions``, it returns vectors of its usual size."""

    model: str
    texts: Sequence[str]
    kind: TextKind
    dimensions: int | None


class EmbeddingAnswer(NamedTuple):
    """Vectors in the order of the texts, and the tokens that the provider counted."""

    vectors: Sequence[Any]
    tokens: int


class ProviderEndpoint(NamedTuple):
    """A provider's address; without a key, none is sent.

    ``variables`` are the names of the variables for the key.
    """

    base_url: str
    key: str
    needs_key: bool
    variables: str


class WireFormat(Protocol):
    """How one provider is called."""

    base_url: ClassVar[str]
    """The provider's own address; empty if each customer has another."""
    variable: ClassVar[str]
    """The variable in which users of the provider keep their key."""
    default_model: ClassVar[str]
    models: ClassVar[Mapping[str, Sequence[int]]]
    """The dimensions that the provider's models offer, the usual ones first."""
    max_texts: ClassVar[int]
    max_tokens: ClassVar[int]
    """Limits of one request."""

    path: ClassVar[str]
    """The path of requests, below the address."""

    def url(self, base_url: str, model: str) -> str:
        return base_url.rstrip("/") + self.path

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"}

    def body(self, request: EmbeddingRequest) -> dict[str, object]: ...

    def read(self, content: bytes) -> EmbeddingAnswer:
        """Return the vectors of an answer; raise ValueError if it has none."""


class _Item(msgspec.Struct):
    embedding: str | list[float]
    index: int | None = None


class _Usage(msgspec.Struct):
    total_tokens: int = 0


class _Items(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


class OpenAIFormat(WireFormat):
    """OpenAI, and the many servers that offer its API."""

    base_url = "https://api.openai.com/v1"
    path = "/embeddings"
    variable = "OPENAI_API_KEY"
    default_model = "text-embedding-3-small"
    models: ClassVar = MODELS["openai"]
    max_texts = 2048
    max_tokens = 300_000

    def body(self, request: EmbeddingRequest) -> dict[str, object]:
        body: dict[str, object] = {
            "model": request.model,
            "input": request.texts,
            "encoding_format": "base64",
        }
        if request.dimensions is not None:
            body["dimensions"] = request.dimensions
        return body

    def read(self, content: bytes) -> EmbeddingAnswer:
        answer = _read_items(content)
        items = answer.data
        if any(item.index is not None for item in items):
            items = sorted(items, key=lambda item: item.index or 0)
            if [item.index for item in items] != list(range(len(items))):
                raise ValueError("its vectors are not numbered from 0 without gaps")
        tokens = 0 if answer.usage is None else answer.usage.total_tokens
        return EmbeddingAnswer([_numbers(item.embedding) for item in items], tokens)


class AzureFormat(OpenAIFormat):
    """OpenAI on Azure: the model is the name of a deployment."""

    base_url = ""
    variable = "AZURE_OPENAI_API_KEY"

    def url(self, base_url: str, model: str) -> str:
        """Return the address in the API v1, or of the deployment if an api-version is given."""
        parts = urlsplit(base_url)
        path = parts.path.rstrip("/").removesuffix("/openai/v1")
        path += f"/openai/deployments/{quote(model)}" if parts.query else "/openai/v1"
        return urlunsplit(parts._replace(path=path + self.path))

    def headers(self, key: str) -> dict[str, str]:
        return {"api-key": key}


class VoyageFormat(OpenAIFormat):
    """Voyage AI."""

    base_url = "https://api.voyageai.com/v1"
    variable = "VOYAGE_API_KEY"
    default_model = "voyage-3.5"
    models: ClassVar = MODELS["voyage"]
    max_texts = 1000
    max_tokens = 120_000

    def body(self, request: EmbeddingRequest) -> dict[str, object]:
        body: dict[str, object] = {
            "model": request.model,
            "input": request.texts,
            "input_type": request.kind,
            "encoding_format": "base64",
        }
        if request.dimensions is not None:
            body["output_dimension"] = request.dimensions
        return body


class _CohereVectors(msgspec.Struct, rename={"floats": "float"}):
    floats: list[list[float]]


class _CohereUnits(msgspec.Struct):
    input_tokens: float = 0


class _CohereMeta(msgspec.Struct):
    billed_units: _CohereUnits = msgspec.field(default_factory=_CohereUnits)


class _CohereAnswer(msgspec.Struct):
    embeddings: _CohereVectors
    meta: _CohereMeta = msgspec.field(default_factory=_CohereMeta)


class CohereFormat(WireFormat):
    """Cohere, by the second version of its API."""

    base_url = "https://api.cohere.com/v2"
    path = "/embed"
    variable = "COHERE_API_KEY"
    default_model = "embed-v4.0"
    models: ClassVar = MODELS["cohere"]
    max_texts = 96
    max_tokens = 300_000

    def body(self, request: EmbeddingRequest) -> dict[str, object]:
        body: dict[str, object] = {
            "model": request.model,
            "texts": request.texts,
            "input_type": f"search_{request.kind}",
            "embedding_types": ["float"],
        }
        if request.dimensions is not None:
            body["output_dimension"] = request.dimensions
        return body

    def read(self, content: bytes) -> EmbeddingAnswer:
        answer = _read_cohere(content)
        return EmbeddingAnswer(
            answer.embeddings.floats, round(answer.meta.billed_units.input_tokens)
        )


_read_items = msgspec.json.Decoder(_Items).decode
_read_cohere = msgspec.json.Decoder(_CohereAnswer).decode


def _numbers(embedding: str | list[float]) -> Any:
    """Return a vector, which servers that know no base64 send as a list."""
    if isinstance(embedding, list):
        return embedding
    return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")


FORMATS: Mapping[str, WireFormat] = {
    "openai": OpenAIFormat(),
    "azure": AzureFormat(),
    "cohere": CohereFormat(),
    "voyage": VoyageFormat(),
}
