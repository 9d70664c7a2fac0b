"""`headwater serve` by HTTPS, and commands that call it."""

from __future__ import annotations

import os
import ssl
import urllib.request
from pathlib import Path

from tests.cli.conftest import Start, wait_until
from tests.tls import Authority


def shown(url: str) -> str:
    """Return the certificate that a server shows."""
    host, _, port = url.removeprefix("https://").rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


def test_all_processes_serve_https_and_read_a_changed_certificate(
    start: Start, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("server", "127.0.0.1")
    files = (f"--tls-cert={own.cert}", f"--tls-key={own.key}")
    server = start("serve", "--port", "0", "--processes", "2", "--workers", "0", *files)
    url = server.next_line()["url"]
    assert url.startswith("https://")
    trusted = ssl.create_default_context(cafile=authority.file)
    for _ in range(4):
        with urllib.request.urlopen(f"{url}/healthz", context=trusted) as answer:
            assert answer.status == 200
    before = shown(url)
    renewed = authority.issue("server", "127.0.0.1", file="renewed")
    # As a mounted secret is replaced: each file at once.
    os.replace(renewed.key, own.key)
    os.replace(renewed.cert, own.cert)
    wait_until(lambda: all(shown(url) != before for _ in range(8)))
    listed = start(
        "features", "list", HEADWATER_CLIENT_URL=url, HEADWATER_CLIENT_CA_FILE=str(authority.file)
    )
    assert listed.end(None).code == 0
    assert server.end().code == 0


def test_a_key_without_a_certificate_and_missing_files_are_refused(start: Start) -> None:
    refused = start("serve", "--port", "0", "--tls-key=own.key").end(None)
    assert refused.code == 2
    assert "pass --tls-cert" in refused.err
    refused = start("serve", "--port", "0", "--tls-cert=own.pem").end(None)
    assert refused.code != 0
    assert "own.pem cannot be read" in refused.err
