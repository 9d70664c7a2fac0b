"""`headwater index`: load, describe, search, rebuild and drop indexes, and their documents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.groups import Yes
from headwater.cli.index_build import Build, summary
from headwater.cli.key_value_args import parse_values
from headwater.cli.options import (
    AsJson,
    FileOption,
    command_group,
    declared_or_remote,
    declared_store,
    named_in,
)
from headwater.cli.output import (
    is_interactive,
    note,
    pluralize,
    print_facts,
    print_json,
    print_table,
    progress_bar,
    score_text,
    second_text,
    span_text,
)
from headwater.cli.remote import server_of
from headwater.cli.runner import listing, run
from headwater.cli.utf8_args import check_utf8
from headwater.declarations.items import Chunk
from headwater.declarations.runtime import runtime_of
from headwater.errors import UnknownDocumentError, UnknownNameError
from headwater.model.declarations import IndexListing
from headwater.model.indexes import Generation, IndexStatus, SearchMode, StoredDocument
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.retrieval.files.reading import DocumentFiles
from headwater.retrieval.files.tables import Fields
from headwater.store.feature_store import FeatureStore

if TYPE_CHECKING:
    from headwater.client import AsyncClient

app = command_group("Load, search, rebuild and drop indexes, and show and delete documents.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the index.")]
_EXCERPT = 200
_OPERATORS = ("!", "<", ">", "~")


@app.command()
def build(
    name: Name,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...",
            help="Files (.jsonl, .csv, .tsv, .parquet, .md, .txt, .html), or folders with "
            "Markdown, text and HTML files.",
        ),
    ],
    *,
    id_field: Annotated[
        str, typer.Option(help="Field or column with the id of a document.")
    ] = "id",
    text_field: Annotated[str, typer.Option(help="Field or column with its text.")] = "text",
    skip_invalid: Annotated[
        bool,
        typer.Option(
            "--skip-invalid",
            help="Leave out invalid documents, and count them; without it, the first one ends the "
            "command.",
        ),
    ] = False,
    delete_missing: Annotated[
        bool,
        typer.Option(
            "--delete-missing",
            help="Afterwards, remove the documents of the index that no PATH contains, after "
            "asking; nothing is removed if documents were invalid.",
        ),
    ] = False,
    yes: Yes = False,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Index the documents of files and folders.

    Documents that have not changed are skipped, so a build that was interrupted continues when the
    command is run again, and nothing is embedded twice.
    """
    check_utf8([name, id_field, text_field], "nothing was indexed")
    if delete_missing and not yes:
        _check_terminal("remove documents")
    store = _store_or_server(name, file)
    files = DocumentFiles(paths, Fields(id_field, text_field), store.settings.indexes)
    job = Build(name, files, skips_invalid=skip_invalid)
    with job.interruptible():
        run(store, job.load, create=True)
        missing = run(store, job.count_missing) if delete_missing else 0
        documents = pluralize(missing, "document")
        if missing > 0 and (yes or typer.confirm(f"Remove {documents} of {name}?", err=True)):
            run(store, job.remove_missing)
    if as_json:
        print_json(job.report())
    else:
        typer.echo(summary(job.report()))


@app.command()
def status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", show_default=False, help="Only this index, in detail."),
    ] = None,
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show the contents of indexes, how they were built, and how far a rebuild is."""
    store = declared_or_remote(file)
    indexes = run(store, lambda store: store.indexes.list())
    if name is not None:
        with named_in(file):
            indexes = [_find(indexes, name)]
    if as_json:
        print_json(indexes)
    else:
        declared = {index.name: index for index in listing(store).indexes}
        print_status(indexes, declared, is_detailed=bool(name))


@app.command()
def search(
    name: Name,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Question or words.")],
    *,
    top_k: Annotated[int, typer.Option(min=1, help="Maximum number of chunks.")] = 5,
    mode: Annotated[
        SearchMode,
        typer.Option(help="By meaning (`vector`), by words (`text`), or by both (`hybrid`)."),
    ] = "vector",
    filters: Annotated[
        list[str] | None,
        typer.Option(
            "--filter",
            metavar="FILTER",
            help="Condition on the metadata: key=value, or one JSON object. Repeatable.",
        ),
    ] = None,
    min_score: Annotated[
        float | None, typer.Option(help="Smallest similarity, from -1 to 1.")
    ] = None,
    diversity: Annotated[
        float,
        typer.Option(help="From 0 to 1: how much chunks that resemble a better one are avoided."),
    ] = 0.0,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Search the contents of a past time: a duration such as 2h, a time with a time "
            "zone, or a version of the index.",
        ),
    ] = None,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Search an index, best chunk first."""
    check_utf8([name, query, *(filters or [])], "nothing was searched")
    conditions = _conditions(filters or [])
    store = _store_or_server(name, file)
    chunks = run(
        store,
        lambda store: store.search(
            name,
            query,
            top_k=top_k,
            mode=mode,
            filters=conditions,
            min_score=min_score,
            diversity=diversity,
            as_of=as_of,
        ),
    )
    if as_json:
        print_json(chunks)
    elif chunks:
        print_table(("score", "document", "position", "text"), [_row(chunk) for chunk in chunks])
    else:
        typer.echo("No chunks were found.")


@app.command()
def show(
    name: Name,
    document: Annotated[
        str, typer.Argument(metavar="DOCUMENT", help="Id of the document, as searches show it.")
    ],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a document: its version, its metadata and its text."""
    check_utf8([name, document], "nothing was read")
    stored = run(_store_or_server(name, file), lambda store: _document(store, name, document))
    if as_json:
        print_json(stored)
        return
    facts = {"document": stored.document, "document version": stored.version}
    print_facts(facts | {"indexed at": stored.indexed_at, "metadata": dict(stored.metadata)})
    typer.echo(f"\n{stored.text.rstrip()}")


@app.command()
def delete(
    name: Name,
    documents: Annotated[
        list[str], typer.Argument(metavar="DOCUMENT...", help="Ids of the documents.")
    ],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove documents from an index.

    If one of them does not exist, none is removed.
    """
    check_utf8([name, *documents], "nothing was removed")
    chosen = list(dict.fromkeys(documents))

    async def remove(store: "FeatureStore | AsyncClient") -> None:
        for document in chosen:
            await _document(store, name, document)
        for document in chosen:
            await store.unindex(name, document)

    run(_store_or_server(name, file), remove)
    if as_json:
        print_json({"index": name, "deleted": chosen})
    else:
        typer.echo(f"Removed {pluralize(len(chosen), 'document')} from {name}.")


@app.command()
def reindex(name: Name, *, file: FileOption = None, as_json: AsJson = False) -> None:
    """Split and embed all documents as the index is declared now.

    Searches read the earlier contents until all documents are done. An interrupted command
    continues when it is run again.
    """
    store = _store_or_server(name, file)
    with progress_bar("Reindexing") as progress:
        documents = run(store, lambda store: store.indexes.reindex(name, progress=progress))
    if as_json:
        print_json({"index": name, "documents": documents})
    elif documents:
        typer.echo(f"Reindexed {pluralize(documents, 'document')} of {name}.")
    else:
        typer.echo(f"{name} is up to date.")


@app.command()
def drop(name: Name, *, yes: Yes = False, file: FileOption = None, as_json: AsJson = False) -> None:
    """Remove an index with all its documents and past versions."""
    store = declared_or_remote(file)
    with named_in(file):
        index = _find(run(store, lambda store: store.indexes.list()), name)
    documents = pluralize(index.documents, "document")
    if not yes:
        _check_terminal("drop the index")
        typer.confirm(f"Drop index {name}, which has {documents}?", abort=True)
    removed = run(store, lambda store: store.indexes.drop(name))
    if as_json:
        print_json({"dropped": name, "documents": removed})
    else:
        typer.echo(f"Dropped index {name}, which had {pluralize(removed, 'document')}.")


async def _document(
    store: "FeatureStore | AsyncClient", index: str, document: str
) -> StoredDocument:
    stored = await store.indexes.get_document(index, document)
    if stored is None:
        raise UnknownDocumentError(index, document)
    return stored


def _check_terminal(verb: str) -> None:
    """Raise BadParameter if there is no terminal to ask for confirmation on."""
    if not is_interactive():
        raise typer.BadParameter(
            f"cannot ask for confirmation without a terminal; pass --yes to {verb}"
        )


def _conditions(filters: Sequence[str]) -> dict[str, Any]:
    """Return a filter of --filter options."""
    for text in filters:
        key, _, value = text.partition("=")
        if not key.startswith("{") and (key.endswith(_OPERATORS) or value.startswith("=")):
            name = key.rstrip("".join(_OPERATORS))
            raise typer.BadParameter(
                f"{text!r} is not a filter; write {name}=value, or a comparison as JSON: "
                f"'{name}={{\"$gte\": 2020}}'"
            )
    return parse_values(filters, "filter")


def _store_or_server(name: str, file: Path | None) -> "FeatureStore | AsyncClient":
    """Return the server that the command calls, or the store that has the index."""
    return server_of(file) or _store(name, file)


def _store(name: str, file: Path | None) -> FeatureStore:
    """Return the store of a features file that has the index."""
    store = declared_store(file)
    with named_in(file):
        runtime_of(store).registry.index(name)
    return store


def _find(indexes: Sequence[IndexStatus], name: str) -> IndexStatus:
    by_name = {index.name: index for index in indexes}
    if name not in by_name:
        raise UnknownNameError("index", name, by_name)
    return by_name[name]


def _row(chunk: Chunk) -> tuple[object, ...]:
    return (
        score_text(chunk.score),
        chunk.document,
        chunk.position,
        " ".join(chunk.text.split())[:_EXCERPT],
    )


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
        print_table(columns, [_status_row(index) for index in indexes], unwrapped=4)
    for remark in (r for index in indexes for r in _remarks(index, declared.get(index.name))):
        note(f"\n{remark}")


def _status_row(index: IndexStatus) -> tuple[object, ...]:
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
