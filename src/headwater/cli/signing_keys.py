"""`headwater keys signing`: generate keys that sign records, and print their public halves."""

from typing import Annotated

import typer

from headwater.cli.options import AsJson, StoreOption, bare_store, command_group
from headwater.cli.output import note, print_json
from headwater.errors import InvalidInputError
from headwater.records.signing import Ed25519Key, generate_key, parse_keyring, public_text

app = command_group("Generate keys that sign records, and print their public halves.")


@app.command()
def generate(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY_ID", help="Name of the key; every record shows it.")
    ],
    *,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Generate a secret for HMAC-SHA256 instead of an Ed25519 key pair."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a new key for the setting `signing_key`. Headwater does not store it."""
    key = generate_key(key_id, "HMAC-SHA256" if shared else "Ed25519")
    if as_json:
        print_json({"key_id": key_id, "signing_key": key})
        return
    typer.echo(key)
    note(
        "This key is secret. Put it first in HEADWATER_SIGNING_KEY, and keep the older keys after "
        "it, separated by commas."
    )


@app.command()
def public(*, file: StoreOption = None, as_json: AsJson = False) -> None:
    """Print the public halves of the configured Ed25519 keys, one on each line, for auditors."""
    keys = parse_keyring(bare_store(file).settings.signing_key).keys
    pairs = [key for key in keys if isinstance(key, Ed25519Key)]
    if not pairs:
        raise InvalidInputError(
            "no Ed25519 key is configured, and a shared secret has no public half; generate one "
            "with `headwater keys signing generate KEY_ID` and put it into HEADWATER_SIGNING_KEY"
        )
    if as_json:
        print_json([{"key_id": key.key_id, "public_key": public_text(key)} for key in pairs])
        return
    for key in pairs:
        typer.echo(public_text(key))
    for secret in (key for key in keys if not isinstance(key, Ed25519Key)):
        note(f"Key {secret.key_id!r} is a shared secret, which has no public half.")
