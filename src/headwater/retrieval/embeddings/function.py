"""An embedder that is a function of the user."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Sequence, Sized
from contextvars import copy_context
from functools import partial
from typing import Any

from headwater.core.batching import batched
from headwater.core.deadlines import DeadlineError
from headwater.core.thread_calls import ThreadCall
from headwater.core.thread_offload import Offload
from headwater.declarations.indexes import EmbedFunction
from headwater.errors import EmbeddingError, HeadwaterError
from headwater.features.user_calls import Raising
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
        self._function = function
        self._offload = offload
        self._batch_size = settings.batch_size
        self._seconds = settings.timeout

    def batches(self, texts: Sequence[str]) -> Iterable[Sequence[str]]:
        return batched(texts, self._batch_size)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        with Raising(partial(_failed, self.name)):
            vectors = await self._vectors(list(texts))
        return to_embeddings(self, vectors, len(texts))

    async def _vectors(self, texts: list[str]) -> Any:
        try:
            async with asyncio.timeout(self._seconds) as limit:
                result = await self._call(texts)
                while inspect.isawaitable(result):
                    result = await result
                return result if isinstance(result, Sized) else list(result)
        except (DeadlineError, TimeoutError) as error:
            if not (limit.expired() or isinstance(error, DeadlineError)):
                raise  # the function's own
            raise EmbeddingError(
                self.name,
                f"it timed out after {self._seconds:g} s",
                "make it faster, or raise HEADWATER_EMBEDDINGS_TIMEOUT",
            ) from error

    async def _call(self, texts: list[str]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return self._function(texts)
        call = ThreadCall(self._offload, self, self._seconds, copy_context(), self._function, texts)
        return await self._offload.call(call)


def _failed(name: str, raised: Exception) -> HeadwaterError:
    problem = f"it raised {type(raised).__name__}: {raised}"
    return EmbeddingError(name, problem, "correct the function, or the service that it calls")
