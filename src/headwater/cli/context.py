"""`headwater context`: what models were given, and the proof of it."""

from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from headwater.cli.context_assemble import assemble
from headwater.cli.context_bundle import bundle
from headwater.cli.context_declared import declared
from headwater.cli.context_output import (
    absence,
    print_contexts,
    print_diff,
    print_ladder,
    print_trace,
)
from headwater.cli.not_found_hints import Named, note_doubts, note_doubts_at_hand
from headwater.cli.options import (
    AsJson,
    FileOption,
    StoreOption,
    bare_store,
    declared_store,
    looked_up_in,
    moment,
    verbs,
)
from headwater.cli.output import STANDARD, note, on_terminal, print_json, write
from headwater.cli.runner import run
from headwater.cli.yaml import for_people
from headwater.contexts.recorded import LARGEST_PAGE, ContextPage, ContextQuery
from headwater.contexts.recorded.replay import Mode
from headwater.errors import InvalidInputError
from headwater.http.json_values import plain
from headwater.records.document import export as to_document
from headwater.records.document import load as from_document
from headwater.records.lineage import ContextTrace, FreshnessStatus, PastContext
from headwater.records.record import Record
from headwater.records.redaction_search import also_disclosed
from headwater.records.signing import parse_keyring
from headwater.records.verify import VerificationReport
from headwater.records.verify import verify as verify_record
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

_ZIP = b"PK\x03\x04"

app = verbs("Assemble, show, verify, export and compare contexts.")
app.command()(assemble)
app.command()(declared)

_REF = (
    "A context id, a record hash, or the beginning of an id: 8 characters at least, and more where "
    "contexts were made within a minute."
)
Ref = Annotated[
    str,
    typer.Argument(metavar="REF", help=_REF),
]
Limit = Annotated[int, typer.Option(min=1, max=LARGEST_PAGE, help="How many at most.")]
Cursor = Annotated[
    str | None, typer.Option(metavar="ID", help="Go on after this context of an earlier list.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to the output."),
]


@app.command()
def show(
    ref: Ref,
    *,
    content: Annotated[
        bool, typer.Option("--content", help="Print the text that was assembled, and nothing else.")
    ] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a context: its text, what became of each item, what it was made of, and when."""
    store = bare_store(file)
    if content:
        write(_text(run(store, lambda store: store.get_context_at(ref))).encode(), None)
        return
    trace, record = run(store, lambda store: _explained(store, ref))
    if as_json:
        print_json(plain(trace))
    else:
        print_trace(trace, record.redactions)


@app.command("list")
def list_(
    *,
    name: Annotated[str | None, typer.Option(help="Only those of this context.")] = None,
    freshness_status: Annotated[
        FreshnessStatus | None, typer.Option(help="Only those of this status.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only those since: 2h ago, or a time.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only those before: 2h ago, or a time.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List recorded contexts, the newest first."""
    store = bare_store(file)
    now = store.clock.now()
    start, end = (None if text is None else moment(text, now) for text in (since, before))
    page = run(
        store,
        lambda store: store.list_contexts(
            start, end, limit, name=name, freshness_status=freshness_status, cursor=cursor
        ),
    )
    _print_page(page, as_json=as_json)
    if not page.contexts and cursor is None:
        note_doubts_at_hand(Named(context=name), file)


@app.command()
def find(
    *,
    feature: Annotated[str | None, typer.Option(help="Those that this feature went into.")] = None,
    entity: Annotated[
        str | None, typer.Option(metavar="NAME", help="What --entity-id is the id of.")
    ] = None,
    entity_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Those that read something of this entity.")
    ] = None,
    chunk: Annotated[
        str | None, typer.Option(metavar="ID", help="Those whose retrievers found this chunk.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Find the contexts that something went into: a feature, an entity's, or a chunk."""
    if entity is not None and entity_id is None:
        raise typer.BadParameter(
            "--entity says what --entity-id is the id of; give --entity-id as well"
        )
    wanted = ContextQuery(feature, entity, entity_id, chunk)
    if not any(part is not None for part in wanted):
        raise typer.BadParameter("say what to find contexts by: --feature, --entity-id or --chunk")
    page = run(
        bare_store(file),
        lambda store: store.records.find(**wanted._asdict(), limit=limit, cursor=cursor),
    )
    _print_page(page, as_json=as_json)
    if not page.contexts and cursor is None:
        note_doubts(Named(feature, entity, entity_id), file)


@app.command()
def export(
    ref: Ref,
    *,
    form: Annotated[
        Literal["json", "yaml"],
        typer.Option("--format", help="How the document is written; verifiers read JSON."),
    ] = "json",
    output: Output = None,
    bundled: Annotated[
        Path | None,
        typer.Option(
            "--bundle",
            metavar="FILE.zip",
            help="Write a zip file with everything that an auditor needs; - is the output.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if there is one already.")
    ] = False,
    private: Annotated[
        bool,
        typer.Option("--private", help="Leave out every text and value; the hash stays valid."),
    ] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Export a record: as a document that verifies anywhere, or with its verifier in a zip file."""
    if bundled and (output or form == "yaml"):
        raise typer.BadParameter("--bundle goes with neither --output nor --format")
    if as_json and form == "yaml":
        raise typer.BadParameter("--json and --format yaml exclude each other")
    if as_json and bundled == STANDARD:
        raise typer.BadParameter("--json and --bundle - exclude each other: both are the output")
    record = run(bare_store(file), lambda store: store.get_record(ref))
    kept = record.private() if private else record
    if bundled:
        write(bundle(kept), bundled, force=force)
        _say_written(bundled, kept, as_json=as_json)
        return
    document = to_document(kept)
    if form == "yaml":
        document = for_people(document).encode()
    write(document, output, force=force)


@app.command()
def verify(
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            show_default=False,
            help=_REF,
        ),
    ] = None,
    *,
    document: Annotated[
        Path | None,
        typer.Option(
            "--document", metavar="FILE.json", help="Verify this exported document instead."
        ),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="The record hash that it must have, or the context id."),
    ] = None,
    signed: Annotated[
        bool,
        typer.Option("--signed", help="Fail unless one of your keys made its signature."),
    ] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Verify a record: its hash, signature, values and text. Exits with 1 if one fails."""
    if ref is None and document is None:
        raise typer.BadParameter("name the record, or pass --document FILE.json")
    if ref is not None and document is not None:
        raise typer.BadParameter("both a record and --document were given; give only one of them")
    store = bare_store(file)
    if document is not None:
        report = _verify_document(document, store.settings, expect, signed=signed)
    else:
        asked = str(ref)
        report = run(store, lambda store: store.records.verify(asked, expect=expect, signed=signed))
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
        print_ladder(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="One record.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The other one.")],
    *,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare two contexts: items, features, what was found, rules, tokens and text."""
    compared = run(bare_store(file), lambda store: store.records.diff(before, after))
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
            help="show the stored text; reassemble it from the stored items; run the function with "
            "the features as_of that moment; or live, with those of now."
        ),
    ] = "show",
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Make a context once more. Exits with 1 if its text is gone, or its items give another."""
    runs = mode in ("as_of", "live")
    store = declared_store(file) if runs else bare_store(file)
    with looked_up_in(file):
        replayed = run(store, lambda store: store.replay(ref, mode))
    if as_json:
        print_json(plain(replayed))
    else:
        if replayed.content is not None:
            write(replayed.content.encode(), None)
            if on_terminal():
                note("")  # the text ends as it ends; what follows begins a line
        note(f"{mode}: {replayed.fidelity}")
    differs = mode == "reassemble" and replayed.matches is False
    raise typer.Exit(1 if differs or replayed.content is None else 0)


@app.command()
def redact(
    ref: Ref,
    pointers: Annotated[
        list[str],
        typer.Argument(metavar="POINTER...", help="Which values, such as /inputs/question."),
    ],
    *,
    reason: Annotated[str, typer.Option(help="Why; it stays in the record for good.")],
    by: Annotated[str | None, typer.Option(help="Who decided it; it stays as well.")] = None,
    everywhere: Annotated[
        bool,
        typer.Option(
            "--everywhere",
            help="Erase every other value too that is the same, or a text with it inside.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    file: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Erase values of a record for good, all or none; its hash and its signature stay valid."""
    if not yes and not on_terminal():
        raise typer.BadParameter("nobody can be asked without a terminal; pass --yes to erase")
    # Whoever holds the copy from before knows where else the value stands; afterwards nobody does.
    store = bare_store(file)
    others = also_disclosed(run(store, lambda store: store.get_record(ref)), *pointers)
    erased = ", ".join(dict.fromkeys([*pointers, *others] if everywhere else pointers))
    left = [] if everywhere else others
    if not yes:
        if left:
            note(
                f"Also found at {' '.join(map(quote, left))}: add those to erase, or --everywhere."
            )
        typer.confirm(f"erase {erased} of {ref} for good?", abort=True)
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
                "also_disclosed": left,
            }
        )
        return
    typer.echo(f"Erased from {record.context_id}: {erased}. {record.record_hash} still holds.")
    if left:
        note(
            f"It is still disclosed at {' '.join(map(quote, left))}: to erase it there as well, "
            "redact these pointers. Now that the value is gone, no --everywhere finds them."
        )


def _print_page(page: ContextPage, *, as_json: bool) -> None:
    if as_json:
        print_json(page)
        return
    if page.contexts:
        print_contexts(page.contexts)
    else:
        typer.echo("No contexts.")
    if page.next_cursor:
        note(f"There are more: --cursor {page.next_cursor} goes on.")


def _text(past: PastContext) -> str:
    if past.content is None:
        raise InvalidInputError(
            f"the text of context {past.context_id} is {absence(past)}; it hashes to "
            f"{past.content_hash}"
        )
    return past.content


async def _explained(store: FeatureStore, ref: str) -> tuple[ContextTrace, Record]:
    trace = await store.records.explain(ref)
    return trace, await store.get_record(trace.context_id)


def _verify_document(
    document: Path, settings: Settings, expect: str | None, *, signed: bool
) -> VerificationReport:
    content = _read(document)
    if content.startswith(_ZIP):
        raise InvalidInputError(f"{document} is a bundle; unzip it, and verify its record.json")
    if document.suffix in (".yaml", ".yml"):
        raise InvalidInputError(
            f"{document} is for people; what is verified is the JSON that `headwater context "
            "export` writes"
        )
    return verify_record(
        from_document(content),
        parse_keyring(settings.signing_key),
        expect=expect,
        signed=signed or settings.signature_mode == "required",
    )


def _read(file: Path) -> bytes:
    try:
        return typer.get_binary_stream("stdin").read() if file == STANDARD else file.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"{file} cannot be read: {error.strerror}") from error


def _say_written(file: Path, record: Record, *, as_json: bool) -> None:
    if as_json:
        print_json({"bundle": str(file), "record_hash": record.record_hash})
    else:
        name = "the bundle" if file == STANDARD else file
        note(f"{name} holds {record.record_hash}; its README.md says how to check it.")
