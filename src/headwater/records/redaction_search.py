"""Mentions: how a value is found inside of others and of texts, however it is written there. Pure.

A template writes values in its own way, JSON in another and Python in a third; and a text that
stands in JSON has escapes. So a value is looked for in each of its forms, and in each text as it is
and again without its escapes. No pattern is made of a value: it would take long for a large one,
and `re` would keep it in memory after it was erased.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain, zip_longest
from typing import Any

import msgspec

from headwater.core.canonical_json import canonical, from_tagged
from headwater.core.templates import as_text
from headwater.errors import RecordValueError

_DEEPEST = 8  # texts inside of texts; each level doubles the escapes of the one inside of it
_ESCAPE = re.compile(
    r"""\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})"""
    r"""|([bfnrt"'\\/]))"""
)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BRACKET = re.compile(r"[\[({]")
_ROW = re.compile(r"[\[(]\s*+")
_SET = re.compile(r"[\[{]\s*+")
_OBJECT = re.compile(r"(?:\{|([\w.]*+\())\s*+")
_AFTER_MEMBER = re.compile(r"\s*+(?:,\s*+|(?=[\])}]))")
_CLOSE = re.compile(r"[\])}]")
_COLON = re.compile(r"\s*+:\s*+")
_EQUALS = re.compile(r"=")
# A comma alone does not make it one number: [39,400] is a list as JSON writes it, 39,000 is none.
_NUMBER_BEFORE = re.compile(r"\d\.?\Z")
_NUMBER_AFTER = re.compile(r"\.?\d|,0\d")
_NOWHERE = -1


class ValueMatcher(msgspec.Struct, frozen=True):
    """What finds a value wherever it stands: by its texts, as a number alone, or by its members."""

    texts: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    container: _Row | _Bag | None = None

    def find(self, text: str) -> int:
        """Where the value begins for the first time, or -1."""
        places = chain(
            (text.find(each) for each in self.texts),
            (_find_number(each, text) for each in self.numbers),
            () if self.container is None else (_find_container(self.container, text),),
        )
        return min((at for at in places if at != _NOWHERE), default=_NOWHERE)


def mention(tagged: Any) -> ValueMatcher:
    """What finds a value."""
    if isinstance(tagged, str):
        return ValueMatcher((tagged,))
    if isinstance(tagged, int):
        return ValueMatcher(numbers=_forms(tagged))
    sealed = canonical(tagged).decode()
    try:
        value = from_tagged(tagged)
    except RecordValueError:
        return ValueMatcher((sealed,))  # somebody altered it: no text was ever made of it
    if not value and value != 0:
        return ValueMatcher((sealed,))  # in a text, that something is empty says nothing of anybody
    if isinstance(value, dict | set | frozenset | list | tuple):
        return ValueMatcher((sealed,), container=_container(value))
    forms = tuple(form for form in _forms(value) if form not in ("", "null"))  # NaN is null in JSON
    if isinstance(value, int | float | Decimal):
        return ValueMatcher((sealed,), numbers=forms)
    return ValueMatcher((sealed, *forms))


def readings(tagged: Any) -> list[str]:
    """A value as the texts in which others may be found."""
    return _without_escapes(canonical(tagged).decode())


def begins(wanted: Iterable[ValueMatcher], whole: str, shown: str) -> bool:
    """Says whether a value begins in that part of a text which was shown, wherever it ends."""
    parts = _without_escapes(shown)
    texts = list(zip_longest(_without_escapes(whole), parts, fillvalue=parts[-1]))
    return any(_NOWHERE < value.find(text) < len(part) for value in wanted for text, part in texts)


def _without_escapes(text: str) -> list[str]:
    """A text, and what it says without its escapes, for as long as there are any."""
    texts = [text]
    while len(texts) <= _DEEPEST and (plain := _ESCAPE.sub(_character, texts[-1])) != texts[-1]:
        # JSON writes a character beyond 16 bits as two escapes.
        texts.append(plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return texts


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPED.get(escape[4], escape[4])


def _find_number(number: str, text: str) -> int:
    """Where a number stands that is no part of another one, whatever unit is beside it."""
    at = text.find(number)
    while at != _NOWHERE and _is_part(text, at, at + len(number)):
        at = text.find(number, at + 1)
    return at


def _is_part(text: str, at: int, end: int) -> bool:
    if not text[end - 1].isdigit():  # inf and nan are words
        return text[max(0, at - 1) : at].isalnum() or text[end : end + 1].isalnum()
    before, after = text[max(0, at - 2) : at], text[end : end + 3]
    return bool(_NUMBER_BEFORE.search(before) or _NUMBER_AFTER.match(after))


def _find_container(container: _Row | _Bag, text: str) -> int:
    longest = max(container.scalars(), key=lambda each: len(each.spellings[-1]), default=None)
    if longest is not None and not any(each in text for each in longest.spellings):
        return _NOWHERE  # which spares most texts a try at every bracket
    brackets = (found.start() for found in _BRACKET.finditer(text))
    return next((at for at in brackets if container.end(text, at) != _NOWHERE), _NOWHERE)


class _Scalar(msgspec.Struct, frozen=True):
    """A member that has none itself, in all its spellings, the longest first."""

    spellings: tuple[str, ...]

    def scalars(self) -> Iterator[_Scalar]:
        yield self

    def end(self, text: str, at: int) -> int:
        """Where the member ends that begins here, or -1 if it is another one."""
        found = (at + len(each) for each in self.spellings if text.startswith(each, at))
        return next(found, _NOWHERE)


class _Row(msgspec.Struct, frozen=True):
    """A list or a tuple."""

    members: tuple[_Member, ...]

    def scalars(self) -> Iterator[_Scalar]:
        return chain.from_iterable(member.scalars() for member in self.members)

    def end(self, text: str, at: int) -> int:
        at = _past(_ROW, text, at)
        for member in self.members:
            at = _past(_AFTER_MEMBER, text, _end(member, text, at))
        return _past(_CLOSE, text, at)


class _Entry(msgspec.Struct, frozen=True):
    """A member of a set, or a key and what it stands for."""

    key: _Member
    item: _Member | None = None

    def scalars(self) -> Iterator[_Scalar]:
        return chain(self.key.scalars(), () if self.item is None else self.item.scalars())

    def rest(self, text: str, at: int, equals: re.Pattern[str]) -> int:
        """Where the entry ends whose key ends here."""
        return at if self.item is None else _end(self.item, text, _past(equals, text, at))


class _Bag(msgspec.Struct, frozen=True):
    """A set or an object: entries in any order, found by their keys and not by trying each."""

    opening: re.Pattern[str]
    entries: tuple[_Entry, ...]
    spelled: dict[str, list[_Entry]]
    lengths: tuple[int, ...]

    def scalars(self) -> Iterator[_Scalar]:
        return chain.from_iterable(entry.scalars() for entry in self.entries)

    def end(self, text: str, at: int) -> int:
        opened = self.opening.match(text, at)
        if opened is None:
            return _NOWHERE
        # Python writes an object as {"key": item} or as Name(key=item).
        equals = _EQUALS if opened.lastindex else _COLON
        at = opened.end()
        for _ in self.entries:
            at = _past(_AFTER_MEMBER, text, self._entry_end(text, at, equals))
        return _past(_CLOSE, text, at)

    def _entry_end(self, text: str, at: int, equals: re.Pattern[str]) -> int:
        if at == _NOWHERE:
            return _NOWHERE
        ends = (entry.rest(text, end, equals) for entry, end in self._keys(text, at))
        return next((end for end in ends if end != _NOWHERE), _NOWHERE)

    def _keys(self, text: str, at: int) -> Iterator[tuple[_Entry, int]]:
        """The entries whose keys stand here, and where those end."""
        for length in self.lengths:
            key = text[at : at + length]
            yield from ((entry, at + len(key)) for entry in self.spelled.get(key, ()))
        for entry in self.entries:
            if not isinstance(entry.key, _Scalar):
                yield entry, entry.key.end(text, at)


_Member = _Scalar | _Row | _Bag


def _end(member: _Member, text: str, at: int) -> int:
    return _NOWHERE if at == _NOWHERE else member.end(text, at)


def _past(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = None if at == _NOWHERE else pattern.match(text, at)
    return _NOWHERE if found is None else found.end()


def _container(value: Any) -> _Row | _Bag:
    if isinstance(value, list | tuple):
        return _Row(tuple(map(_member, value)))
    if isinstance(value, dict):
        items = value.items()
        return _bag(_OBJECT, {key: _Entry(_member(key), _member(item)) for key, item in items})
    return _bag(_SET, {key: _Entry(_member(key)) for key in value})


def _bag(opening: re.Pattern[str], entries: dict[Any, _Entry]) -> _Bag:
    spelled: dict[str, list[_Entry]] = {}
    for key, entry in entries.items():
        # A tuple is a key as it is mostly written; only in other layouts each has to be tried.
        spellings = entry.key.spellings if isinstance(entry.key, _Scalar) else _forms(key)
        for spelling in spellings:
            spelled.setdefault(spelling, []).append(entry)
    lengths = sorted({len(spelling) for spelling in spelled}, reverse=True)
    return _Bag(opening, tuple(entries.values()), spelled, tuple(lengths))


def _member(value: Any) -> _Member:
    if isinstance(value, dict | set | frozenset | list | tuple):
        return _container(value)
    spellings = {
        f"{quote}{form}{quote}"
        for form in _forms(value)
        # Without quotes, what is blank would be found between any two brackets.
        for quote in ('"', "'", "" if form.strip() else '"')
    }
    return _Scalar(tuple(sorted(spellings, key=len, reverse=True)))


def _forms(value: Any) -> tuple[str, ...]:
    """A scalar by itself in a text, inside of a list in a text, and as Python says it."""
    if isinstance(value, str):
        return (value,)
    if value is None:
        return ("null", "None")
    listed = as_text([value])[1:-1].strip('"')
    return tuple(dict.fromkeys((as_text(value), listed, str(value), repr(value))))
