"""`headwater context redact`: redact values of a record permanently."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Annotated

import typer

from headwater.cli.options import AnyStore, AsJson, Ref, StoreOption, bare_or_remote
from headwater.cli.output import is_interactive, note, print_json
from headwater.cli.runner import run
from headwater.records.record import Record


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
        _print_result(record, redacted, remaining, copies)


async def _copies(
    store: AnyStore, ref: str, pointers: Sequence[str]
) -> tuple[dict[str, list[str]], str]:
    """Return the other places of the values, and the id of the record itself."""
    record = await store.get_record(ref)
    return await store.records.copies(ref, *pointers), record.context_id


def _print_result(
    record: Record, redacted: str, remaining: Sequence[str], inner: Mapping[str, Sequence[str]]
) -> None:
    typer.echo(f"Redacted {redacted} of {record.context_id}.")
    typer.echo(f"The record hash is unchanged: {record.record_hash}")
    if remaining:
        note(
            f"The value also occurs at {' '.join(map(quote, remaining))}. Redact these pointers "
            "now: --everywhere can no longer find them, because the value is gone."
        )
    for context_id, places in inner.items():
        note(
            f"The value also occurs in the inner context {context_id}, at "
            f"{' '.join(map(quote, places))}. It has a separate record; redact these, too."
        )
    note(
        "Other records, events, dead letters and features are not searched; "
        "`headwater context find` finds the contexts of an entity."
    )
