"""`headwater context`: assemble, show, verify, export and compare contexts."""

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import msgspec
import typer
from msgspec.structs import asdict

from headwater.cli.arguments import check_utf8, hint_at_unknown_names, parse_values
from headwater.cli.commands import (
    DECLARED,
    STORE,
    AnyStore,
    Before,
    CommandCall,
    Commands,
    OptionalRef,
    Ref,
    Since,
    Yes,
)
from headwater.cli.context_export import bundle, document_to_yaml
from headwater.cli.context_outcomes import (
    export_outcomes,
    import_outcomes,
    outcome,
    outcomes,
    redact_outcome,
)
from headwater.cli.context_output import (
    missing_reason,
    print_diff,
    print_page,
    print_redaction,
    print_trace,
)
from headwater.cli.declarations_page import parameter_text
from headwater.cli.output import (
    STANDARD_STREAM,
    check_terminal,
    note,
    print_json,
    span_text,
    write,
)
from headwater.contexts.recorded import ContextQuery
from headwater.core.json_values import plain
from headwater.declarations.context_arguments import bind_parameters
from headwater.declarations.contexts import overrides
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.admin import OUTCOMES
from headwater.model.contexts import LARGEST_PAGE, Mode, VerificationReport, assembled
from headwater.model.lineage import ContextTrace, FreshnessStatus
from headwater.records.document import export as to_document
from headwater.records.outcomes import OutcomeRecord
from headwater.records.record import Record
from headwater.records.verify import verify_document
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

app = Commands()
context = Commands(
    app, "context", "Assemble, show, verify, export and compare contexts.", file=STORE
)
Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, help="Maximum number.")]
Cursor = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Continue after this context id of an earlier page."),
]
_MARKS = {True: "ok", False: "FAILED", None: "-"}


@context.command(file=DECLARED)
def assemble(
    call: CommandCall,
    name: str,
    params: list[str] | None = None,
    *,
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None,
    freshness_sla: str | None = None,
) -> None:
    """Assemble a context and print its text.

    The context is assembled in this process, or by the server of --url, and recorded.

    Args:
        name: Name of the context.
        params: One JSON object, or key=value pairs.
        max_tokens: Token budget. Default: as declared.
        freshness_sla DURATION: Maximum age of values, such as 5m, not longer than declared unless
            the context allows it. Default: as declared.
    """
    check_utf8(params or [], "nothing was assembled")
    store = call.store
    options = overrides(
        msgspec.UNSET if max_tokens is None else max_tokens,
        msgspec.UNSET if freshness_sla is None else freshness_sla,
    )
    if isinstance(store, FeatureStore):
        with call.named():
            definition = runtime_of(store).registry.context(name)
        values = parse_values(params or [], "parameter", annotations_of(definition.function))
        # Before a store is created for nothing.
        bind_parameters(definition, values, options)
    else:
        takes_text = {
            parameter.name: str
            for listed in call.declarations().contexts
            for parameter in listed.parameters
            if listed.name == name and parameter.type in ("str", "str | None")
        }
        values = parse_values(params or [], "parameter", takes_text)
    made = call.run(lambda store: store.assemble(name, values, options), create=True)
    if call.as_json:
        print_json(plain(assembled(made)))
        return
    write(made.content.encode(), None)
    budget = "" if made.lineage.max_tokens is None else f"/{made.lineage.max_tokens}"
    record = f"recorded as {made.record_hash}" if made.meta["recorded"] else "not recorded"
    summary = f"{made.tokens}{budget} tokens, {made.freshness_status}, {record}"
    note(f"\n{made.context_id}: {summary}")  # the text may end without a line break


@context.command(file=DECLARED)
def declared(call: CommandCall) -> None:
    """List declared contexts and retrievers."""
    listed = call.declarations()
    rows: list[tuple[object, ...]] = [
        (
            c.name,
            "context",
            ", ".join(map(parameter_text, c.parameters)),
            None,
            c.max_tokens,
            span_text(c.freshness_sla_ms),
            c.model,
            c.description[:80],
        )
        for c in listed.contexts
    ]
    rows += [
        (
            r.name,
            "retriever",
            ", ".join(map(parameter_text, r.parameters)),
            r.index,
            None,
            span_text(r.freshness_sla_ms),
            None,
            r.description[:80],
        )
        for r in listed.retrievers
    ]
    columns = ("name", "kind", "parameters", "index", "tokens", "sla", "model", "description")
    plain = {"contexts": listed.contexts, "retrievers": listed.retrievers}
    call.show_table(plain, columns, rows, empty="No contexts and no retrievers.")


@context.command()
def verify(
    call: CommandCall,
    ref: OptionalRef = None,
    *,
    document: Path | None = None,
    expect: str | None = None,
    signed: Annotated[bool | None, typer.Option("--signed/--unsigned", show_default=False)] = None,
) -> None:
    """Verify the hash, signature, values and text of a record. Exit with 1 if a check fails.

    Args:
        document FILE.json: Verify this exported document instead, with the outcomes that it has; -
            reads stdin.
        expect HASH: Fail unless the record has this record hash or context id.
        signed: Fail unless one of your keys signed the record, or accept any record. By default, a
            signature is required if keys are configured.
    """
    if ref is None and document is None:
        raise typer.BadParameter("no record selected; pass REF, or --document FILE.json")
    if ref is not None and document is not None:
        raise typer.BadParameter("cannot combine REF with --document; pass one of them")
    settings = call.store.settings
    if document is not None:
        report = _verify_document(document, settings, expect, signed=signed)
    else:
        reference = str(ref)
        report = call.run(
            lambda store: store.records.verify(reference, expect=expect, signed=signed)
        )
    verified = {"ok": report.ok, "signed": report.signed, "verdict": report.verdict}
    outcomes = {"outcomes": report.outcomes} if report.outcomes else {}
    shown = "\n".join([*_check_lines(report), report.verdict])
    call.show(verified | {"checks": report.checks} | outcomes, shown)
    raise typer.Exit(0 if report.ok else 1)


@context.command()
def redact(
    call: CommandCall,
    ref: Ref,
    pointers: list[str],
    *,
    reason: str,
    by: str | None = None,
    everywhere: bool = False,
    yes: Yes = False,
) -> None:
    """Redact values of a record permanently. Its hash and signature stay valid.

    Args:
        pointers POINTER...: JSON pointers of one or more values, such as /inputs/question; the
            disclosures of the record have them all.
        reason: Reason; it stays in the record.
        by: Who decided this; it stays in the record.
        everywhere: Also redact every other value of the record and of its outcomes that equals or
            contains it.
    """
    if not yes:
        check_terminal("redact")

    async def copies(store: AnyStore) -> tuple[dict[str, list[str]], str]:
        record = await store.get_record(ref)
        return await store.records.copies(ref, *pointers), record.context_id

    # Only the record before the redaction shows where else the value occurs.
    inner, context_id = call.run(copies)
    others = inner.pop(context_id, [])
    if everywhere:  # in the outcomes of the record, too
        said = [name for name in inner if name.startswith(OUTCOMES)]
        others += [f"{name}{pointer}" for name in said for pointer in inner.pop(name)]
    redacted = ", ".join(dict.fromkeys([*pointers, *others] if everywhere else pointers))
    remaining = [] if everywhere else others
    if not yes:
        if remaining:
            places = " ".join(map(quote, remaining))
            note(f"The value also occurs at {places}. Pass these pointers too, or --everywhere.")
        typer.confirm(f"Permanently redact {redacted} of {ref}?", abort=True)
    record = call.run(
        lambda store: store.records.redact(
            ref, *pointers, reason=reason, by=by, everywhere=everywhere
        )
    )
    shown = {
        "context_id": record.context_id,
        "record_hash": record.record_hash,
        "redactions": record.redactions,
        "also_disclosed": remaining,
        "in_inner_contexts": inner,
    }
    call.show(shown, lambda: print_redaction(record, redacted, remaining, inner))


@context.command()
def show(call: CommandCall, ref: Ref, *, content: bool = False) -> None:
    """Show a context with everything it read.

    This includes items, feature values, search results, freshness, cost and text.

    Args:
        content: Print only the text, byte by byte; exit with 1 if it is withheld or redacted.
    """
    if content:
        past = call.run(lambda store: store.get_context_at(ref))
        if past.content is None:
            raise InvalidInputError(
                f"the text of context {past.context_id} is {missing_reason(past)}; its hash is "
                f"{past.content_hash}"
            )
        write(past.content.encode(), None)
        return

    async def explain(store: AnyStore) -> tuple[ContextTrace, Record]:
        trace = await store.records.explain(ref)
        return trace, await store.get_record(trace.context_id)

    trace, record = call.run(explain)
    call.show(plain(trace), lambda: print_trace(trace, record.redactions))


context.command()(outcome)
context.command()(outcomes)
context.command("redact-outcome")(redact_outcome)
context.command("export-outcomes", has_json=False)(export_outcomes)
context.command("import-outcomes")(import_outcomes)


@context.command("list")
def list_contexts(
    call: CommandCall,
    *,
    name: str | None = None,
    freshness_status: FreshnessStatus | None = None,
    caller: str | None = None,
    score: str | None = None,
    label: str | None = None,
    answer_model: str | None = None,
    error: str | None = None,
    since: Since = None,
    before: Before = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """List recorded contexts, newest first.

    Args:
        name: Only contexts with this name.
        freshness_status: Only contexts that are guaranteed or degraded, or calls of strict contexts
            that were refused.
        caller: Only contexts that the key with this name assembled.
        score: Only contexts with this score: a name, or compared, such as 'helpful<3'.
        label: Only contexts with this label of a score, such as rude or tone=rude.
        answer_model: Only contexts that this model answered.
        error TYPE: Only contexts whose call failed with this type of error.
    """
    start, end = call.span(since, before)
    page = call.run(
        lambda store: store.list_contexts(
            start,
            end,
            limit,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            score=score,
            label=label,
            answer_model=answer_model,
            error=error,
            cursor=cursor,
        )
    )
    call.show(page, lambda: print_page(page))
    if not page.contexts and cursor is None:
        hint_at_unknown_names(call, context=name)


@context.command()
def find(
    call: CommandCall,
    *,
    feature: str | None = None,
    entity: str | None = None,
    entity_id: str | None = None,
    chunk: str | None = None,
    document: str | None = None,
    index: str | None = None,
    score: str | None = None,
    label: str | None = None,
    answer_model: str | None = None,
    error: str | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> None:
    """Find the contexts that read an input, or that have an outcome.

    Args:
        feature: Only contexts that read this feature.
        entity NAME: Entity that --entity-id belongs to, if ids of several entities can be equal.
        entity_id ID: Only contexts that read a feature of this entity.
        chunk ID: Only contexts whose searches found the chunk with this id.
        document ID: Only contexts whose searches found a chunk of this document.
        index NAME: Index of --document; without --document, only contexts that searched this index.
        score: Only contexts with this score: a name, or compared, such as 'helpful<3'.
        label: Only contexts with this label of a score, such as rude or tone=rude.
        answer_model: Only contexts that this model answered.
        error TYPE: Only contexts whose call failed with this type of error.
    """
    if entity is not None and entity_id is None:
        raise typer.BadParameter("--entity needs --entity-id; pass both")
    query = ContextQuery(
        *(feature, entity, entity_id, chunk, document, index),
        score=score,
        label=label,
        answer_model=answer_model,
        error=error,
    )
    if query == ContextQuery():
        raise typer.BadParameter(
            "nothing to search for; pass --feature, --entity-id, --chunk, --document, --index, "
            "--score, --label, --answer-model or --error"
        )
    page = call.run(lambda store: store.records.find(**asdict(query), limit=limit, cursor=cursor))
    call.show(page, lambda: print_page(page))
    if not page.contexts and cursor is None:
        hint_at_unknown_names(
            call, feature=feature, entity=entity, entity_id=entity_id, index=index
        )


@context.command()
def export(
    call: CommandCall,
    ref: Ref,
    *,
    form: Annotated[Literal["json", "yaml"], typer.Option("--format")] = "json",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE")] = None,
    bundled: Annotated[Path | None, typer.Option("--bundle", metavar="FILE.zip")] = None,
    force: bool = False,
    private: bool = False,
) -> None:
    """Export a record, alone or with a verifier.

    Args:
        form: Format of the document: json, which verifiers read, or yaml, which is easier to read
            and cannot be verified.
        output: Write to this file instead of stdout.
        bundled: Write a zip file for an auditor, with the record and its verifier; - writes it to
            stdout.
        force: Replace an existing file; without it, an existing file is an error.
        private: Leave out every text and value; hash and signature stay valid.
    """
    if bundled and (output or form == "yaml"):
        raise typer.BadParameter("--bundle cannot be combined with --output or --format")
    if call.as_json and form == "yaml":
        raise typer.BadParameter("--json cannot be combined with --format yaml")
    if call.as_json and bundled == STANDARD_STREAM:
        raise typer.BadParameter(
            "--json cannot be combined with --bundle -, because both write to stdout"
        )

    async def copies(store: AnyStore) -> tuple[list[Record], list[OutcomeRecord]]:
        records = [
            await store.get_record(ref),
            *(await store.records.inner(ref) if bundled else ()),
        ]
        sealed = [await store.records.sealed_outcomes(record.context_id) for record in records]
        outcomes = [outcome for group in sealed for outcome in group]
        if private:
            return [each.private() for each in records], [each.private() for each in outcomes]
        return records, outcomes

    (exported, *inner), outcomes = call.run(copies)
    if bundled:
        write(bundle(exported, inner, outcomes), bundled, force=force)
        record_hash = exported.record_hash
        place = "the bundle" if bundled == STANDARD_STREAM else bundled
        call.show(
            {"bundle": str(bundled), "record_hash": record_hash},
            lambda: note(
                f"Wrote {record_hash} to {place}; its README.md explains how to verify it."
            ),
        )
        return
    document = to_document(exported, outcomes)
    if form == "yaml":
        document = document_to_yaml(document).encode()
    write(document, output, force=force)


@context.command()
def diff(call: CommandCall, before: str, after: str) -> None:
    """Compare two contexts.

    This compares inputs, items, features, search results, rules, tokens and text.

    Args:
        before: REF of the first context.
        after: REF of the second context.
    """
    compared = call.run(lambda store: store.records.diff(before, after))
    call.show(plain(compared), lambda: print_diff(compared))


@context.command(file=DECLARED)
def replay(call: CommandCall, ref: Ref, *, mode: Mode = "show") -> None:
    """Assemble a context again. Exit with 1 if it has no text, or reassembling gives another.

    Args:
        mode: show: print the stored text. reassemble: fit the stored items again. as_of: run the
            function with the values of that time. live: with current values.
    """
    call.is_declared = mode in ("as_of", "live")
    replayed = call.run(lambda store: store.replay(ref, mode), has_names=True)
    if call.as_json:
        print_json(plain(replayed))
    else:
        if replayed.content is not None:
            write(replayed.content.encode(), None)
            note("")  # the text may end without a line break
        note(f"{mode}: {replayed.fidelity}")
    differs = mode == "reassemble" and replayed.matches is False
    raise typer.Exit(1 if differs or replayed.content is None else 0)


def _check_lines(report: VerificationReport) -> Iterator[str]:
    for c in report.checks:
        yield f"{'BROKEN' if c.fault == 'altered' else _MARKS[c.ok]:<7}{c.check:<13}{c.detail}"
    for checked in report.outcomes:
        yield f"outcome {checked.outcome_id}"
        yield from _check_lines(checked)


def _verify_document(
    document: Path, settings: Settings, expect: str | None, *, signed: bool | None
) -> VerificationReport:
    try:
        is_stdin = document == STANDARD_STREAM
        content = typer.get_binary_stream("stdin").read() if is_stdin else document.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"cannot read {document}: {error.strerror}") from error
    if content.startswith(b"PK\x03\x04"):
        raise InvalidInputError(f"{document} is a bundle; unzip it and verify its record.json")
    if document.suffix in (".yaml", ".yml"):
        raise InvalidInputError(
            f"{document} is YAML, for reading only; verify the JSON document of `headwater context "
            "export`"
        )
    return verify_document(
        content,
        settings.signing_key,
        expect=expect,
        signed=True if signed is None and settings.signature_mode == "required" else signed,
    )
