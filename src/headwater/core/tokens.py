"""Counting tokens: exactly for OpenAI's encodings, by a named estimate for other models.

Counts are not additive: a full stop and the empty line after it may be one token, and two adjacent
tokens may become three. A *break* is a position where they are additive: no token spans it,
regardless of the text around it. The encodings first split a text into words, numbers, punctuation
and white space, so most breaks can be found with a pattern, `_BREAK`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headwater.core.encodings import encoding, folder_encoding, warm_up
from headwater.core.graphemes import grapheme_start
from headwater.core.models import Model, default_models
from headwater.core.templates import MARK

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

# The one of the two encodings that counts more, by far outside of English. Measured on 24 texts (16
# languages, code, JSON, logs, hashes, emoji) with eleven vocabularies, from Llama 2 and Claude 2 to
# Gemma 3 and Qwen 3: none needs 30 % more tokens for all texts. A single text may: digits, 52 %.
_ESTIMATE = "cl100k_base"
_ESTIMATE_MARGIN_PERCENT = 30

# Long texts are counted in pieces that end where words do. The encodings of open models may see
# other words, and then count each piece by a token more or less.
_FOLDER_MARGIN_PERCENT = 3

# The cache key of a short text is the text itself, which is fastest; that of a longer text is its
# hash, which bounds the memory: some 16 MB of texts and as much of hashes.
_LONGEST_KEY = 2_048
_CACHED_TEXTS = 8_192
_CACHED_HASHES = 32_768
_NEARBY = 32

_PIECE = 4_096
"""Characters of a long text that are counted at once."""
_WINDOW = 32_768
"""Characters of a long text that are searched for a break at once."""
_LONGEST_WORD = 64

_WIDE = "\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3"
_BREAK = re.compile(
    # after the end of a line; a slash would belong to the punctuation before it
    r"(?<=\n)(?=[^\s/])"
    # before the space between two words
    r"|(?<=\S)(?=[ \t])"
    # after a word or a number; an apostrophe could go on with it
    rf"|(?<=[0-9A-Za-z{_WIDE}])(?=[!-&(-/:-@\[-`{{-~\r\n\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f])"
)

_PARAGRAPH = re.compile(r"\n[^\S\n]*(?=\n)")
_SENTENCE = re.compile(r"[.!?…][\"'”’)\]]*(?=\s)|[\u3002\uff01\uff1f][”’」』\uff09]*")
_WORD = re.compile(rf"(?<=\S)(?=\s)|(?<=[{_WIDE}])(?=[{_WIDE}])")


class Edges(NamedTuple):
    """A text between separators: its tokens, and the ends where they depend on the neighbours."""

    tokens: int
    breaks: bool
    """True if the text has a break, including one at either end."""

    inner: int
    """Tokens from the first break to the last, which do not depend on the neighbours."""

    left: str
    """The text before the first break: all of it without a break."""

    right: str
    """The text after the last break: all of it without a break."""


class Tokenizer(msgspec.Struct, frozen=True):
    """A way of counting tokens; an inexact one keeps a margin of the budget free."""

    name: str
    exact: bool
    margin_percent: int

    def count(self, text: str) -> int:
        """Return the number of tokens; strings that look like special tokens are plain text."""
        if len(text) <= _LONGEST_KEY:
            return _cached_count(self.name, text)
        key = (self.name, _digest(text))
        cached = _counts.get(key)
        return _counts.put(key, self.recount(text) if cached is None else cached)

    def recount(self, text: str) -> int:
        """Return the number of tokens without the cache."""
        return _count(self.name, text)

    def recount_whole(self, text: str) -> int:
        """Return the number of tokens of a text that is encoded at once, however long it is."""
        return len(self._ids(text))

    def count_joined(self, texts: Sequence[str], separator: str, alone: int | None = None) -> int:
        """Return the number of tokens of joined texts; fast if each text was counted before.

        ``alone`` is the sum of their own numbers, if it is known.
        """
        # A break lies between the end of a line and the next text, so the counts of each text with
        # the separator after it are additive.
        if not separator.endswith("\n") or not all(map(_begins_word, texts[1:])):
            return self.recount(separator.join(texts))
        tokens = sum(map(self.count, texts)) if alone is None else alone
        return tokens + sum(self._added(text, separator) for text in texts[:-1])

    def _added(self, text: str, separator: str) -> int:
        """Return how many tokens a separator adds to a text; it may change the last token."""
        space = text.rfind(" ")
        last = text[space:] if space > 0 and not text[space - 1].isspace() else text
        return self.count(last + separator) - self.count(last)

    def edges(self, text: str, separator: str) -> Edges:
        """Return what `text` adds to a text between two separators, or at either end."""
        if len(text) <= _LONGEST_KEY:
            return _cached_edges(self, text, separator)
        key = (self.name, _digest(text), separator)
        edges = _edges.get(key) or _find_edges(self, text, separator)
        # The edges of a text without breaks are the whole text, which would fill the cache.
        return _edges.put(key, edges) if len(edges.left + edges.right) <= _LONGEST_KEY else edges

    def load(self) -> None:
        """Load the vocabulary, which the first counts would do otherwise.

        Call it in a thread: it takes a few hundred milliseconds.
        """
        warm_up(self.name)

    def usable(self, max_tokens: int) -> int:
        """Return how many counted tokens stay within a budget, with the margin."""
        return max_tokens * 100 // (100 + self.margin_percent)

    def budget_for(self, tokens: int) -> int:
        """Return the smallest budget in which this number of tokens is usable."""
        return -(-tokens * (100 + self.margin_percent) // 100)

    def shorten(self, text: str, limit: int) -> str | None:
        """Return the beginning of a text and a mark within a limit, or None if nothing fits.

        It ends with the last word that fits, or with a paragraph or sentence that ends within the
        last eighth. A text without spaces nearby, such as JSON, a URL or Thai, is cut after the
        last grapheme that fits, and a grapheme that is too large between its tokens.
        """
        if self.count(text) <= limit:
            return text
        for end in _ends(text, self._reach(text, limit - self.count(MARK))):
            beginning = text[:end].rstrip()
            if beginning and self.count(beginning + MARK) <= limit:
                return beginning + MARK
        return None

    def fitting(self, text: str, limit: int) -> int:
        """Return the length of the beginning of a text that fits, ending as in `shorten`.

        It is at least 1, because the tokens of a single character cannot be separated.
        """
        reach = self._reach_in_piece(text, limit)
        if reach == len(text):
            return reach
        ends = _ends(text, reach)
        return next((end for end in ends if end and self.recount(text[:end]) <= limit), 1)

    def _reach(self, text: str, limit: int) -> int:
        """Return the number of characters of the first tokens of a text."""
        start = 0
        for piece in _pieces(text):
            tokens = self.recount(piece)
            if tokens > limit:
                return start + self._reach_in_piece(piece, limit)
            limit -= tokens
            start += len(piece)
        return start

    def _reach_in_piece(self, text: str, limit: int) -> int:
        if limit <= 0:
            return 0
        size = 8 * limit
        while len(ids := self._ids(text[:size])) <= limit and size < len(text):
            size *= 2
        beginning = encoding(self.name).decode(ids[:limit])
        return len(beginning.decode(errors="ignore"))

    def _ids(self, text: str) -> Sequence[int]:
        return _encode_repaired(lambda repaired: encoding(self.name).ids([repaired]), text)


def tokenizer_for(model: str | None) -> Tokenizer:
    """Return the tokenizer of a model, which may be ``provider/model`` or fine-tuned."""
    return tokenizer_of(default_models().find(model))


def tokenizer_of(model: Model) -> Tokenizer:
    """Return the tokenizer of the text of a model."""
    if model.folder is not None:
        name = folder_encoding(model.folder)
        return Tokenizer(name, exact=False, margin_percent=_FOLDER_MARGIN_PERCENT)
    if model.encoding is not None:
        return Tokenizer(model.encoding, exact=True, margin_percent=0)
    return Tokenizer(_ESTIMATE, exact=False, margin_percent=_ESTIMATE_MARGIN_PERCENT)


class _RecentCache(Generic[K, V]):
    """A thread-safe cache of the values put most recently."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)
        return value


_counts: _RecentCache[tuple[str, bytes], int] = _RecentCache(_CACHED_HASHES)
_edges: _RecentCache[tuple[str, bytes, str], Edges] = _RecentCache(_CACHED_HASHES)


def _find_edges(tokenizer: Tokenizer, text: str, separator: str) -> Edges:
    tokens = tokenizer.count(text)
    breaks = _breaks(text, separator)
    if breaks is None:
        return Edges(tokens, breaks=False, inner=0, left=text, right=text)
    left, right = text[: breaks[0]], text[breaks[1] :]
    inner = tokens - tokenizer.count(left) - tokenizer.count(right)
    return Edges(tokens, breaks=True, inner=inner, left=left, right=right)


_cached_edges = lru_cache(_CACHED_TEXTS)(_find_edges)


@lru_cache(_CACHED_TEXTS)
def _cached_count(name: str, text: str) -> int:
    return _count(name, text)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()


def _count(name: str, text: str) -> int:
    if len(text) > _PIECE:
        return _encode_repaired(partial(_count_pieces, name), text)
    return _encode_repaired(encoding(name).count, text)


def _count_pieces(name: str, text: str) -> int:
    return len(encoding(name).ids(_pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Split a text at breaks, so that the counts of the pieces are additive."""
    start = 0
    while (end := _next_break(text, start + _PIECE)) is not None:
        yield text[start:end]
        start = end
    yield text[start:]


def _encode_repaired(encode: Callable[[str], T], text: str) -> T:
    try:
        return encode(text)
    except UnicodeEncodeError:
        # A lone surrogate becomes a replacement character, and a pair of them one character.
        return encode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _begins_word(text: str) -> bool:
    """Return True if there is a break before a text at the start of a line."""
    return text != "" and text[0] != "/" and not text[0].isspace()


def _breaks(text: str, separator: str) -> tuple[int, int] | None:
    """Return the first and the last break of a text between separators, ends included."""
    framed = separator + text + separator
    start, end = len(separator), len(separator) + len(text)
    first = _next_break(framed, start)
    if first is None or first > end:
        return None
    # Search near the end first: most texts have a break just before their end.
    last, size = end, _NEARBY
    while not (matches := list(_BREAK.finditer(framed, max(first, last - size), last + 1))):
        last -= size + 1
        size = min(8 * size, _WINDOW)
    return first - start, matches[-1].start() - start


def _next_break(text: str, start: int) -> int | None:
    """Return the position of the first break from `start` on.

    A search keeps the interpreter lock, so a long one is divided.
    """
    while start <= len(text):
        match = _BREAK.search(text, start, start + _WINDOW)
        if match is not None:
            return match.start()
        start += _WINDOW - 1  # a match looks at the next character, so the last one counts again
    return None


def _ends(text: str, reach: int) -> Iterator[int]:
    """Yield the positions at which a text may be cut, the best first."""
    yield from _backwards(_PARAGRAPH, text, reach * 7 // 8, reach)
    yield from _backwards(_SENTENCE, text, reach * 7 // 8, reach)
    # A word that ends further back would leave out most of a text without spaces.
    low, high = min(reach // 2, reach - _LONGEST_WORD), reach
    while high > max(0, low):
        yield from _backwards(_WORD, text, max(0, low, high - _NEARBY), high)
        high -= _NEARBY + 1
    yield from (grapheme_start(text, end) for end in _steps_back(reach))
    yield from _steps_back(reach)


def _steps_back(reach: int) -> Iterator[int]:
    """Yield positions from a position to the start, at growing distances."""
    distance = 0
    while distance < reach:
        yield reach - distance
        distance = 2 * distance + 1
    if reach:
        yield 1


def _backwards(pattern: re.Pattern[str], text: str, low: int, high: int) -> Iterator[int]:
    ends = [match.end() for match in pattern.finditer(text, low, high + 1)]
    return (end for end in reversed(ends) if end <= high)
