"""`headwater ui`: the address of the web UI."""

import urllib.request

from tests.cli.conftest import Run, Start


def test_the_ui_is_served_with_the_api(start: Start) -> None:
    server = start("ui", "features.py", "--port", "0")
    with urllib.request.urlopen(server.next_line()["url"]) as page:
        assert "Headwater is running" in page.read().decode()
        assert "script" not in page.headers["content-security-policy"]


def test_with_a_url_no_server_is_started(run: Run) -> None:
    ran = run("ui", "--url", "http://127.0.0.1:9")
    assert ran.code == 0
    assert ran.out == "The web UI is at http://127.0.0.1:9/\n"
