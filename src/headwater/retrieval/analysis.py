"""The terms of a text, by which text search finds it: equal on every store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from unicodedata import normalize

MAX_TERM = 64
"""The length of the longest term; longer words, such as encoded data, are cut."""

# Scripts that are written without spaces, or with endings attached to each word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003fffd"
)
# Signs inside of words that Python does not count as word characters: accents that have no
# composed form, vowel signs and points.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0903\u093a-\u094f\u0981-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83"
    "\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b4d\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c4d"
    "\u0c81-\u0c83\u0cbc-\u0ccd\u0d00-\u0d03\u0d3b-\u0d4d\u0d81-\u0d83\u0dca-\u0ddf"
)
_APOSTROPHES = re.compile(r"(?<=\w)['’](?:s\b)?")
_ENGLISH = re.compile(r"[a-z]{4,}")
_ENDINGS = ("che", "she", "sse", "xe", "zze", "oe")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in their order and with repetitions.

    Words are compared without case and without the ending of an English plural. Texts without
    spaces between words, such as Chinese, become pairs of characters that follow each other.

    >>> terms("The user's Orders, re-opened: 東京都")
    ['the', 'user', 'order', 're', 'opened', '東京', '京都']
    """
    folded = normalize("NFKC", normalize("NFKC", text).casefold())
    return list(_terms(_APOSTROPHES.sub("", folded)))


@cache
def _runs() -> re.Pattern[str]:
    """Compile the pattern of words on first use: that takes longer than to load this package."""
    word = rf"[^\W_{_UNSPACED}]"
    return re.compile(rf"([{_UNSPACED}]+)|{word}(?:{word}|[{_MARKS}])*")


def _terms(folded: str) -> Iterator[str]:
    for match in _runs().finditer(folded):
        run = match[0]
        if match[1] is None:
            yield _singular(run[:MAX_TERM])
        elif len(run) == 1:
            yield run
        else:
            yield from map("".join, pairwise(run))


def _singular(word: str) -> str:
    """Return the form that an English word and its plural have in common.

    An ``e`` that may belong to the ending is dropped in both: *cach* of cache and caches.
    """
    if not _ENGLISH.fullmatch(word):
        return word
    if word.endswith("s") and word[-2] not in "ius":
        word = word[:-1]
    if word.endswith("ie") and len(word) > 3:
        return word[:-2] + "y"
    return word[:-1] if word.endswith(_ENDINGS) else word
