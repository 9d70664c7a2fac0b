"""What a write does to a document and its chunks, decided without a store."""

import pytest

from headwater.backends.document_plan import (
    ChunkPlan,
    CurrentChunk,
    DocumentPlan,
    DocumentState,
    plan_chunks,
    plan_document,
)
from headwater.errors import InvalidInputError
from headwater.ports import DocumentWrite, IndexedChunk

NOW = 1_000
STORED = DocumentState(version=3, indexed_at=500, as_of=400, is_removed=False)
REMOVED = STORED._replace(is_removed=True)


def write(
    text: str | None = "text",
    *,
    version: int | None = None,
    as_of: int | None = None,
    is_ordered: bool = False,
) -> DocumentWrite:
    return DocumentWrite(
        index="notes",
        document="d1",
        text=text,
        generation=1,
        version=version,
        as_of=as_of,
        is_ordered=is_ordered,
    )


def chunk(id_: str, position: int = 0, embedding: bytes = bytes(8)) -> IndexedChunk:
    return IndexedChunk(id_, position, "text", "hash", embedding, ())


@pytest.mark.parametrize(
    ("before", "is_same", "planned"),
    [
        (None, False, DocumentPlan("replaced", 1, NOW, NOW, is_new=True)),
        (STORED, False, DocumentPlan("replaced", 4, NOW, NOW)),
        (REMOVED, False, DocumentPlan("replaced", 4, NOW, NOW, is_new=True)),
        (STORED, True, DocumentPlan("confirmed", 3, 500, NOW)),
    ],
)
def test_a_text_makes_a_new_version_unless_it_is_stored_already(
    before: DocumentState | None, is_same: bool, planned: DocumentPlan
) -> None:
    assert plan_document(write(), before, NOW, is_same=is_same) == planned


@pytest.mark.parametrize(
    ("before", "planned"),
    [
        (None, None),
        (REMOVED, None),
        (STORED, DocumentPlan("removed", 3, NOW, NOW)),
    ],
)
def test_only_a_document_that_is_there_is_removed(
    before: DocumentState | None, planned: DocumentPlan | None
) -> None:
    assert plan_document(write(None), before, NOW, is_same=False) == planned


@pytest.mark.parametrize(("version", "is_same"), [(2, True), (4, True), (3, False)])
def test_a_write_of_another_version_than_the_current_one_is_discarded(
    version: int, is_same: bool
) -> None:
    assert plan_document(write(version=version), STORED, NOW, is_same=is_same) is None
    assert plan_document(write(version=version), None, NOW, is_same=False) is None


def test_a_write_of_the_current_version_changes_no_time_of_the_document() -> None:
    kept = DocumentPlan("kept", 3, 500, 400)
    assert plan_document(write(version=3, as_of=900), STORED, NOW, is_same=True) == kept


@pytest.mark.parametrize("text", ["text", None])
@pytest.mark.parametrize("is_same", [True, False])
def test_an_ordered_write_about_an_earlier_time_is_discarded(
    text: str | None, is_same: bool
) -> None:
    late = write(text, as_of=399, is_ordered=True)
    assert plan_document(late, STORED, NOW, is_same=is_same) is None
    assert plan_document(late, REMOVED, NOW, is_same=False) is None
    in_time = write(text, as_of=400, is_ordered=True)
    assert plan_document(in_time, STORED, NOW, is_same=is_same) is not None


def test_a_document_is_as_of_the_latest_of_its_writes() -> None:
    early = plan_document(write(as_of=300), STORED, NOW, is_same=False)
    assert early == DocumentPlan("replaced", 4, NOW, 400)
    assert plan_document(write(as_of=300), STORED, NOW, is_same=True) == DocumentPlan(
        "kept", 3, 500, 400
    )


def test_a_chunk_with_the_id_position_and_metadata_of_a_current_one_is_kept() -> None:
    current = [
        CurrentChunk(1, "a", 0, b"{}"),
        CurrentChunk(2, "b", 1, b"{}"),
        CurrentChunk(3, "c", 2, b'{"x":1}'),
        CurrentChunk(4, "d", 3, b"{}"),
    ]
    chunks = [chunk("a", 0), chunk("b", 2), chunk("c", 2), chunk("e", 4)]
    assert plan_chunks(current, chunks, b"{}", 2) == ChunkPlan(current[1:], chunks[1:])


def test_the_same_chunk_given_twice_is_added_once() -> None:
    assert plan_chunks([], [chunk("a"), chunk("a")], b"{}", 2) == ChunkPlan([], [chunk("a")])


def test_an_embedding_with_other_dimensions_is_refused_unless_its_chunk_is_kept() -> None:
    short = [chunk("a", embedding=bytes(4))]
    with pytest.raises(InvalidInputError, match="1 dimensions, and the generation 2"):
        plan_chunks([], short, b"{}", 2)
    assert plan_chunks([CurrentChunk(1, "a", 0, b"{}")], short, b"{}", 2) == ChunkPlan([], [])
