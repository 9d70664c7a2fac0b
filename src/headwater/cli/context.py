"""`headwater context`: assemble, show, verify, export and compare contexts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec.structs import asdict

from headwater.cli.context_assemble import assemble
from headwater.cli.context_bundle import bundle
from headwater.cli.context_declared import declared
from headwater.cli.context_output import (
    missing_reason,
    print_contexts,
    print_diff,
    print_trace,
)
from headwater.cli.context_redact import redact
from headwater.cli.context_verify import verify
from headwater.cli.context_yaml import document_to_yaml
from headwater.cli.hints import hint_at_unknown_names
from headwater.cli.options import (
    AsJson,
    Before,
    FileOption,
    Ref,
    Since,
    StoreOption,
    bare_or_remote,
    command_group,
    declared_or_remote,
    named_in,
    parse_span,
)
from headwater.cli.output import STANDARD_STREAM, note, print_json, write
from headwater.cli.runner import run
from headwater.contexts.recorded import ContextQuery
from headwater.core.json_values import plain
from headwater.errors import InvalidInputError
from headwater.model.contexts import LARGEST_PAGE, ContextPage, Mode
from headwater.model.lineage import ContextTrace, FreshnessStatus, PastContext
from headwater.records.document import export as to_document
from headwater.records.record import Record
from headwater.store.feature_store import FeatureStore

if TYPE_CHECKING:
    from headwater.client import AsyncClient

app = command_group("Assemble, show, verify, export and compare contexts.")
app.command()(assemble)
app.command()(declared)
app.command()(verify)
app.command()(redact)

Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, help="Maximum number.")]
Cursor = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Continue after this context id of an earlier page."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout."),
]


@app.command()
def show(
    ref: Ref,
    *,
    content: Annotated[
        bool,
        typer.Option(
            "--content",
            help="Print only the text, byte by byte; exit with 1 if it is withheld or redacted.",
        ),
    ] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a context with everything it read.

    This includes items, feature values, search results, freshness, cost and text.
    """
    store = bare_or_remote(file)
    if content:
        write(_text(run(store, lambda store: store.get_context_at(ref))).encode(), None)
        return
    trace, record = run(store, lambda store: _explain(store, ref))
    if as_json:
        print_json(plain(trace))
    else:
        print_trace(trace, record.redactions)


@app.command("list")
def list_(
    *,
    name: Annotated[str | None, typer.Option(help="Only contexts with this name.")] = None,
    freshness_status: Annotated[
        FreshnessStatus | None,
        typer.Option(
            help="Only contexts that are guaranteed or degraded, or calls of strict contexts that "
            "were refused."
        ),
    ] = None,
    caller: Annotated[
        str | None, typer.Option(help="Only contexts that the key with this name assembled.")
    ] = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List recorded contexts, newest first."""
    store = bare_or_remote(file)
    start, end = parse_span(since, before, store.clock.now())
    page = run(
        store,
        lambda store: store.list_contexts(
            start,
            end,
            limit,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            cursor=cursor,
        ),
    )
    _print_page(page, as_json=as_json)
    if not page.contexts and cursor is None:
        hint_at_unknown_names(file, context=name)


@app.command()
def find(
    *,
    feature: Annotated[
        str | None, typer.Option(help="Only contexts that read this feature.")
    ] = None,
    entity: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Entity that --entity-id belongs to, if ids of several entities can be equal.",
        ),
    ] = None,
    entity_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only contexts that read a feature of this entity."),
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only contexts whose searches found the chunk with this id."
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Only contexts whose searches found a chunk of this document."
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Index of --document; without --document, only contexts that searched this index.",
        ),
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Find the contexts that read a feature, an entity, a chunk, a document or an index."""
    if entity is not None and entity_id is None:
        raise typer.BadParameter("--entity needs --entity-id; pass both")
    query = ContextQuery(feature, entity, entity_id, chunk, document, index)
    if query == ContextQuery():
        raise typer.BadParameter(
            "nothing to search for; pass --feature, --entity-id, --chunk, --document or --index"
        )
    page = run(
        bare_or_remote(file),
        lambda store: store.records.find(**asdict(query), limit=limit, cursor=cursor),
    )
    _print_page(page, as_json=as_json)
    if not page.contexts and cursor is None:
        hint_at_unknown_names(
            file, feature=feature, entity=entity, entity_id=entity_id, index=index
        )


@app.command()
def export(
    ref: Ref,
    *,
    form: Annotated[
        Literal["json", "yaml"],
        typer.Option(
            "--format",
            help="Format of the document: json, which verifiers read, or yaml, which is easier to "
            "read and cannot be verified.",
        ),
    ] = "json",
    output: Output = None,
    bundled: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE.zip",
            help="Write a zip file for an auditor, with the record and its verifier; - writes it "
            "to stdout.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace an existing file; without it, an existing file is an error."
        ),
    ] = False,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Leave out every text and value; hash and signature stay valid."
        ),
    ] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Export a record, alone or with a verifier."""
    if bundled and (output or form == "yaml"):
        raise typer.BadParameter("--bundle cannot be combined with --output or --format")
    if as_json and form == "yaml":
        raise typer.BadParameter("--json cannot be combined with --format yaml")
    if as_json and bundled == STANDARD_STREAM:
        raise typer.BadParameter(
            "--json cannot be combined with --bundle -, because both write to stdout"
        )
    store = bare_or_remote(file)
    record = run(store, lambda store: store.get_record(ref))
    exported = record.private() if private else record
    if bundled:
        inner = run(store, lambda store: store.records.inner(ref))
        copies = [whole.private() if private else whole for whole in inner]
        write(bundle(exported, copies), bundled, force=force)
        _note_bundle(bundled, exported, as_json=as_json)
        return
    document = to_document(exported)
    if form == "yaml":
        document = document_to_yaml(document).encode()
    write(document, output, force=force)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="REF of the first context.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="REF of the second context.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare two contexts.

    This compares inputs, items, features, search results, rules, tokens and text.
    """
    compared = run(bare_or_remote(file), lambda store: store.records.diff(before, after))
    if as_json:
        print_json(plain(compared))
    else:
        print_diff(compared)


@app.command()
def replay(
    ref: Ref,
    *,
    mode: Annotated[
        Mode,
        typer.Option(
            help="show: print the stored text. reassemble: fit the stored items again. as_of: run "
            "the function with the values of that time. live: with current values."
        ),
    ] = "show",
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Assemble a context again. Exit with 1 if it has no text, or reassembling gives another."""
    is_run = mode in ("as_of", "live")
    store = declared_or_remote(file) if is_run else bare_or_remote(file)
    with named_in(file):
        replayed = run(store, lambda store: store.replay(ref, mode))
    if as_json:
        print_json(plain(replayed))
    else:
        if replayed.content is not None:
            write(replayed.content.encode(), None)
            note("")  # the text may end without a line break
        note(f"{mode}: {replayed.fidelity}")
    differs = mode == "reassemble" and replayed.matches is False
    raise typer.Exit(1 if differs or replayed.content is None else 0)


def _print_page(page: ContextPage, *, as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    if page.contexts:
        print_contexts(page.contexts)
    else:
        typer.echo("No contexts.")
    if page.next_cursor:
        note(f"There are more; pass --cursor {page.next_cursor} for the next page.")


def _text(past: PastContext) -> str:
    if past.content is None:
        raise InvalidInputError(
            f"the text of context {past.context_id} is {missing_reason(past)}; its hash is "
            f"{past.content_hash}"
        )
    return past.content


async def _explain(store: "FeatureStore | AsyncClient", ref: str) -> tuple[ContextTrace, Record]:
    trace = await store.records.explain(ref)
    return trace, await store.get_record(trace.context_id)


def _note_bundle(file: Path, record: Record, *, as_json: bool) -> None:
    if as_json:
        print_json({"bundle": str(file), "record_hash": record.record_hash})
    else:
        name = "the bundle" if file == STANDARD_STREAM else file
        note(f"Wrote {record.record_hash} to {name}; its README.md explains how to verify it.")
