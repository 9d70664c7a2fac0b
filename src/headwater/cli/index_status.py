"""The output of `headwater index status`."""

from collections.abc import Mapping, Sequence

import typer

from headwater.cli.output import note, print_facts, print_table, second_text, span_text
from headwater.model.declarations import IndexListing
from headwater.model.indexes import Generation, IndexStatus
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL


def print_status(
    indexes: Sequence[IndexStatus], declared: Mapping[str, IndexListing], *, is_detailed: bool
) -> None:
    """Print indexes as a table, or one with its generations."""
    if not indexes:
        typer.echo("No indexes.")
        return
    if is_detailed:
        _print_details(indexes[0], declared.get(indexes[0].name))
    else:
        columns = ("index", "documents", "chunks", "last change", "embedder")
        print_table(columns, [_row(index) for index in indexes], unwrapped=4)
    for remark in (r for index in indexes for r in _remarks(index, declared.get(index.name))):
        note(f"\n{remark}")


def _row(index: IndexStatus) -> tuple[object, ...]:
    spec = index.spec or index.declared_spec
    changed = second_text(index.changed_at)
    return index.name, index.documents, index.chunks, changed, spec and spec.embedder


def _print_details(index: IndexStatus, declared: IndexListing | None) -> None:
    spec = index.spec or index.declared_spec
    kept = None if declared is None else span_text(declared.keep_versions_ms)
    print_facts(
        {
            "index": index.name,
            "index version": index.version,
            "last change": index.changed_at,
            "documents": index.documents,
            "chunks": index.chunks,
            "outdated": index.outdated,
            "embedder": spec and spec.embedder,
            "dimensions": spec and spec.dimensions,
            "chunk tokens": spec and spec.chunk_tokens,
            "overlap": spec and spec.overlap,
            "keep versions": kept,
        }
    )
    if index.generations:
        # In 80 columns with the name of the local model, and only a longer name is folded.
        columns = ("#", "state", "documents", "chunks", "created", "embedder")
        typer.echo()
        print_table(
            columns, [_generation(generation) for generation in index.generations], unwrapped=5
        )


def _generation(generation: Generation) -> tuple[object, ...]:
    outdated = f", {generation.outdated} outdated" if generation.outdated else ""
    return (
        generation.number,
        generation.state,
        f"{generation.documents}{outdated}",
        generation.chunks,
        second_text(generation.created_at),
        generation.spec.embedder,
    )


def _remarks(index: IndexStatus, declared: IndexListing | None) -> list[str]:
    spec = index.spec or index.declared_spec
    remarks = []
    is_wanted = declared is not None and declared.embedder is not None
    if spec is not None and spec.embedder.startswith("lexical/") and not is_wanted:
        remarks.append(
            f"{index.name}: the embedder is lexical: it finds documents with similar words, not "
            f"with similar meaning. `{INSTALL_LOCAL_MODEL}` installs a local model, and the "
            "setting embeddings.provider selects another provider."
        )
    if index.differences:
        remarks.append(
            f"{index.name}: it is declared in another way than it was built "
            f"({'; '.join(index.differences)}); `headwater index reindex {index.name}` builds it "
            "again."
        )
    if index.is_declared and index.declared_spec is None:
        remarks.append(
            f"{index.name}: its embedder is not configured; `headwater index reindex {index.name}` "
            "names what is missing."
        )
    if not index.is_declared:
        remarks.append(
            f"{index.name}: the features file does not declare it; `headwater index drop "
            f"{index.name}` removes it."
        )
    return remarks
