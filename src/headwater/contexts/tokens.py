"""Tokens: how many a text has, exactly for OpenAI's encodings and by a named estimate elsewhere.

Counts do not add up: a full stop and the empty line after it may be one token, and two tokens side
by side three. A *break* is a place where they do add up: no token spans it, whatever stands before
and after. The encodings first split a text into words, numbers, punctuation and white space, so
breaks are there to be seen, and `_BREAK` sees most of them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headwater.core.templates import MARK

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")

_O200K = re.compile(r"(chatgpt-4o|gpt-4o|gpt-4\.[15]|gpt-5(\.\d+)?|gpt-oss|o[134])([-:@].*)?")
_CL100K = re.compile(
    r"(gpt-4|gpt-3\.5|gpt-35|text-embedding-3|text-embedding-ada-002|(davinci|babbage)-002)"
    r"([-:@].*)?"
)

# Of the two it is the one that counts more, outside of English by far. Measured on 24 texts (16
# languages, code, JSON, logs, hashes, emoji) against eleven vocabularies, from Llama 2 and Claude 2
# to Gemma 3 and Qwen 3: none needs 30 % more for all of them. A single text may: digits, 52 %.
_ESTIMATE = "cl100k_base"
_ESTIMATE_MARGIN_PERCENT = 30

# A text of up to middling length is remembered as it is, which is quickest, and a longer one by its
# hash, so that memory does not grow with it: some 16 MB of texts and as much of hashes.
_MIDDLING = 2_048
_TEXTS_REMEMBERED = 8_192
_HASHES_REMEMBERED = 32_768
_NEARBY = 32

_SPECIAL = "|"
"""What every special token has in it."""
_TOKEN_BYTES = 4

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
    """A text between separators: its tokens, and where they depend on what stands beside it."""

    tokens: int
    breaks: bool
    """Whether the text has a break, be it at one of its ends."""

    inner: int
    """Tokens from the first break to the last, which nothing beside the text changes."""

    left: str
    """What stands before the first break: all of it, if there is none."""

    right: str
    """What stands after the last break: all of it, if there is none."""


class Tokenizer(msgspec.Struct, frozen=True):
    """A way of counting tokens; where it is not exact, a budget is kept with a margin."""

    name: str
    exact: bool
    margin_percent: int

    def count(self, text: str) -> int:
        """How many tokens a text has; strings that look like special tokens are plain text."""
        if len(text) <= _MIDDLING:
            return _known_count(self.name, text)
        key = (self.name, _digest(text))
        known = _counts.get(key)
        return _counts.put(key, self.recount(text) if known is None else known)

    def recount(self, text: str) -> int:
        """The same, counted now and not remembered."""
        return _count(self.name, text)

    def count_joined(self, texts: Sequence[str], separator: str) -> int:
        """How many tokens texts have with separators between them; quick if each was counted."""
        # Where a line ends and the next text begins is a break; so each text adds up with the
        # separator behind it, and the last one is by itself.
        if not separator.endswith("\n") or not all(map(_begins_word, texts[1:])):
            return self.recount(separator.join(texts))
        tokens = sum(map(self.count, texts))
        return tokens + sum(self._added(text, separator) for text in texts[:-1])

    def _added(self, text: str, separator: str) -> int:
        """How many tokens more a text has with a separator behind it: it may change the last."""
        space = text.rfind(" ")
        last = text[space:] if space > 0 and not text[space - 1].isspace() else text
        return self.count(last + separator) - self.count(last)

    def edges(self, text: str, separator: str) -> Edges:
        """What `text` adds to any text that it stands in, between two separators or at an end."""
        if len(text) <= _MIDDLING:
            return _known_edges(self, text, separator)
        key = (self.name, _digest(text), separator)
        known = _edges.get(key) or _find_edges(self, text, separator)
        # A text without breaks is its own edge, and is not to be remembered.
        return _edges.put(key, known) if len(known.left + known.right) <= _MIDDLING else known

    def load(self) -> None:
        """Loads the vocabulary, which the first count would otherwise do."""
        _encoding(self.name)

    def usable(self, max_tokens: int) -> int:
        """How many tokens by this count are within a budget for certain, or by the margin."""
        return max_tokens * 100 // (100 + self.margin_percent)

    def budget_for(self, tokens: int) -> int:
        """The smallest budget within which so many tokens are usable."""
        return -(-tokens * (100 + self.margin_percent) // 100)

    def shorten(self, text: str, limit: int) -> str | None:
        """The beginning of a text, and a mark, within so many tokens; None if no word fits.

        It ends with the last word that fits, or with the paragraph or sentence before, if one
        ended within its last eighth.
        """
        if self.count(text) <= limit:
            return text
        for end in _ends(text, self._reach(text, limit - self.count(MARK))):
            beginning = text[:end].rstrip()
            if beginning and self.count(beginning + MARK) <= limit:
                return beginning + MARK
        return None

    def _reach(self, text: str, limit: int) -> int:
        """How many characters the first tokens of a text have."""
        if limit <= 0:
            return 0
        size = 8 * limit
        while len(tokens := _encode(self.name, text[:size])) <= limit and size < len(text):
            size *= 2
        return len(_encoding(self.name).decode_bytes(tokens[:limit]).decode(errors="ignore"))


@lru_cache(_TEXTS_REMEMBERED)
def tokenizer_for(model: str | None) -> Tokenizer:
    """How a model's tokens are counted; ``provider/model`` and fine-tuned models are understood."""
    name = (model or "").lower().rpartition("/")[2].removeprefix("ft:")
    if _O200K.fullmatch(name):
        return Tokenizer("o200k_base", exact=True, margin_percent=0)
    if _CL100K.fullmatch(name):
        return Tokenizer("cl100k_base", exact=True, margin_percent=0)
    return Tokenizer(_ESTIMATE, exact=False, margin_percent=_ESTIMATE_MARGIN_PERCENT)


class _Recent(Generic[K, V]):
    """The values put most recently, each of a few hundred bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> V:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return value


_loading = Lock()
_counts: _Recent[tuple[str, bytes], int] = _Recent(_HASHES_REMEMBERED)
_edges: _Recent[tuple[str, bytes, str], Edges] = _Recent(_HASHES_REMEMBERED)


def _find_edges(tokenizer: Tokenizer, text: str, separator: str) -> Edges:
    tokens = tokenizer.count(text)
    breaks = _breaks(text, separator)
    if breaks is None:
        return Edges(tokens, breaks=False, inner=0, left=text, right=text)
    left, right = text[: breaks[0]], text[breaks[1] :]
    inner = tokens - tokenizer.count(left) - tokenizer.count(right)
    return Edges(tokens, breaks=True, inner=inner, left=left, right=right)


_known_edges = lru_cache(_TEXTS_REMEMBERED)(_find_edges)


@lru_cache(_TEXTS_REMEMBERED)
def _known_count(name: str, text: str) -> int:
    return _count(name, text)


def _digest(text: str) -> bytes:
    return sha256(text.encode(errors="surrogatepass")).digest()


@cache
def _encoding(name: str) -> Any:
    # Loaded when first counted with: that takes a while, and most of Headwater counts nothing.
    with _loading:
        return _loaded(name)


@cache
def _loaded(name: str) -> Any:
    return import_module("splintr").Tokenizer.from_pretrained(name)


def _count(name: str, text: str) -> int:
    if _SPECIAL in text:
        return len(_encode(name, text))
    # Tokens side by side in one block, which is quicker than a list; it would find special ones.
    return len(_whole(_encoding(name).encode_flat, text)) // _TOKEN_BYTES


def _encode(name: str, text: str) -> list[int]:
    return _whole(_encoding(name).encode_ordinary, text)


def _whole(encode: Callable[[str], T], text: str) -> T:
    try:
        return encode(text)
    except UnicodeEncodeError:
        # Half a character is sent as a replacement character, and two halves as a whole one.
        return encode(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _begins_word(text: str) -> bool:
    """Whether there is a break before a text that begins a line."""
    return text != "" and text[0] != "/" and not text[0].isspace()


def _breaks(text: str, separator: str) -> tuple[int, int] | None:
    """Where the first and the last break of a text between separators are, its ends included."""
    framed = separator + text + separator
    start, end = len(separator), len(separator) + len(text)
    match = _BREAK.search(framed, start)
    if match is None or match.start() > end:
        return None
    first = match.start()
    size = _NEARBY
    # From nearby on: most texts have a break just before their end.
    while (low := max(first, end - size)) > first and not _BREAK.search(framed, low, end + 1):
        size *= 8
    *_, match = _BREAK.finditer(framed, low, end + 1)
    return first - start, match.start() - start


def _ends(text: str, reach: int) -> Iterator[int]:
    """Where a text may be cut, the best place first."""
    yield from _backwards(_PARAGRAPH, text, reach * 7 // 8, reach)
    yield from _backwards(_SENTENCE, text, reach * 7 // 8, reach)
    while reach > 0:
        yield from _backwards(_WORD, text, max(0, reach - _NEARBY), reach)
        reach -= _NEARBY + 1


def _backwards(pattern: re.Pattern[str], text: str, low: int, high: int) -> Iterator[int]:
    ends = [match.end() for match in pattern.finditer(text, low, high + 1)]
    return (end for end in reversed(ends) if end <= high)
