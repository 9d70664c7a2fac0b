"""Two libraries count tokens, with the same result."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import splintr
import tiktoken.load
import tiktoken.registry

from headwater.core import encodings
from headwater.core.encodings import choose_library, encoding, library
from headwater.errors import ConfigError

TEXTS = [
    "",
    "Hello, world!\n",
    "don't it's",
    "naïve 漢字 🙂",
    "{'a': 1}",
    "<|endoftext|> and <|x|>",
]


@pytest.fixture(autouse=True)
def _no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """tiktoken has no files, and nothing is loaded that another test has used."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    _forget()
    yield
    _forget()


def _forget() -> None:
    choose_library("auto")
    encoding.cache_clear()
    encodings._load.cache_clear()  # noqa: SLF001 - as in a new process


@pytest.fixture
def vocabulary_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that tiktoken downloads otherwise, made from splintr's vocabulary.

    tiktoken compares its hash with that of the published file.
    """
    known = splintr.Tokenizer.from_pretrained("cl100k_base")
    ranks = range(100_256)
    lines = [base64.b64encode(known.decode_token_bytes(rank)) + b" %d\n" % rank for rank in ranks]
    monkeypatch.setattr(tiktoken.load, "read_file", lambda _: b"".join(lines))


def test_splintr_counts_by_default() -> None:
    assert library() == "splintr"


@pytest.mark.usefixtures("vocabulary_file")
def test_tiktoken_gives_the_same_tokens() -> None:
    ours = [list(encoding("cl100k_base").ids([text])) for text in TEXTS]
    choose_library("tiktoken")
    other = encoding("cl100k_base")
    assert [list(other.ids([text])) for text in TEXTS] == ours
    assert [other.count(text) for text in TEXTS] == [*map(len, ours)]
    assert [other.decode(ids).decode() for ids in ours] == TEXTS


def test_a_vocabulary_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_: str) -> bytes:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tiktoken.load, "read_file", unreachable)
    choose_library("tiktoken")
    with pytest.raises(ConfigError, match=r"cl100k_base.*TIKTOKEN_CACHE_DIR"):
        encoding("cl100k_base")


def test_without_a_library_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"splintr and tiktoken not installed.*pip install"):
        encoding("o200k_base")
