"""Terms of chunks as tokens of FTS5, which must neither analyse nor split them again."""

from __future__ import annotations

import re
from collections.abc import Sequence

# The tokenizer of the table keeps these and folds or splits at others.
_UNSAFE = re.compile(r"[\x00-/:-`{-\x7f]")
_EMPTY = "_"


def _escaped(match: re.Match[str]) -> str:
    return f"_{ord(match[0]):02x}"


def _token(term: str) -> str:
    return _UNSAFE.sub(_escaped, term) if term else _EMPTY


def joined(terms: Sequence[str]) -> str:
    """Return terms as one text of tokens."""
    return " ".join([_token(term) for term in terms])


def token(generation: int, term: str) -> str:
    """Return the token under which a term is found in one generation."""
    return f"{generation}.{_token(term)}"


def prefix(generation: int) -> str:
    """Return the beginning of all tokens of a generation."""
    return f"{generation}."
