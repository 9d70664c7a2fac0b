"""`headwater ui`: the address of the web UI."""

import urllib.request

import pytest

from headwater.cli.serving import show
from tests.cli.conftest import Run, Start


def test_the_ui_is_served_with_the_api(start: Start) -> None:
    server = start("ui", "features.py", "--port", "0")
    with urllib.request.urlopen(server.next_line()["url"]) as page:
        assert "<title>Headwater</title>" in page.read().decode()
        assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_with_a_url_no_server_is_started(run: Run) -> None:
    ran = run("ui", "--url", "http://127.0.0.1:9")
    assert ran.code == 0
    assert ran.out == "Headwater is at http://127.0.0.1:9/\n"


def test_an_installation_without_the_ui_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show("http://127.0.0.1:9", opens=False, as_json=False, has_ui=False)
    printed = capsys.readouterr()
    assert printed.out == "Headwater is at http://127.0.0.1:9/\n"
    assert "The web UI is not part of this installation" in printed.err
    assert "`make ui`" in printed.err
