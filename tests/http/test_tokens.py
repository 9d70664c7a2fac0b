"""Bearer tokens of an OpenID Connect issuer, signed here, with keys from a real HTTP server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.access import tokens
from headwater.core.logging import log
from headwater.errors import ConfigError
from headwater.http.app import create_app
from tests.http.conftest import KEY, MakeStore, client_of, problem_of

READ = "/v1/features/visits?entity_id=u1"
INGEST = "/ingest/visit"
ISSUER = "https://login.example"
AUDIENCE = "headwater"

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, kid: str, **fields: Any) -> dict[str, Any]:
    algorithm: Any = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    kind = next(each for each in algorithm if isinstance(key, each))
    return {**algorithm[kind].to_jwk(key.public_key(), as_dict=True), "kid": kid, **fields}


def token(key: Any = RSA, kid: str | None = "rsa", algorithm: str = "RS256", **claims: Any) -> str:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300}
    given = {name: value for name, value in (given | claims).items() if value is not None}
    given.setdefault("scope", "openid read")
    headers = {} if kid is None else {"kid": kid}
    return jwt.encode(given, key, algorithm, headers=headers)


class Issuer:
    """A server of a JWKS that can be changed and taken down."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys = [jwk(RSA, "rsa"), jwk(EC, "ec"), jwk(ED, "ed")]
        self.document: bytes | None = None
        """What is sent instead of the keys."""
        self.pause: float | None = None
        """How long the server waits before each byte, until the test is over."""
        self.waiting = threading.Event()
        self.is_down = False
        self.requests = 0
        self.authorization: str | None = None


@contextmanager
def issuing() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests += 1
            served.authorization = self.headers.get("authorization")
            self.send_response(500 if served.is_down else 200)
            self.end_headers()
            document = served.document or json.dumps({"keys": served.keys}).encode()
            if served.pause is None:
                self.wfile.write(document)
                return
            with suppress(ConnectionError):  # the client has left
                for byte in document:
                    served.waiting.wait(served.pause)
                    self.wfile.write(bytes([byte]))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Issuer(f"http://127.0.0.1:{server.server_port}/jwks")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.waiting.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def long_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no interval end while a test runs on a busy machine."""
    for name in ("_TIMEOUT_SECONDS", "_SECONDS_BETWEEN_FETCHES", "_SECONDS_AFTER_FAILURE"):
        monkeypatch.setattr(tokens, name, 600.0)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


def client_for(make_store: MakeStore, jwks: str, **oidc: Any) -> httpx.AsyncClient:
    given = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": jwks, **oidc}
    return client_of(create_app(make_store(oidc=given)), key=None)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    ("key", "kid", "algorithm"), [(RSA, "rsa", "RS256"), (EC, "ec", "ES256"), (ED, "ed", "EdDSA")]
)
async def test_a_valid_token_is_accepted_with_its_scopes(
    key: Any, kid: str, algorithm: str, make_store: MakeStore, issuer: Issuer
) -> None:
    async with client_for(make_store, issuer.url) as client:
        headers = bearer(token(key, kid, algorithm))
        for _ in range(3):
            assert (await client.get(READ, headers=headers)).status_code == 200
        response = await client.post(INGEST, json={"entity_id": "u1"}, headers=headers)
        assert problem_of(response)["key"] == "token ada"
        assert response.status_code == 403
        assert (await client.get(READ, headers={"X-API-Key": KEY})).status_code == 200
        assert (await client.get(READ)).status_code == 401
    assert issuer.requests == 1


def forged() -> str:
    """Return a token whose HMAC has the public key as its secret."""
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return signed_by_hand("HS256", public)


def in_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_by_hand(algorithm: str, secret: bytes) -> str:
    claims = jwt.decode(token(), options={"verify_signature": False})
    head = json.dumps({"alg": algorithm, "typ": "JWT", "kid": "rsa"}).encode()
    body = f"{in_base64(head)}.{in_base64(json.dumps(claims).encode())}"
    mac = hmac.new(secret, body.encode(), hashlib.sha256).digest() if secret else b""
    return f"{body}.{in_base64(mac)}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda: token(aud="another"), "udience"),
        (lambda: token(aud=None), "aud"),
        (lambda: token(iss="https://evil.example"), "ssuer"),
        (lambda: token(exp=int(time.time()) - 3_600), "expired"),
        (lambda: token(exp=None), "exp"),
        (lambda: token(nbf=int(time.time()) + 3_600), "not yet valid"),
        (lambda: token(sub=None), "'sub'"),
        (lambda: token(OTHER_RSA), "ignature"),
        (lambda: token(kid="unknown"), "does not publish"),
        (lambda: token(kid=None), "does not publish"),
        (lambda: token(algorithm="RS512"), "algorithm"),
        (lambda: token(EC, "rsa", "ES256"), "not valid"),
        (lambda: token()[:-10] + "A" * 10, "ignature"),
        (forged, "algorithm"),
        (lambda: signed_by_hand("none", b""), "algorithm"),
        (lambda: "eyJ.not.one", "not valid"),
        (lambda: "eyJ" + "A" * 20_000 + ".a.b", "longer"),
    ],
)
async def test_an_invalid_token_is_refused_with_the_reason(
    text: Any, reason: str, make_store: MakeStore, issuer: Issuer
) -> None:
    async with client_for(make_store, issuer.url) as client:
        response = await client.get(READ, headers=bearer(text()))
    assert response.status_code == 401
    assert reason in problem_of(response)["detail"]
    assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'


async def test_rotated_keys_are_fetched_when_a_token_names_one(
    make_store: MakeStore, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_SECONDS_BETWEEN_FETCHES", -1.0)
    old, new = token(), token(OTHER_RSA, "new")
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(old))).status_code == 200
        issuer.keys = [jwk(OTHER_RSA, "new")]
        assert (await client.get(READ, headers=bearer(new))).status_code == 200
        # The token was verified before, with a key that the issuer no longer publishes.
        assert (await client.get(READ, headers=bearer(old))).status_code == 401


async def test_unknown_keys_are_not_looked_for_all_the_time(
    make_store: MakeStore, issuer: Issuer
) -> None:
    async with client_for(make_store, issuer.url) as client:
        for number in range(5):
            response = await client.get(READ, headers=bearer(token(kid=f"unknown {number}")))
            assert response.status_code == 401
    assert issuer.requests == 1


async def test_while_the_issuer_is_down_api_keys_work_and_tokens_are_asked_to_retry(
    make_store: MakeStore, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.is_down = True
    async with client_for(make_store, issuer.url) as client:
        for _ in range(3):
            response = await client.get(READ, headers=bearer(token()))
            assert response.status_code == 503
            assert problem_of(response)["type"].endswith(":token-keys-unavailable")
            assert response.headers["retry-after"] == "1"
        assert issuer.requests == 1
        assert (await client.get(READ, headers={"X-API-Key": KEY})).status_code == 200
        issuer.is_down = False
        monkeypatch.setattr(tokens, "_SECONDS_AFTER_FAILURE", -1.0)
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200


async def test_an_issuer_that_sends_a_byte_now_and_then_is_as_one_that_is_down(
    make_store: MakeStore,
    issuer: Issuer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log.configure("info", "json")
    monkeypatch.setattr(tokens, "_TIMEOUT_SECONDS", 0.2)
    issuer.pause = 0.01
    async with client_for(make_store, issuer.url) as client:
        async with asyncio.timeout(5):
            response = await client.get(READ, headers=bearer(token()))
        assert response.status_code == 503
        assert (await client.get(READ, headers={"X-API-Key": KEY})).status_code == 200
    assert "they were not read within 0.2 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "document",
    [
        b"no JSON",
        b"[" * 100_000,
        b'{"keys": ' + b"[" * 100_000,
        b"[]",
        b'{"keys": {}}',
        b'{"keys": [null, 1, "RSA", []]}',
        b'{"keys": [{"kty": ["RSA"], "kid": "rsa"}]}',
        b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": 5, "e": {}}]}',
        b'{"keys": [{"kty": "RSA", "kid": ["rsa"]}]}',
        b'{"keys": [{"kty": "EC", "crv": ["P-256"], "kid": "rsa"}]}',
        b'{"keys": [{"kty": "oct", "k": "aHVzaA", "kid": "rsa"}]}',
        b'{"keys": [{"kty": "RSA", "kid": "rsa", "alg": 7}]}',
        b"\xff",
    ],
)
async def test_a_malformed_document_is_as_an_issuer_that_is_down_and_keys_stay_in_use(
    document: bytes, make_store: MakeStore, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SECONDS_BETWEEN_FETCHES", "_SECONDS_AFTER_FAILURE"):
        monkeypatch.setattr(tokens, name, -1.0)
    issuer.document = document
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(token()))).status_code == 503
        issuer.document = None
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200
        issuer.document = document
        assert (await client.get(READ, headers=bearer(token(kid="new")))).status_code == 401
        assert (await client.get(READ, headers=bearer(token(sub="bob")))).status_code == 200


async def test_a_key_that_cannot_be_used_does_not_spoil_the_others(
    make_store: MakeStore, issuer: Issuer
) -> None:
    issuer.keys += [{"kty": "RSA", "n": 5, "kid": "bad"}, {"kty": [], "kid": "worse"}]
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200
        assert (await client.get(READ, headers=bearer(token(kid="bad")))).status_code == 401


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_an_rsa_key_that_can_be_factored_is_not_used(
    make_store: MakeStore, issuer: Issuer
) -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    issuer.keys.append(jwk(short, "short"))
    async with client_for(make_store, issuer.url) as client:
        refused = await client.get(READ, headers=bearer(token(short, "short")))
        assert refused.status_code == 401
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200


async def test_a_key_with_which_anyone_can_sign_is_not_used(
    make_store: MakeStore, issuer: Issuer
) -> None:
    identity = (1).to_bytes(32, "little")
    issuer.keys.append({**jwk(ED, "weak"), "x": in_base64(identity)})
    head = in_base64(json.dumps({"alg": "EdDSA", "kid": "weak"}).encode())
    body = token(ED, "ed", "EdDSA", scope="admin").split(".")[1]
    forged = f"{head}.{body}.{in_base64(identity + bytes(32))}"
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200
        assert (await client.get(READ, headers=bearer(forged))).status_code == 401


@pytest.mark.parametrize("claims", [{"exp": 1e400}, {"exp": [1]}, {"nbf": {}}, {"iat": -1e400}])
async def test_a_token_whose_times_are_not_numbers_is_refused(
    claims: dict[str, Any], make_store: MakeStore, issuer: Issuer
) -> None:
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(token(**claims)))).status_code == 401


@pytest.mark.parametrize(
    "source",
    [
        "https://me:hunter2@127.0.0.1:1/keys?token=hunter2",
        "http://hunter2@127.0.0.1:{port}/keys",
        "me:hunter2@login.example/keys",
    ],
)
async def test_credentials_of_the_address_of_keys_are_told_to_nobody(
    source: str,
    make_store: MakeStore,
    issuer: Issuer,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer.is_down = True
    log.configure("info", "json")
    caplog.set_level("INFO", "httpx")
    source = source.format(port=httpx.URL(issuer.url).port)
    async with client_for(make_store, source) as client:
        response = await client.get(READ, headers=bearer(token()))
        assert response.status_code == 503
        assert "hunter2" not in response.text
        assert "127.0.0.1" not in response.text
        examination = await client.get("/v1/doctor", headers={"X-API-Key": KEY})
        assert "oidc.jwks" in examination.text
        assert "hunter2" not in examination.text
    logged = capsys.readouterr().err
    assert "token keys not fetched" in logged
    assert "hunter2" not in logged + caplog.text.replace("token=hunter2", "")
    # They are sent, if only to the issuer.
    assert issuer.authorization in (None, "Basic aHVudGVyMjo=")
    assert (issuer.authorization is None) is (issuer.requests == 0)


async def test_keys_stay_in_use_while_the_issuer_is_down(
    make_store: MakeStore, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_for(make_store, issuer.url) as client:
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200
        issuer.is_down = True
        for name in ("_SECONDS_BETWEEN_FETCHES", "_FRESH_SECONDS", "_SECONDS_AFTER_FAILURE"):
            monkeypatch.setattr(tokens, name, -1.0)
        unknown = await client.get(READ, headers=bearer(token(kid="unknown")))
        assert unknown.status_code == 401
        assert (await client.get(READ, headers=bearer(token(sub="bob")))).status_code == 200


async def test_keys_come_from_a_file_too(make_store: MakeStore, tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [jwk(RSA, "rsa")]}))
    async with client_for(make_store, str(file)) as client:
        assert (await client.get(READ, headers=bearer(token()))).status_code == 200
        # Without a key id, the only key is meant.
        assert (await client.get(READ, headers=bearer(token(kid=None)))).status_code == 200


@pytest.mark.parametrize(
    ("claims", "settings", "status"),
    [
        ({"scope": ["read"]}, {}, 200),
        ({"scope": "admin"}, {}, 200),
        ({"scope": "openid"}, {}, 403),
        ({"scope": 7}, {}, 403),
        ({"scope": "hw:read read"}, {"scope_prefix": "hw:"}, 200),
        ({"scope": "read"}, {"scope_prefix": "hw:"}, 403),
        ({"roles": ["read"], "scope": "x"}, {"scope_claim": "roles"}, 200),
        ({"email": "ada@example.com"}, {"name_claim": "email"}, 200),
        ({}, {"name_claim": "email"}, 401),
        ({"sub": "ada\nroot"}, {}, 401),
        ({"sub": "a" * 257}, {}, 401),
        ({"org": "u"}, {"tenant_claim": "org"}, 200),
        ({"org": "v"}, {"tenant_claim": "org"}, 403),
        ({}, {"tenant_claim": "org"}, 401),
        ({"customer": "u1"}, {"id_claim": "customer"}, 200),
        ({"customer": "u"}, {"id_claim": "customer"}, 403),
        ({"customer": ""}, {"id_claim": "customer"}, 401),
    ],
)
async def test_claims_say_who_may_do_what(
    claims: dict[str, Any],
    settings: dict[str, str],
    status: int,
    make_store: MakeStore,
    issuer: Issuer,
) -> None:
    async with client_for(make_store, issuer.url, **settings) as client:
        assert (await client.get(READ, headers=bearer(token(**claims)))).status_code == status


async def test_a_caller_with_tokens_has_a_rate_limit(make_store: MakeStore, issuer: Issuer) -> None:
    oidc = {"issuer": ISSUER, "audience": AUDIENCE, "jwks": issuer.url}
    store = make_store(oidc=oidc, http={"rate_limit": 0.001})
    async with client_of(store, key=None) as client:
        for sub, status in [("ada", 200), ("ada", 429), ("bob", 200)]:
            response = await client.get(READ, headers=bearer(token(sub=sub, jti=str(time.time()))))
            assert response.status_code == status


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"audience": ""}, r"oidc\.audience is empty"),
        ({"jwks": ""}, r"oidc\.jwks is empty"),
        ({"jwks": "http://login.example/keys"}, "use https"),
        ({"jwks": "HTTP://me:hunter2@login.example/keys"}, r"//me:\*\*\*@login.example/keys"),
        ({"jwks": "ftp://me:hunter2@login.example/keys"}, r"//me:\*\*\*@login.example/keys"),
        ({"jwks": "https://:hunter2/keys"}, "not a valid URL"),
        ({"algorithms": "HS256"}, "HS256"),
        ({"algorithms": "none"}, "none"),
        ({"algorithms": " , "}, "empty"),
    ],
)
def test_settings_that_cannot_be_safe_are_refused(
    settings: dict[str, str], problem: str, make_store: MakeStore
) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        client_for(make_store, **{"jwks": "https://login.example/keys", **settings})
    assert "hunter2" not in str(refused.value)
