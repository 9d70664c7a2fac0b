"""Splitting documents into chunks: at headings, paragraphs, sentences and lines, in that order.

A document is divided into units, each with the rank of the boundary before it. Units are joined
until they fill a chunk, and separated first at the boundaries of the best rank. Among equal ones,
the text after a boundary decides, not its distance from the start of the document: so after an
edit, the boundaries soon fall where they were before, and most chunks stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, cast
from zlib import crc32

from headwater.core.graphemes import grapheme_start
from headwater.core.tokens import Tokenizer, tokenizer_for

_MODEL = "text-embedding-3-small"
_TOKEN_CHARACTERS = 4
"""Characters of a token, on average; where tokens are longer, overlaps are shorter."""
_CHARACTER_TOKENS = 4
"""Tokens of a character at most."""
_WINDOW = 16
"""Characters, for each token of a chunk, that semchunk divides at once; its recursion is deep."""
_SAMPLE = 64
"""Characters after a boundary that decide between it and others of its rank."""
_WORD = re.compile(r"\S+\s*")
Boundaries: TypeAlias = Callable[[int, int], Iterator[int]]
"""A function that yields the positions inside a part of a text at which it may be divided."""
BlockKind = Literal["heading", "paragraph", "code", "table"]
_END = r"(?:\r\n?|\n)"
_REST = rf"[^\r\n]*+{_END}?+"
_FENCE = r"[ ]{0,3}(?:`{3,}(?=[^`\r\n]*+(?:[\r\n]|\Z))|~{3,})"
_HEADING = r"[ ]{0,3}\#{1,6}(?=[\s]|\Z)"
_ITEM = r"[ \t]*+(?:[-*+•]|\d{1,9}[.)])[ \t]"
_ROW = r"[ \t]*+\|"
# Quantifiers are possessive (`*+`), so that no text makes the search try a match in many ways.
_BLOCK = re.compile(
    rf"""
    (?:
        (?P<heading> {_HEADING}{_REST} )
      | (?P<underlined> (?!{_ITEM}|{_FENCE}|{_ROW})[^\r\n]*+{_END}
            [ ]{{0,3}}(?P<line>=++|-++)[ \t]*+(?:{_END}|\Z) )
      | (?P<code>
            [ ]{{0,3}}(?P<marks>`{{3,}}(?=[^`\r\n]*+(?:[\r\n]|\Z))|~{{3,}}){_REST}
            (?:(?![ ]{{0,3}}(?P=marks))[^\r\n]*+{_END})*+ {_REST}
          | (?:(?:[ ]{{4}}|\t){_REST})++ )
      | (?P<table> (?:{_ROW}{_REST})++ )
      | (?P<paragraph>
            [^\r\n]++{_END}?+
            (?:(?!{_HEADING}|{_FENCE}|{_ROW}|\s*+(?:[\r\n]|\Z))[^\r\n]++{_END}?+)*+ )
    )
    (?:[^\S\r\n]*+{_END})*+
    """,
    re.VERBOSE,
)
_EMPTY_LINES = re.compile(r"(?:\s*[\r\n])?")
# A sentence does not begin with a small letter: that would be an abbreviation.
_SENTENCE = re.compile(
    # also Arabic, Devanagari, Ethiopic, Burmese and Khmer
    r"[.!?…\u061f\u06d4\u0964\u0965\u1362\u104b\u17d4][\"'”’)\]]*+\s++(?![a-z])"
    # Chinese and Japanese, where no space follows
    r"|[\u3002\uff01\uff1f][”’」』\uff09]*+\s*+"
    rf"|[\r\n](?={_ITEM})"
)
_CODE_PARAGRAPH = re.compile(rf"{_END}[^\S\r\n]*+{_END}(?=\S)")
_SPACE = re.compile(r"\s++")
_LINE = re.compile(rf"{_END}(?=[^\r\n])")


class _Rank(IntEnum):
    """The boundary before a unit, best first; a heading's rank is its level, from 1 to 6."""

    START = 0
    SMALLEST_HEADING = 6
    BLOCK = 7
    CODE_AFTER_HEADING = 8
    SENTENCE = 9
    LINE = 10
    WORDS = 11
    TEXT_AFTER_HEADING = 12


class _Unit(NamedTuple):
    """A part of a text that stays in one chunk, and the rank of the boundary before it."""

    start: int
    end: int
    rank: int
    tokens: int


def split(text: str, chunk_tokens: int, overlap: int) -> list[str]:
    """Split a text into chunks of at most `chunk_tokens` tokens, as an `Index` declares them.

    A chunk that does not begin with a heading starts with up to `overlap` tokens of the text before
    it. Without these, the chunks are the text, except for white space between them; a text of
    white space has none. A long text takes a while: call this in a thread.
    """
    return list(_Splitter(text, tokenizer_for(_MODEL), chunk_tokens, overlap).chunks())


class _Splitter:
    """A text, and the sizes of its chunks."""

    def __init__(self, text: str, tokenizer: Tokenizer, limit: int, overlap: int) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._limit = limit
        self._overlap = overlap

    def chunks(self) -> Iterator[str]:
        previous = 0
        units = [unit for unit in self._units() if self._content(unit.start, unit.end)]
        for group in self._groups(units):
            for start, end, rank in self._fitting(group):
                first = self._overlap_start(previous, start, end, rank)
                yield self._content(first, end)
                previous = start

    def _content(self, start: int, end: int) -> str:
        """Return a part of the text without empty lines before it and white space after it."""
        return self._text[content_start(self._text, start, end) : end].rstrip()

    def _count(self, start: int, end: int) -> int:
        return self._tokenizer.recount(self._content(start, end))

    # Dividing the text into units

    def _units(self) -> Iterator[_Unit]:
        heading_tokens = 0  # of the headings directly before a block
        is_first = True
        for start, end, kind, level in blocks(self._text):
            tokens = self._unit_tokens(start, end)
            rank: int = level or _Rank.BLOCK
            if is_first:
                rank = _Rank.START
            elif heading_tokens:
                rank = _Rank.CODE_AFTER_HEADING if kind == "code" else _Rank.TEXT_AFTER_HEADING
            # Text is divided to keep its beginning with the heading, code is not.
            joined = tokens if kind == "code" else tokens + heading_tokens
            if joined <= self._limit:
                yield _Unit(start, end, rank, tokens)
            else:
                yield from self._divided(start, end, rank, self._boundaries(kind))
            heading_tokens = heading_tokens + tokens if kind == "heading" else 0
            is_first = False

    def _unit_tokens(self, start: int, end: int) -> int:
        """Return the tokens of a unit with the white space after it, if that fits too."""
        tokens = self._tokenizer.recount(self._text[start:end])
        return tokens if tokens <= self._limit else max(self._limit, self._count(start, end))

    def _boundaries(self, kind: BlockKind) -> list[tuple[int, Boundaries]]:
        sentence = code_paragraphs if kind == "code" else sentences
        first = [] if kind == "table" else [(_Rank.SENTENCE, partial(sentence, self._text))]
        return [*first, (_Rank.LINE, partial(lines, self._text)), (_Rank.WORDS, self._words)]

    def _divided(
        self, start: int, end: int, rank: int, boundaries: Sequence[tuple[int, Boundaries]]
    ) -> Iterator[_Unit]:
        """Divide text at the first boundaries, and parts that are too long at the next."""
        (inner_rank, positions), *rest = boundaries
        for first, last in pairwise((start, *positions(start, end), end)):
            tokens = self._unit_tokens(first, last)
            rank = rank if first == start else inner_rank
            if tokens <= self._limit or not rest:
                yield _Unit(first, last, rank, tokens)
            else:
                yield from self._divided(first, last, rank, rest)

    def _words(self, start: int, end: int) -> Iterator[int]:
        """Yield positions between clauses or words, and inside words that are too long."""
        while start < end:
            stop = self._clauses_end(start, end)
            if stop > start:
                yield from self._clauses(start, stop)
            else:
                stop = start + self._tokenizer.fitting(self._window(start, end), self._limit)
            if stop < end:
                yield stop
            start = stop

    def _window(self, start: int, end: int) -> str:
        stop = grapheme_start(self._text, min(end, start + _TOKEN_CHARACTERS * self._limit))
        return self._text[start : stop if stop > start else end]

    def _clauses_end(self, start: int, end: int) -> int:
        """Return the end of the next words, none of which is long; `start` if the first is."""
        stop = start
        for word in _WORD.finditer(self._text, start, min(end, start + _WINDOW * self._limit)):
            if _CHARACTER_TOKENS * len(word.group()) > self._limit:
                break
            stop = word.end()
        return stop

    def _clauses(self, start: int, end: int) -> Iterator[int]:
        # Imported on first use: most processes index nothing. The memory of its own cache of counts
        # is not bounded.
        chunk = import_module("semchunk").chunk
        text = self._text[start:end]
        _, offsets = chunk(text, self._limit, self._tokenizer.recount, memoize=False, offsets=True)
        return (start + first for first, _ in offsets[1:])

    # Joining units

    def _groups(self, units: Sequence[_Unit]) -> Iterator[Sequence[_Unit]]:
        """Yield the units of each chunk."""
        if self._is_chunk(units):
            yield units
            return
        best = min(unit.rank for unit in units[1:])
        short: list[Sequence[_Unit]] = []
        for part in _parts(units, best):
            if self._is_chunk(part):
                short.append(part)
            else:
                yield from self._joined(short)
                short = []
                yield from self._groups(part)
        yield from self._joined(short)

    def _is_chunk(self, units: Sequence[_Unit]) -> bool:
        return len(units) <= 1 or _tokens(units) <= self._room(units[0])

    def _room(self, unit: _Unit) -> int:
        """Return the most tokens of a chunk without its overlap, by its first unit."""
        return self._limit - self._overlap * (unit.rank > _Rank.SMALLEST_HEADING)

    def _joined(self, parts: Sequence[Sequence[_Unit]]) -> Iterator[Sequence[_Unit]]:
        """Yield the units of chunks that adjacent short parts are joined to."""
        first = 0
        while first < len(parts):
            ends = self._ends(parts, first)
            is_last = ends[-1] == len(parts)
            last = ends[-1] if is_last else min(reversed(ends), key=partial(self._sample, parts))
            yield [unit for part in parts[first:last] for unit in part]
            first = last

    def _ends(self, parts: Sequence[Sequence[_Unit]], first: int) -> range:
        """Return where a chunk may end: after the parts that fit, or some less, but half full."""
        room = self._room(parts[first][0])
        tokens = _tokens(parts[first])
        half = last = first + 1
        while last < len(parts) and tokens + _tokens(parts[last]) <= room:
            half = half if 2 * tokens >= room else last + 1
            tokens += _tokens(parts[last])
            last += 1
        return range(half, last + 1)

    def _sample(self, parts: Sequence[Sequence[_Unit]], at: int) -> int:
        start = parts[at][0].start
        return crc32(self._text[start : start + _SAMPLE].encode())

    # Chunks

    def _fitting(self, units: Sequence[_Unit]) -> Iterator[tuple[int, int, int]]:
        """Yield start, end and rank of a chunk, or of several if counts were not additive."""
        while units:
            start, end = units[0].start, units[-1].end
            size = len(units)
            while size > 1 and self._count(start, end) > self._limit:
                size -= 1
                end = units[size - 1].end
            yield start, end, units[0].rank
            units = units[size:]

    def _overlap_start(self, previous: int, start: int, end: int, rank: int) -> int:
        """Return where a chunk begins that overlaps with the one before it."""
        if rank <= _Rank.SMALLEST_HEADING or not self._overlap:
            return start
        room = min(self._overlap, self._limit - self._count(start, end))
        first = max(previous, start - _TOKEN_CHARACTERS * room)
        for positions in (sentences, lines, words, graphemes):
            candidates = list(positions(self._text, first, start))
            # Fewer tokens follow a later position.
            best = bisect_left(candidates, -room, key=lambda at: -self._count(at, start))
            for position in candidates[best:]:
                if self._count(position, end) <= self._limit:
                    return position
        return start


def _tokens(units: Sequence[_Unit]) -> int:
    return sum(unit.tokens for unit in units)


def _parts(units: Sequence[_Unit], rank: int) -> Iterator[Sequence[_Unit]]:
    """Split units at the boundaries of a rank."""
    starts = [at for at in range(1, len(units)) if units[at].rank == rank]
    return (units[first:last] for first, last in pairwise((0, *starts, len(units))))


class Block(NamedTuple):
    """A part of a text that begins with a line; the empty lines after it belong to it."""

    start: int
    end: int
    kind: BlockKind
    level: int = 0
    """The level of a heading, from 1 to 6."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a text; all but empty lines at its start belongs to one.

    A text that is not Markdown consists of paragraphs, which end at empty lines.
    """
    start = content_start(text, 0, len(text))
    while start < len(text) and (match := _BLOCK.match(text, start)):
        kind = match.lastgroup
        if kind == "heading":
            yield Block(start, match.end(), "heading", match["heading"].count("#", 0, 9))
        elif kind == "underlined":
            yield Block(start, match.end(), "heading", 1 if match["line"][0] == "=" else 2)
        else:
            yield Block(start, match.end(), cast("BlockKind", kind))
        start = match.end()


def content_start(text: str, start: int, end: int) -> int:
    """Return the start of the first line with content, which may be indented."""
    match = _EMPTY_LINES.match(text, start, end)
    return match.end() if match else start


def sentences(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where sentences and list items begin inside a part of a text."""
    return _ends(_SENTENCE, text, start, end)


def code_paragraphs(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where lines without indentation follow an empty line inside a part of a text."""
    return _ends(_CODE_PARAGRAPH, text, start, end)


def lines(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where lines begin inside a part of a text."""
    return _ends(_LINE, text, start, end)


def words(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where words begin inside a part of a text with spaces."""
    return _ends(_SPACE, text, start, end)


def graphemes(text: str, start: int, end: int) -> Iterator[int]:
    """Yield where graphemes, the characters that people see, begin inside a part of a text."""
    return (at for at in range(start + 1, end) if grapheme_start(text, at) == at)


def _ends(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[int]:
    return (match.end() for match in pattern.finditer(text, start, end) if match.end() < end)
