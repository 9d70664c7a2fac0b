"""`headwater index`: load, describe, search, rebuild and drop indexes, and their documents."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from headwater.cli.arguments import check_utf8, parse_values
from headwater.cli.commands import DECLARED, AnyStore, CommandCall, Commands, Yes
from headwater.cli.output import (
    ProgressLines,
    bar,
    check_terminal,
    confirm,
    note,
    pluralize,
    print_facts,
    print_table,
    progress_bar,
    score_text,
    second_text,
    span_text,
)
from headwater.errors import InvalidInputError, UnknownDocumentError, UnknownNameError
from headwater.model.declarations import IndexListing
from headwater.model.indexes import (
    Document,
    IndexStatus,
    LoadReport,
    OnLoaded,
    SearchMode,
    StoredDocument,
)
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.retrieval.files.entries import Skipped
from headwater.retrieval.files.reading import DocumentFiles
from headwater.retrieval.files.tables import Fields

app = Commands()
index = Commands(
    app,
    "index",
    "Load, search, rebuild and drop indexes, and show and delete documents.",
    file=DECLARED,
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the index.")]
_OPERATORS = ("!", "<", ">", "~")
_SHOWN = 20


@index.command()
def build(
    call: CommandCall,
    name: Name,
    paths: list[Path],
    *,
    id_field: str = "id",
    text_field: str = "text",
    skip_invalid: bool = False,
    delete_missing: bool = False,
    yes: Yes = False,
) -> None:
    """Index the documents of files and folders.

    Documents that have not changed are skipped, so a build that was interrupted continues when the
    command is run again, and nothing is embedded twice.

    Args:
        paths PATH...: Files (.jsonl, .csv, .tsv, .parquet, .md, .txt, .html), or folders with
            Markdown, text and HTML files.
        id_field: Field or column with the id of a document.
        text_field: Field or column with its text.
        skip_invalid: Leave out invalid documents, and count them; without it, the first one ends
            the command.
        delete_missing: Afterwards, remove the documents of the index that no PATH contains, after
            asking; nothing is removed if documents were invalid.
    """
    check_utf8([name, id_field, text_field], "nothing was indexed")
    if delete_missing and not yes:
        check_terminal("remove documents")
    call.check_name(lambda registry: registry.index(name))
    files = DocumentFiles(paths, Fields(id_field, text_field), call.store.settings.indexes)
    job = _Build(name, files, skips_invalid=skip_invalid)
    with job.interruptible():
        call.run(job.load, create=True)
        missing = call.run(job.count_missing) if delete_missing else 0
        documents = pluralize(missing, "document")
        if missing > 0 and (yes or typer.confirm(f"Remove {documents} of {name}?", err=True)):
            call.run(job.remove_missing)
    call.show(job.report, _summary(job.report))


@index.command()
def status(call: CommandCall, name: str | None = None) -> None:
    """Show the contents of indexes, how they were built, and how far a rebuild is.

    Args:
        name: Only this index, in detail.
    """
    indexes = call.run(lambda store: store.indexes.list())
    if name is not None:
        indexes = [_find(call, indexes, name)]

    def print_indexes() -> None:
        declared = {index.name: index for index in call.declarations().indexes}
        if name is not None:
            _print_details(indexes[0], declared.get(name))
        else:
            columns = ("index", "documents", "chunks", "last change", "embedder")
            specs = [index.spec or index.declared_spec for index in indexes]
            rows = [
                (i.name, i.documents, i.chunks, second_text(i.changed_at), spec and spec.embedder)
                for i, spec in zip(indexes, specs, strict=True)
            ]
            print_table(columns, rows, unwrapped=4, empty="No indexes.")
        for index in indexes:
            for remark in _remarks(index, declared.get(index.name)):
                note(f"\n{index.name}: {remark}")

    call.show(indexes, print_indexes)


@index.command()
def search(
    call: CommandCall,
    name: Name,
    query: str,
    *,
    top_k: Annotated[int, typer.Option(min=1, help="Maximum number of chunks.")] = 5,
    mode: SearchMode = "vector",
    filters: Annotated[list[str] | None, typer.Option("--filter", metavar="FILTER")] = None,
    min_score: float | None = None,
    diversity: float = 0.0,
    as_of: str | None = None,
) -> None:
    """Search an index, best chunk first.

    Args:
        query: Question or words.
        mode: By meaning (`vector`), by words (`text`), or by both (`hybrid`).
        filters: Condition on the metadata: key=value, or one JSON object. Repeatable.
        min_score: Smallest similarity, from -1 to 1.
        diversity: From 0 to 1: how much chunks that resemble a better one are avoided.
        as_of WHEN: Search the contents of a past time: a duration such as 2h, a time with a time
            zone, or a version of the index.
    """
    check_utf8([name, query, *(filters or [])], "nothing was searched")
    conditions = _conditions(filters or [])
    call.check_name(lambda registry: registry.index(name))
    chunks = call.run(
        lambda store: store.search(
            name,
            query,
            top_k=top_k,
            mode=mode,
            filters=conditions,
            min_score=min_score,
            diversity=diversity,
            as_of=as_of,
        )
    )
    columns = ("score", "document", "position", "text")
    rows = [
        (score_text(c.score), c.document, c.position, " ".join(c.text.split())[:200])
        for c in chunks
    ]
    call.show_table(chunks, columns, rows, empty="No chunks were found.")


@index.command("list")
def list_documents(
    call: CommandCall,
    name: Name,
    *,
    prefix: str = "",
    filters: Annotated[list[str] | None, typer.Option("--filter", metavar="FILTER")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of documents.")] = 100,
    cursor: str | None = None,
) -> None:
    """List the documents of an index by their ids.

    Args:
        prefix: Beginning of the ids, such as handbook/.
        filters: Condition on the metadata: key=value, or one JSON object. Repeatable.
        cursor: The next_cursor of the page before.
    """
    check_utf8([name, prefix, cursor or "", *(filters or [])], "nothing was read")
    conditions = _conditions(filters or [])
    call.check_name(lambda registry: registry.index(name))
    page = call.run(
        lambda store: store.indexes.list_documents(
            name, prefix=prefix, filters=conditions, limit=limit, cursor=cursor
        )
    )
    columns = ("document", "version", "indexed at", "status", "metadata")
    rows = [
        (
            each.document,
            each.version,
            second_text(each.indexed_at),
            each.status,
            " ".join(f"{field}={value}" for field, value in each.metadata.items())[:200],
        )
        for each in page.documents
    ]
    more = page.next_cursor and f"There are more; pass --cursor {page.next_cursor} to list them."
    call.show_table(page, columns, rows, more, empty="No documents.")


@index.command("show")
def show_document(call: CommandCall, name: Name, document: str) -> None:
    """Show a document: its version, its metadata and its text.

    Args:
        document: Id of the document, as searches and `index list` show it.
    """
    check_utf8([name, document], "nothing was read")
    call.check_name(lambda registry: registry.index(name))
    stored = call.run(lambda store: _document(store, name, document))

    def print_document() -> None:
        facts = {"document": stored.document, "document version": stored.version}
        facts |= {"status": stored.status, "indexed at": stored.indexed_at}
        print_facts(facts | {"metadata": dict(stored.metadata)})
        typer.echo(f"\n{stored.text.rstrip()}")

    call.show(stored, print_document)


@index.command()
def delete(call: CommandCall, name: Name, documents: list[str]) -> None:
    """Remove documents from an index.

    If one of them does not exist, none is removed.

    Args:
        documents DOCUMENT...: Ids of the documents.
    """
    check_utf8([name, *documents], "nothing was removed")
    chosen = list(dict.fromkeys(documents))

    async def remove(store: AnyStore) -> None:
        for document in chosen:
            await _document(store, name, document)
        for document in chosen:
            await store.unindex(name, document)

    call.check_name(lambda registry: registry.index(name))
    call.run(remove)
    removed = f"Removed {pluralize(len(chosen), 'document')} from {name}."
    call.show({"index": name, "deleted": chosen}, removed)


@index.command()
def reindex(call: CommandCall, name: Name) -> None:
    """Split and embed all documents as the index is declared now.

    Searches read the earlier contents until all documents are done. An interrupted command
    continues when it is run again.
    """
    call.check_name(lambda registry: registry.index(name))
    with progress_bar("Reindexing") as progress:
        documents = call.run(lambda store: store.indexes.reindex(name, progress=progress))
    done = f"Reindexed {pluralize(documents, 'document')} of {name}."
    call.show(
        {"index": name, "documents": documents}, done if documents else f"{name} is up to date."
    )


@index.command()
def drop(call: CommandCall, name: Name, *, yes: Yes = False) -> None:
    """Remove an index with all its documents and past versions."""
    stored = _find(call, call.run(lambda store: store.indexes.list()), name)
    documents = pluralize(stored.documents, "document")
    if not yes:
        confirm(f"Drop index {name}, which has {documents}?", "drop the index")
    removed = call.run(lambda store: store.indexes.drop(name))
    dropped = f"Dropped index {name}, which had {pluralize(removed, 'document')}."
    call.show({"dropped": name, "documents": removed}, dropped)


async def _document(store: AnyStore, index: str, document: str) -> StoredDocument:
    stored = await store.indexes.get_document(index, document)
    if stored is None:
        raise UnknownDocumentError(index, document)
    return stored


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


def _find(call: CommandCall, indexes: Sequence[IndexStatus], name: str) -> IndexStatus:
    by_name = {index.name: index for index in indexes}
    if name not in by_name:
        with call.named():
            raise UnknownNameError("index", name, by_name)
    return by_name[name]


class BuildReport(msgspec.Struct):
    """What a build has indexed and removed, and which parts of its files it left out."""

    index: str
    documents: int = 0
    chunks: int = 0
    unchanged: int = 0
    removed: int = 0
    invalid: int = 0
    ignored: int = 0


class _Build:
    """One run of a build."""

    def __init__(self, index: str, files: DocumentFiles, *, skips_invalid: bool) -> None:
        self.report = BuildReport(index)
        self._files = files
        self._skips_invalid = skips_invalid

    async def load(self, store: AnyStore) -> None:
        """Load all documents."""
        with _load_progress(self._files) as show:

            def update(loaded: LoadReport) -> None:
                self.report.documents, self.report.chunks = loaded.documents, loaded.chunks
                self.report.unchanged = loaded.unchanged
                show(loaded)

            await store.indexes.load(self.report.index, self._documents(), progress=update)

    def _documents(self) -> Iterator[Document]:
        for content in self._files:
            if isinstance(content, Document):
                yield content
            elif content.is_invalid:
                self._skip(content)
            else:
                self.report.ignored += 1

    def _skip(self, skipped: Skipped) -> None:
        if not self._skips_invalid:
            raise InvalidInputError(
                f"{skipped}; {self._done()}; correct it and run the command again, or pass "
                "--skip-invalid to leave it out"
            )
        self.report.invalid += 1
        if self.report.invalid <= _SHOWN:
            note(f"skipped {skipped}")
        elif self.report.invalid == _SHOWN + 1:
            note("more invalid documents are skipped and counted")

    async def count_missing(self, store: AnyStore) -> int:
        """Return how many documents of the index the files do not have."""
        name = self.report.index
        if self.report.invalid:
            note(
                "No documents were removed, because the skipped ones may be among them; "
                "correct these first."
            )
            return 0
        if not self._files.ids:
            raise InvalidInputError(
                f"no documents were found, so --delete-missing would remove all of {name}; check "
                f"the paths, or run `headwater index drop {name}`"
            )
        stored = {index.name: index.documents for index in await store.indexes.list()}
        return stored[name] - len(self._files.ids)

    async def remove_missing(self, store: AnyStore) -> None:
        """Remove the documents that the files do not have."""
        self.report.removed = await store.indexes.retain(self.report.index, self._files.ids)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Print, when the user stops the command, how to continue it."""
        try:
            yield
        except KeyboardInterrupt:
            note(f"Interrupted; {self._done()}. Run the command again to continue.")
            raise typer.Exit(130) from None

    def _done(self) -> str:
        done = pluralize(self.report.documents + self.report.unchanged, "document")
        return f"{done} of {self.report.index} are up to date"


def _summary(report: BuildReport) -> str:
    """Return the result of a build in words."""
    parts = [f"No new or changed documents for {report.index}"]
    if report.documents:
        documents = pluralize(report.documents, "document")
        parts = [f"Indexed {documents} in {report.index}: {pluralize(report.chunks, 'chunk')}"]
    counts = {
        "unchanged": report.unchanged,
        "removed": report.removed,
        "invalid, skipped": report.invalid,
    }
    parts += [f"{count} {what}" for what, count in counts.items() if count]
    if report.ignored:
        parts.append(f"{pluralize(report.ignored, 'other file')} ignored")
    return "; ".join(parts) + "."


@contextmanager
def _load_progress(files: DocumentFiles) -> Iterator[OnLoaded]:
    """Show how far files are loaded, and yield the function that updates it."""
    started, lines = time.monotonic(), ProgressLines()
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with bar(*columns, TimeRemainingColumn()) as update:

        def show(report: LoadReport) -> None:
            seconds, done = time.monotonic() - started, report.documents + report.unchanged
            rate = done / max(seconds, 1e-3)
            per_second = f"{rate:.1f}" if rate < 10 else f"{rate:.0f}"
            numbers = f"{pluralize(done, 'document')} ({per_second}/s), "
            numbers += pluralize(report.chunks, "chunk")
            if update:
                total, read = files.total_bytes, files.read_bytes
                update(total=total, completed=read, description=numbers)
            elif lines.is_due():
                share = files.read_bytes / max(1, files.total_bytes)
                left = span_text(round(1000 * seconds * (1 - share) / max(share, 1e-9)))
                note(f"{share:.0%} read: {numbers}, {left} left")

        yield show


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
        rows = [
            (
                g.number,
                g.state,
                f"{g.documents}, {g.outdated} outdated" if g.outdated else g.documents,
                g.chunks,
                second_text(g.created_at),
                g.spec.embedder,
            )
            for g in index.generations
        ]
        typer.echo()
        print_table(columns, rows, unwrapped=5)


def _remarks(index: IndexStatus, declared: IndexListing | None) -> Iterator[str]:
    spec = index.spec or index.declared_spec
    is_chosen = declared is not None and declared.embedder is not None
    if spec is not None and spec.embedder.startswith("lexical/") and not is_chosen:
        yield (
            "the embedder is lexical: it finds documents with similar words, not with similar "
            f"meaning. `{INSTALL_LOCAL_MODEL}` installs a local model, and the setting "
            "embeddings.provider selects another provider."
        )
    if index.differences:
        yield (
            f"it is declared in another way than it was built ({'; '.join(index.differences)}); "
            f"`headwater index reindex {index.name}` builds it again."
        )
    if index.outdated:
        documents = pluralize(index.outdated, "document")
        yield f"workers have yet to embed {documents}; searches find the versions before."
    if index.is_declared and index.declared_spec is None:
        yield (
            f"its embedder is not configured; `headwater index reindex {index.name}` names what is "
            "missing."
        )
    if not index.is_declared:
        yield (
            f"the features file does not declare it; `headwater index drop {index.name}` removes "
            "it."
        )
