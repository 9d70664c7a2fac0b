"""`headwater context verify`: verify a record or an exported document."""

from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.context_output import print_report
from headwater.cli.options import AsJson, OptionalRef, StoreOption, bare_or_remote
from headwater.cli.output import STANDARD_STREAM, print_json
from headwater.cli.runner import run
from headwater.errors import InvalidInputError
from headwater.model.contexts import VerificationReport
from headwater.records.document import load as from_document
from headwater.records.verify import verify_record
from headwater.settings.schema import Settings

_ZIP = b"PK\x03\x04"


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
        return (
            typer.get_binary_stream("stdin").read()
            if file == STANDARD_STREAM
            else file.read_bytes()
        )
    except OSError as error:
        raise InvalidInputError(f"cannot read {file}: {error.strerror}") from error
