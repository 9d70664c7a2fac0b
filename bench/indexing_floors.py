"""The floor of indexing: split documents as we do, and insert the same rows."""

import itertools
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

from bench import chunks
from bench.case import Effort
from bench.floors import Measuring, Rate, encode, micros
from bench.paragraphs import paragraphs
from bench.searches import documents_of
from bench.tables import database, insert
from headwater.retrieval.analysis import terms
from headwater.retrieval.chunking import split

BATCH = 44  # documents in one of our transactions, about
CHUNK_TOKENS, OVERLAP = 400, 40

_ADD_DOCUMENT = insert(
    "documents",
    *("document", "metadata_id", "indexed_at", "as_of", "text"),
    index_id="1",
    version="1",
    cause="'load'",
)
_ADD_METADATA = insert("document_metadata", "metadata")
_ADD_VALUE = insert(
    "metadata_values", "field", "kind", "value", "metadata_id", index_id="1", is_element="0"
)
_ADD_CHUNK = insert("chunks", "id", "valid_from", "length", "metadata_id", "document_id")
_ADD_CONTENT = insert(
    "chunk_contents",
    *("id", "chunk_id", "position", "indexed_at", "content_hash", "text", "terms"),
    version="1",
)
_ADD_EMBEDDING = insert("chunk_embeddings", "id", "embedding")
_ADD_TERMS = "INSERT INTO chunk_terms (rowid, terms) VALUES (?, ?)"

PlainDocument = tuple[str, str, dict[str, object]]


class Rows:
    """The rows of a batch of documents."""

    def __init__(self, db: sqlite3.Connection, ids: Iterator[int]) -> None:
        self._db = db
        self._ids = ids

    def insert(self, documents: Sequence[PlainDocument]) -> None:
        """Insert the rows of documents in one durable transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        for name, text, metadata in documents:
            self._insert(name, text, metadata)
        self._db.execute("COMMIT")

    def _insert(self, name: str, text: str, metadata: dict[str, object]) -> None:
        db, now = self._db, micros()
        metadata_id = db.execute(_ADD_METADATA, (encode(metadata),)).lastrowid
        values = [
            (field, type(value).__name__, value, metadata_id) for field, value in metadata.items()
        ]
        db.executemany(_ADD_VALUE, values)
        document_id = db.execute(_ADD_DOCUMENT, (name, metadata_id, now, now, text)).lastrowid
        pieces = [
            (next(self._ids), position, piece, terms(piece))
            for position, piece in enumerate(split(text, CHUNK_TOKENS, OVERLAP))
        ]
        vectors = chunks.embedded([piece for _, _, piece, _ in pieces])
        contents = []
        for id_, position, piece, words in pieces:
            digest = sha256(piece.encode()).hexdigest()
            chunk_id = f"docs/{name}#{digest[:16]}"
            contents.append(
                (id_, chunk_id, position, now, f"sha256:{digest}", piece, " ".join(words))
            )
        db.executemany(
            _ADD_CHUNK,
            [(id_, now, len(words), metadata_id, document_id) for id_, _, _, words in pieces],
        )
        db.executemany(_ADD_CONTENT, contents)
        embeddings = [
            (row[0], vector.tobytes()) for row, vector in zip(contents, vectors, strict=True)
        ]
        db.executemany(_ADD_EMBEDDING, embeddings)
        db.executemany(_ADD_TERMS, [(row[0], row[6]) for row in contents])


@contextmanager
def embedded(where: str, effort: Effort) -> Iterator[Rate]:
    """Documents per second over SQLite."""
    numbers, ids = itertools.count(), itertools.count(1)
    with closing(database(Path(where) / "floor.db")) as db:
        rows = Rows(db, ids)

        def rate() -> float:
            documents = [
                (f"d{number}", "\n\n".join(paragraphs()), chunks.metadata(number))
                for number in itertools.islice(numbers, documents_of(effort))
            ]
            start = time.perf_counter()
            for first in range(0, len(documents), BATCH):
                rows.insert(documents[first : first + BATCH])
            return len(documents) / (time.perf_counter() - start)

        rate()
        yield rate


MEASURES: dict[str, Measuring] = {"embedded": embedded}
