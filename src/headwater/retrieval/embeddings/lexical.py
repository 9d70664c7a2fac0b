"""An embedder that compares words, not meaning; it needs no model."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from headwater.ports import Embedding
from headwater.retrieval.analysis import terms
from headwater.retrieval.embeddings.embedder import TextKind

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
