"""Embedders that need no key and no server: the local model, and one that compares words."""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np

from headwater.core.batching import batched
from headwater.core.blas_threads import single_blas_thread
from headwater.errors import ConfigError
from headwater.ports import Embedding
from headwater.retrieval.analysis import terms
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL, TextKind
from headwater.retrieval.embeddings.minilm import DIMENSIONS, MiniLM, model_folder
from headwater.retrieval.embeddings.vectors import to_embeddings

_BATCH = 16
# A window and its two marks are the 256 word pieces that the model was made for.
_WINDOW = 254
_MAX_WINDOWS = 8
_MAX_CHARACTERS = 65_536


class LocalModel:
    """MiniLM in threads, so that the event loop is never blocked.

    Queries have threads of their own, so that none waits for the batches of a document.
    """

    name = "local/all-MiniLM-L6-v2"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        # A batch is computed in one thread; see single_blas_thread.
        self._threads: dict[TextKind, ThreadPoolExecutor] = {
            kind: ThreadPoolExecutor(os.cpu_count(), f"headwater-{kind}-embedding")
            for kind in get_args(TextKind)
        }

    def batches(self, texts: Sequence[str]) -> Iterable[Sequence[str]]:
        return batched(texts, _BATCH)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[kind], self._embed, texts)

    def close(self) -> None:
        """End the threads when they have embedded their batches."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: Sequence[str]) -> list[Embedding]:
        model = local_model()
        windows = [list(_windows(model, text)) for text in texts]
        flat = [window for of_text in windows for window in of_text]
        with single_blas_thread():
            vectors = np.concatenate([model.embed(some) for some in batched(flat, _BATCH)])
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        ends = np.cumsum([len(of_text) for of_text in windows])[:-1]
        means = [part.mean(axis=0) for part in np.split(vectors, ends)]
        return to_embeddings(self, means, len(texts))


def _windows(model: MiniLM, text: str) -> Iterator[Sequence[int]]:
    """Yield the word pieces of a text, in windows of about the same size.

    Chunks of 400 tokens exceed one window. In a test with 160 such chunks of documentation, the
    mean of the windows found the chunk of a sentence with an MRR of 0.51, the first window with
    0.45.
    """
    # A half of a surrogate pair has no UTF-8 form, which the tokenizer needs.
    clean = text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode()
    pieces = model.pieces(clean)[: _WINDOW * _MAX_WINDOWS]
    count = max(1, -(-len(pieces) // _WINDOW))
    bounds = [len(pieces) * number // count for number in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield pieces[begin:end]


@cache
def local_model() -> MiniLM:
    """Return the model, which is loaded once for each process."""
    return MiniLM(check_model_files())


def check_model_files() -> Path:
    """Return the folder with the files of the model; raise ConfigError if there is none."""
    folder = model_folder()
    if folder is None:
        raise ConfigError(
            "the files of the local embedding model are not installed: "
            f"`{INSTALL_LOCAL_MODEL}`, or choose another provider"
        )
    return folder


# Words that say little about a subject. They count, so that a text of nothing else has a vector.
_COMMON = frozenset(
    terms(
        "a about after all also am an and any are as at be been but by can could did do does for "
        "from get had has have he her his how i if in into is it its just me more my no not of on "
        "or our she so some than that the their them then there these they this to up us was we "
        "were what when where which who why will with would you your"
    )
)
_COMMON_WEIGHT = 0.1
# Words with a common beginning are often forms of one word: refund, refunded, refunding.
_BEGINNING = 5
_BEGINNING_WEIGHT = 0.7
# Embedding fewer characters takes less time than a thread hop.
_EMBED_INLINE = 4_000


class LexicalEmbedder:
    """Feature hashing of the terms of a text, equal in every process and on every machine."""

    name = "lexical/1"
    # Texts without a common word have a cosine of 0, or less if words share a dimension.
    min_score = 1e-6

    def __init__(self, dimensions: int | None = None) -> None:
        self.dimensions = dimensions or 1024

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        if sum(map(len, texts)) <= _EMBED_INLINE:
            return self._embed_all(texts)
        return await asyncio.to_thread(self._embed_all, texts)

    def _embed_all(self, texts: Sequence[str]) -> list[Embedding]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> Embedding:
        vector = np.zeros(self.dimensions)
        for feature, weight in _features(text):
            number, sign = _hash(feature)
            vector[number % self.dimensions] += sign * weight
        length = float(np.linalg.norm(vector))
        if length == 0:  # a text without words, or whose words cancel each other
            number, length = _hash(text)
            vector[number % self.dimensions] = length
        return (vector / length).astype("<f4").tobytes()


def _features(text: str) -> Iterator[tuple[str, float]]:
    for term, count in Counter(terms(text)).items():
        if term in _COMMON:
            yield term, _COMMON_WEIGHT
            continue
        yield term, 1 + math.log(count)
        if len(term) >= _BEGINNING:
            yield f"{term[:_BEGINNING]}-", _BEGINNING_WEIGHT


@lru_cache(65_536)
def _hash(term: str) -> tuple[int, float]:
    """Return a number, which chooses the dimension of a term, and a sign.

    With signs, terms that share a dimension cancel each other as often as they add up.
    """
    digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    number = int.from_bytes(digest, "little")
    return number >> 1, 1.0 if number & 1 else -1.0
