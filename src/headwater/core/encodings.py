"""Encodings of texts as tokens, by one of two libraries that give the same tokens.

Open models have their own encoding, in a file ``tokenizer.json``, which tokenizers reads.

splintr is fast and has its vocabularies with it. tiktoken is for systems that splintr has no wheel
for; it reads its vocabularies from the folder TIKTOKEN_CACHE_DIR, or downloads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Protocol, get_args

from headwater.errors import ConfigError, MissingExtraError

Library = Literal["splintr", "tiktoken"]
LibraryChoice = Literal["auto", "splintr", "tiktoken"]

_TOKEN_BYTES = 4
_UNKNOWN_WORD = "qx" * 64

# The punctuation that begins a special token; it ends before the letter, regardless of the text
# before it.
_SPECIAL = re.compile(r"<\|(?=[A-Za-z])")

_loading = Lock()
_chosen: LibraryChoice = "auto"
_files: dict[str, str] = {}
"""The files of the encodings of open models."""


class Encoding(Protocol):
    """A vocabulary; strings that look like its special tokens are plain text."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a short text."""

    def ids(self, pieces: Iterable[str]) -> Sequence[int]:
        """Return the tokens of the pieces of a text, mostly without the interpreter lock."""

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of tokens."""


def choose_library(library: LibraryChoice) -> None:
    """Choose the library of this process; ``auto`` is the first one that is installed."""
    global _chosen
    if library != _chosen:
        _chosen = library
        encoding.cache_clear()


def library() -> Library:
    """Return the library in use; raise ConfigError if it is not installed."""
    libraries = get_args(Library) if _chosen == "auto" else (_chosen,)
    installed: list[Library] = [name for name in libraries if find_spec(name)]
    if not installed:
        raise ConfigError(
            f"tokens cannot be counted: {' and '.join(libraries)} not installed; "
            "run pip install splintr-rs, or pip install 'headwater[tiktoken]'"
        )
    return installed[0]


@cache
def folder_encoding(folder: str) -> str:
    """Return the name of the encoding in the ``tokenizer.json`` of a folder, which has its hash."""
    file = Path(folder) / "tokenizer.json"
    try:
        digest = sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error}; give the folder of a model that has tokenizer.json"
        ) from error
    name = f"tokenizer.json {digest[:16]}"
    _files[name] = str(file)
    return name


def is_known(name: str) -> bool:
    """Return True if this process can count with an encoding."""
    return name in _files or name in ("o200k_base", "cl100k_base")


@cache
def encoding(name: str) -> Encoding:
    """Return an encoding such as ``o200k_base``, loaded on first use."""
    with _loading:  # threads that start together load it once
        if name in _files:
            return _Tokenizers(_files[name])
        if not is_known(name):
            raise ConfigError(
                f"the encoding {name!r} is not known; set tokens.models to the folder of its model"
            )
        return _LIBRARIES[library()](name)


class _Splintr:
    """An encoding of splintr, most of whose calls would parse special tokens."""

    def __init__(self, name: str) -> None:
        self._encoding: Any = _load("splintr", name)
        self._encode_flat = self._encoding.encode_flat

    def count(self, text: str) -> int:
        if may_have_special(text):
            return len(self._encoding.encode_ordinary(text))
        # One block of bytes is faster than a list.
        return len(self._encode_flat(text)) // _TOKEN_BYTES

    def ids(self, pieces: Iterable[str]) -> memoryview:
        # Of the calls that encode, only the one for batches releases the interpreter lock.
        plain = [part for piece in pieces for part in _without_special(piece)]
        ids, _ = self._encoding.encode_batch_flat(plain)
        return memoryview(ids).cast("I")

    def decode(self, ids: Sequence[int]) -> bytes:
        decoded: bytes = self._encoding.decode_bytes(list(ids))
        return decoded


class _Tiktoken:
    """An encoding of tiktoken."""

    def __init__(self, name: str) -> None:
        self._encoding: Any = _load("tiktoken", name)

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def ids(self, pieces: Iterable[str]) -> Sequence[int]:
        return list(chain.from_iterable(map(self._encoding.encode_ordinary, pieces)))

    def decode(self, ids: Sequence[int]) -> bytes:
        decoded: bytes = self._encoding.decode_bytes(ids)
        return decoded


class _Tokenizers:
    """The encoding of an open model; its special tokens are such also within a text."""

    def __init__(self, file: str) -> None:
        if not find_spec("tokenizers"):
            raise MissingExtraError("the tokenizer of an open model", "chat")
        try:
            self._tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(file)
        except Exception as error:  # tokenizers raises no other class
            raise ConfigError(
                f"{file} cannot be read: {error}; copy the file of the model again"
            ) from error

    def count(self, text: str) -> int:
        return len(self._encode(text))

    def ids(self, pieces: Iterable[str]) -> Sequence[int]:
        return list(chain.from_iterable(map(self._encode, pieces)))

    def decode(self, ids: Sequence[int]) -> bytes:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text.encode(errors="replace")

    def _encode(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids


_LIBRARIES: dict[Library, type[_Splintr] | type[_Tiktoken]] = {
    "splintr": _Splintr,
    "tiktoken": _Tiktoken,
}


@cache
def _load(library: Library, name: str) -> Any:
    # Imported on first use: loading takes a while, and most processes count no tokens.
    module = import_module(library)
    if library == "splintr":
        return module.Tokenizer.from_pretrained(name)
    try:
        return module.get_encoding(name)
    except OSError as error:  # also of a download
        raise ConfigError(
            f"tiktoken has no file of the vocabulary {name} and cannot download it: {error}; put "
            "the file into a folder and set TIKTOKEN_CACHE_DIR to it, or install splintr-rs"
        ) from error


def warm_up(name: str) -> None:
    """Load an encoding, with the tables that splintr builds for the first unknown word."""
    encoding(name).ids([_UNKNOWN_WORD])


def _without_special(text: str) -> Iterator[str]:
    """Split a text at breaks inside everything that looks like a special token."""
    start = 0
    if may_have_special(text):
        for match in _SPECIAL.finditer(text):
            yield text[start : match.end()]
            start = match.end()
    yield text[start:]


def may_have_special(text: str) -> bool:
    """Return whether a text may contain a special token, such as <|endoftext|>."""
    # Searching for one character is several times as fast as for two.
    return "|" in text and "<|" in text
