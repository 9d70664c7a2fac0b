"""`headwater context`: assemble, show, verify, export and compare contexts."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec.structs import asdict

from headwater.cli.context_export import bundle, document_to_yaml
from headwater.cli.context_output import (
    context_summary,
    missing_reason,
    print_diff,
    print_page,
    print_redaction,
    print_report,
    print_trace,
)
from headwater.cli.hints import hint_at_unknown_names
from headwater.cli.key_value_args import parse_values
from headwater.cli.options import (
    AnyStore,
    AsJson,
    Before,
    FileOption,
    OptionalRef,
    Ref,
    Since,
    StoreOption,
    bare_or_remote,
    command_group,
    declared_or_remote,
    named_in,
    parse_span,
)
from headwater.cli.output import (
    STANDARD_STREAM,
    cell_text,
    is_interactive,
    note,
    print_json,
    print_table,
    span_text,
    write,
)
from headwater.cli.runner import listing, run
from headwater.cli.utf8_args import check_utf8
from headwater.contexts.recorded import ContextQuery
from headwater.core.json_values import plain
from headwater.declarations.context_arguments import bind_parameters
from headwater.declarations.contexts import overrides
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.contexts import LARGEST_PAGE, Mode, VerificationReport, assembled
from headwater.model.declarations import ParameterListing, StoreListing
from headwater.model.lineage import ContextTrace, FreshnessStatus, PastContext
from headwater.records.document import export as to_document
from headwater.records.document import load as from_document
from headwater.records.record import Record
from headwater.records.verify import verify_record
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

app = command_group("Assemble, show, verify, export and compare contexts.")
Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, help="Maximum number.")]
Cursor = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Continue after this context id of an earlier page."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of stdout."),
]
_ZIP = b"PK\x03\x04"


@app.command()
def assemble(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")],
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PARAMS...", show_default=False, help="One JSON object, or key=value pairs."
        ),
    ] = None,
    *,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token budget. Default: as declared.")
    ] = None,
    freshness_sla: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Maximum age of values, such as 5m, not longer than declared unless the context "
            "allows it. Default: as declared.",
        ),
    ] = None,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Assemble a context and print its text.

    The context is assembled in this process, or by the server of --url, and recorded.
    """
    check_utf8(params or [], "nothing was assembled")
    store = declared_or_remote(file)
    options = overrides(
        msgspec.UNSET if max_tokens is None else max_tokens,
        msgspec.UNSET if freshness_sla is None else freshness_sla,
    )
    if isinstance(store, FeatureStore):
        with named_in(file):
            definition = runtime_of(store).registry.context(name)
        values = parse_values(params or [], "parameter", annotations_of(definition.function))
        # Before a store is created for nothing.
        bind_parameters(definition, values, options)
    else:
        values = parse_values(params or [], "parameter", _text_parameters(listing(store), name))
    context = run(store, lambda store: store.assemble(name, values, options), create=True)
    if as_json:
        print_json(plain(assembled(context)))
        return
    write(context.content.encode(), None)
    note(f"\n{context_summary(context)}")  # the text may end without a line break


@app.command()
def declared(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List declared contexts and retrievers."""
    listed = listing(declared_or_remote(file))
    contexts, retrievers = listed.contexts, listed.retrievers
    if as_json:
        print_json({"contexts": contexts, "retrievers": retrievers})
        return
    rows: list[tuple[object, ...]] = [
        (
            c.name,
            "context",
            ", ".join(map(_parameter, c.parameters)),
            None,
            c.max_tokens,
            span_text(c.freshness_sla_ms),
            c.model,
            c.description[:80],
        )
        for c in contexts
    ]
    rows += [
        (
            r.name,
            "retriever",
            ", ".join(map(_parameter, r.parameters)),
            r.index,
            None,
            span_text(r.freshness_sla_ms),
            None,
            r.description[:80],
        )
        for r in retrievers
    ]
    if rows:
        columns = ("name", "kind", "parameters", "index", "tokens", "sla", "model", "description")
        print_table(columns, rows)
    else:
        typer.echo("No contexts and no retrievers.")


@app.command()
def verify(
    ref: OptionalRef = None,
    *,
    document: Annotated[
        Path | None,
        typer.Option(
            "--document",
            metavar="FILE.json",
            help="Verify this exported document instead; - reads stdin.",
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH", help="Fail unless the record has this record hash or context id."
        ),
    ] = None,
    signed: Annotated[
        bool | None,
        typer.Option(
            "--signed/--unsigned",
            help="Fail unless one of your keys signed the record, or accept any record. By "
            "default, a signature is required if keys are configured.",
            show_default=False,
        ),
    ] = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Verify the hash, signature, values and text of a record. Exit with 1 if a check fails."""
    if ref is None and document is None:
        raise typer.BadParameter("no record selected; pass REF, or --document FILE.json")
    if ref is not None and document is not None:
        raise typer.BadParameter("cannot combine REF with --document; pass one of them")
    store = bare_or_remote(file)
    if document is not None:
        report = _verify_document(document, store.settings, expect, signed=signed)
    else:
        reference = str(ref)
        report = run(
            store, lambda store: store.records.verify(reference, expect=expect, signed=signed)
        )
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "signed": report.signed,
                "verdict": report.verdict,
                "checks": report.checks,
            }
        )
    else:
        print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def redact(
    ref: Ref,
    pointers: Annotated[
        list[str],
        typer.Argument(
            metavar="POINTER...",
            help="JSON pointers of one or more values, such as /inputs/question; the disclosures "
            "of the record have them all.",
        ),
    ],
    *,
    reason: Annotated[str, typer.Option(help="Reason; it stays in the record.")],
    by: Annotated[
        str | None, typer.Option(help="Who decided this; it stays in the record.")
    ] = None,
    everywhere: Annotated[
        bool,
        typer.Option(
            "--everywhere",
            help="Also redact every other value that equals or contains it.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Redact values of a record permanently. Its hash and signature stay valid."""
    if not yes and not is_interactive():
        raise typer.BadParameter(
            "cannot ask for confirmation without a terminal; pass --yes to redact"
        )
    # Only the record before the redaction shows where else the value occurs.
    store = bare_or_remote(file)
    copies, context_id = run(store, lambda store: _copies(store, ref, pointers))
    others = copies.pop(context_id, [])
    redacted = ", ".join(dict.fromkeys([*pointers, *others] if everywhere else pointers))
    remaining = [] if everywhere else others
    if not yes:
        if remaining:
            places = " ".join(map(quote, remaining))
            note(f"The value also occurs at {places}. Pass these pointers too, or --everywhere.")
        typer.confirm(f"Permanently redact {redacted} of {ref}?", abort=True)
    record = run(
        store,
        lambda store: store.records.redact(
            ref, *pointers, reason=reason, by=by, everywhere=everywhere
        ),
    )
    if as_json:
        print_json(
            {
                "context_id": record.context_id,
                "record_hash": record.record_hash,
                "redactions": record.redactions,
                "also_disclosed": remaining,
                "in_inner_contexts": copies,
            }
        )
    else:
        print_redaction(record, redacted, remaining, copies)


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
    print_page(page, as_json=as_json)
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
    print_page(page, as_json=as_json)
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


def _text(past: PastContext) -> str:
    if past.content is None:
        raise InvalidInputError(
            f"the text of context {past.context_id} is {missing_reason(past)}; its hash is "
            f"{past.content_hash}"
        )
    return past.content


async def _explain(store: AnyStore, ref: str) -> tuple[ContextTrace, Record]:
    trace = await store.records.explain(ref)
    return trace, await store.get_record(trace.context_id)


def _note_bundle(file: Path, record: Record, *, as_json: bool) -> None:
    if as_json:
        print_json({"bundle": str(file), "record_hash": record.record_hash})
    else:
        name = "the bundle" if file == STANDARD_STREAM else file
        note(f"Wrote {record.record_hash} to {name}; its README.md explains how to verify it.")


def _text_parameters(listed: StoreListing, name: str) -> dict[str, Any]:
    """Return the parameters of a server's context that take any text."""
    parameters = [
        p for context in listed.contexts if context.name == name for p in context.parameters
    ]
    return {p.name: str for p in parameters if p.type in ("str", "str | None")}


def _parameter(parameter: ParameterListing) -> str:
    typed = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    return typed if parameter.required else f"{typed} = {cell_text(parameter.default)}"


def _verify_document(
    document: Path, settings: Settings, expect: str | None, *, signed: bool | None
) -> VerificationReport:
    content = _read(document)
    if content.startswith(_ZIP):
        raise InvalidInputError(f"{document} is a bundle; unzip it and verify its record.json")
    if document.suffix in (".yaml", ".yml"):
        raise InvalidInputError(
            f"{document} is YAML, for reading only; verify the JSON document of `headwater context "
            "export`"
        )
    return verify_record(
        from_document(content),
        settings.signing_key,
        expect=expect,
        signed=True if signed is None and settings.signature_mode == "required" else signed,
    )


def _read(file: Path) -> bytes:
    try:
        if file == STANDARD_STREAM:
            return typer.get_binary_stream("stdin").read()
        return file.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {error.strerror}") from error


async def _copies(
    store: AnyStore, ref: str, pointers: Sequence[str]
) -> tuple[dict[str, list[str]], str]:
    """Return the other places of the values, and the id of the record itself."""
    record = await store.get_record(ref)
    return await store.records.copies(ref, *pointers), record.context_id
