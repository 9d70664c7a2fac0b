"""`headwater keys signing`: new keys sign and verify, and auditors get only public halves."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.records.document import load
from headwater.records.signing import Ed25519Key, HmacKey, parse_keyring
from headwater.records.verify import verify_record
from tests.cli.conftest import Run
from tests.cli.context.desk import DESK, assemble
from tests.records.node import VERIFIER
from tests.records.node import run as run_node


def test_a_generated_key_signs_and_its_public_half_verifies(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = run("keys", "signing", "generate", "2026-01")
    assert (generated.code, "secret" in generated.err) == (0, True)
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", generated.out.strip())
    (folder / "features.py").write_text(DESK)
    made = assemble(folder)
    public = run("keys", "signing", "public")
    assert public.out.startswith("ed25519-pub:2026-01:")
    (key,) = parse_keyring(public.out).keys
    assert isinstance(key, Ed25519Key)
    assert not key.signs
    exported = folder / "record.json"
    run("context", "export", made.context_id, "-o", str(exported))
    assert verify_record(load(exported.read_bytes()), public.out).of("signature").ok is True
    (folder / "keys.txt").write_text(public.out, encoding="utf-8")
    verified = run_node(VERIFIER / "cli.mjs", exported, "--key-file", folder / "keys.txt")
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "Nothing is broken.")


def test_two_generated_keys_differ_and_a_shared_secret_has_no_public_half(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (
        run("keys", "signing", "generate", "a", "--shared", "--json").json for _ in range(2)
    )
    assert one["signing_key"] != two["signing_key"]
    (key,) = parse_keyring(one["signing_key"]).keys
    assert isinstance(key, HmacKey)
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", one["signing_key"])
    refused = run("keys", "signing", "public")
    assert (refused.code, "no public half" in refused.err) == (1, True)
    both = f"{run('keys', 'signing', 'generate', 'b').out.strip()},{one['signing_key']}"
    monkeypatch.setenv("HEADWATER_SIGNING_KEY", both)
    public = run("keys", "signing", "public")
    assert public.out.startswith("ed25519-pub:b:")
    assert "Key 'a' is a shared secret" in public.err
    assert [key["key_id"] for key in run("keys", "signing", "public", "--json").json] == ["b"]


@pytest.mark.parametrize("key_id", ["", "a:b", "a,b", "a b", "ed25519", "a\u0007"])
def test_a_key_id_that_the_setting_cannot_hold_is_refused(run: Run, key_id: str) -> None:
    refused = run("keys", "signing", "generate", key_id)
    assert (refused.code, "is not a valid key id" in refused.err) == (1, True)
