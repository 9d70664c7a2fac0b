"""An embedder that is a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence, Sized
from functools import partial
from typing import Any

from headwater.core.batching import batched
from headwater.core.thread_offload import Offload
from headwater.declarations.function_checks import is_async
from headwater.declarations.indexes import EmbedFunction
from headwater.errors import EmbeddingError, HeadwaterError
from headwater.features.user_calls import LimitedCalls, Raising
from headwater.ports import Embedding
from headwater.retrieval.embeddings.embedder import TextKind
from headwater.retrieval.embeddings.vectors import to_embeddings
from headwater.settings.groups import EmbeddingSettings


class FunctionModel:
    """Calls a function with a list of texts; a sync one runs in a thread."""

    def __init__(
        self,
        function: EmbedFunction,
        name: str,
        dimensions: int,
        offload: Offload,
        settings: EmbeddingSettings,
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self.is_async = is_async(function)
        self.timeout = None
        self._function = function
        self._calls = LimitedCalls(offload, settings.timeout)
        self._batch_size = settings.batch_size

    def batches(self, texts: Sequence[str]) -> Iterable[Sequence[str]]:
        return batched(texts, self._batch_size)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        with Raising(partial(_failed, self.name)):
            call = partial(self._function, list(texts))
            vectors = await self._calls.call(self, call, _timed_out, _sized)
        return to_embeddings(self, vectors, len(texts))


def _sized(vectors: Any) -> Any:
    """Return vectors as they are, or those of an iterator; an awaitable stays one."""
    is_ready = isinstance(vectors, Sized) or inspect.isawaitable(vectors)
    return vectors if is_ready else list(vectors)


def _timed_out(name: str, seconds: float) -> EmbeddingError:
    return EmbeddingError(
        name,
        f"it timed out after {seconds:g} s",
        "make it faster, or raise HEADWATER_EMBEDDINGS_TIMEOUT",
    )


def _failed(name: str, raised: Exception) -> HeadwaterError:
    problem = f"it raised {type(raised).__name__}: {raised}"
    return EmbeddingError(name, problem, "correct the function, or the service that it calls")
