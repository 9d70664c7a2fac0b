"""`headwater dev`: serve with reload, the last good file, and failing handlers with their line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.cli.conftest import FEATURES, Run, Start, wait_until
from tests.cli.test_serving import ask

_CONTEXT = """

from headwater import ContextItem, context


@context(store)
async def page(user_id: str) -> ContextItem:
    return ContextItem.template("{total}") if 1 // 0 else ContextItem("none")
"""
SHOUT = "/v1/features/shout?entity_id=u1"


def _developing(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headwater", "dev", *arguments, "--port", "0"]
    return subprocess.Popen(
        command, env=os.environ | environment, stdout=PIPE, stderr=PIPE, text=True
    )


def _url(server: subprocess.Popen[str]) -> str:
    assert server.stdout
    line = server.stdout.readline()
    assert line.startswith("Serving features.py at http"), line
    return line.split()[3].rstrip("/")


def test_one_command_serves_with_reload(folder: Path, start: Start) -> None:
    features = folder / "features.py"
    server = start("dev", "--port", "0")
    assert ask(server.next_line()["url"], "GET", SHOUT)[1]["value"] == "U1!"
    features.write_text(FEATURES.replace('"!"', '"?"'))
    assert ask(server.next_line()["url"], "GET", SHOUT)[1]["value"] == "U1?"
    assert server.end(signal.SIGINT).code == 0


def test_a_change_of_an_imported_module_restarts_the_server(folder: Path, start: Start) -> None:
    (folder / "marks.py").write_text('MARK = "!"\n')
    features = FEATURES.replace('"!"', "MARK").replace(
        "store =", "from marks import MARK\nstore =", 1
    )
    (folder / "features.py").write_text(features)
    server = start("dev", "--port", "0")
    assert ask(server.next_line()["url"], "GET", SHOUT)[1]["value"] == "U1!"
    (folder / "marks.py").write_text('MARK = "?"\n# changed\n')
    assert ask(server.next_line()["url"], "GET", SHOUT)[1]["value"] == "U1?"
    assert server.end().code == 0


def test_the_last_good_file_goes_on_when_the_new_one_raises(folder: Path, start: Start) -> None:
    features = folder / "features.py"
    server = start("dev", "--port", "0")
    url = server.next_line()["url"]
    features.write_text(FEATURES + "\nanswer = 1 / 0\n")
    said = server.errors_until("The server goes on without this change")
    line = FEATURES.count("\n") + 2
    assert f"features.py:{line}\n    answer = 1 / 0\n" in said
    assert f"features.py:{line}: ZeroDivisionError: division by zero" in said
    assert ask(url, "GET", SHOUT)[1]["value"] == "U1!"
    assert server.end().code == 0


def test_the_last_good_file_goes_on_when_a_second_change_follows_at_once(
    folder: Path, start: Start
) -> None:
    features = folder / "features.py"
    server = start("dev", "--port", "0")
    url = server.next_line()["url"]
    second = "from pathlib import Path\nPath(__file__).write_text('answer = 1 / 0\\n')\n"
    features.write_text(FEATURES.replace('"!"', '"?"') + second)
    server.errors_until("The server goes on without this change")
    assert ask(url, "GET", SHOUT)[1]["value"] == "U1!"
    assert server.end().code == 0


def test_a_failing_handler_is_shown_with_its_source_line(folder: Path, run: Run) -> None:
    with _developing() as server:
        url = _url(server)
        run("events", "publish", "purchase", "u1", "currency=EUR", "--url", url, "--event-id", "e1")
        assert server.stderr
        said = ""
        for line in server.stderr:
            said += line
            if "again:" in line:
                break
        server.terminate()
        server.communicate()
    assert server.returncode == 0
    assert "\033" not in said  # plain, because it is piped
    assert "  total_spend failed: KeyError: 'amount'\n" in said
    assert f'    {folder}/features.py:14: return before + event.payload["amount"]\n' in said
    assert (
        "try it:   headwater features test total_spend u1 --event-id e1 --file features.py\n"
        in said
    )
    assert (
        "again:    headwater dlq redrive --all --feature total_spend --file features.py\n" in said
    )


def test_a_request_that_fails_is_shown_with_its_source_line(folder: Path) -> None:
    with (folder / "features.py").open("a") as file:
        file.write(_CONTEXT)
    with _developing() as server:
        params = {"params": {"user_id": "u1"}}
        assert ask(_url(server), "POST", "/v1/contexts/page", body=params)[0] == 500
        server.terminate()
        _, said = server.communicate()
    assert "  ContextFailedError: context 'page' failed: ZeroDivisionError: " in said
    assert f"    {folder}/features.py:" in said
    assert ': return ContextItem.template("{total}") if 1 // 0 ' in said
    assert "Traceback" not in said
    assert "warning: " in said
    assert "context 'page': a template shows unknown feature 'total'; " in said


@pytest.mark.parametrize(("environment", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_the_log_is_in_colour_on_a_terminal(
    folder: Path, environment: dict[str, str], is_coloured: bool
) -> None:
    screen, terminal = os.openpty()
    command = [sys.executable, "-m", "headwater", "dev", "--port", "0"]
    variables = os.environ | environment
    with subprocess.Popen(command, env=variables, stdout=PIPE, stderr=terminal) as server:
        shown = b""
        while b"worker started" not in shown:
            shown += os.read(screen, 4096)
        server.terminate()
        server.communicate()
    os.close(terminal)
    os.close(screen)
    assert (b"\033[32minfo" in shown) is is_coloured


def test_no_process_survives_when_the_command_is_killed(folder: Path) -> None:
    with _developing() as server:
        url = _url(server)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        assert children
        server.kill()
        server.communicate()
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    with pytest.raises(ConnectionRefusedError):
        ask(url, "GET", "/healthz")


def test_without_a_features_file_it_says_how_to_begin(run: Run, folder: Path) -> None:
    (folder / "features.py").unlink()

    refused = run("dev")

    assert refused.code == 1
    assert "`headwater init` writes a project to start with" in refused.err
