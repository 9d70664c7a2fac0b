"""The command line as a whole: help, version, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup

from headwater.cli import VERBS, command_of, commands
from tests.cli.conftest import Run

PYTHON_M = (sys.executable, "-m", "headwater")


def test_help_lists_every_verb(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    for verb, (_, summary) in VERBS.items():
        assert f"  {verb}" in shown.out
        assert summary in shown.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(run: Run, verb: str) -> None:
    shown = run(verb, "--help")
    assert shown.code == 0
    assert f"Usage: headwater {verb}" in shown.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_and_option_has_help(verb: str) -> None:
    below = [command_of(verb)]
    for command in below:
        if isinstance(command, TyperGroup):
            below += command.commands.values()
        for parameter in command.params:
            assert parameter.help or getattr(parameter, "hidden", False), (command, parameter)


def test_help_loads_nothing_that_it_does_not_need() -> None:
    heavy = {"msgspec", "rich", "starlette", "uvicorn", "duckdb", "asyncio", "sqlite3", "yaml"}
    script = "import sys; here = set(sys.modules); import headwater.cli; "
    script += "sys.stdout.write(' '.join(set(sys.modules) - here))"
    shown = subprocess.run([PYTHON_M[0], "-c", script], capture_output=True, text=True, check=True)
    assert "typer" in shown.stdout
    assert not heavy & set(shown.stdout.split())


def test_the_version_is_printed() -> None:
    shown = subprocess.run([*PYTHON_M, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("headwater 0.")


def test_a_misspelled_verb_is_a_usage_error_that_names_the_nearest(run: Run) -> None:
    shown = run("sreve")
    assert shown.code == 2
    assert "Did you mean 'serve'" in shown.err


def test_an_error_of_headwater_is_one_line_with_a_remedy(run: Run) -> None:
    shown = run("features", "list", "--file", "nope.py")
    assert shown.code == 1
    assert shown.out == ""
    assert shown.err.startswith("error: there is no features file 'nope.py'; name the Python file")
    assert shown.err.count("\n") == 1


def test_an_interrupt_is_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "declared_store", interrupted)
    assert run("features", "list").code == 130


def test_a_closed_output_pipe_is_not_an_error(folder: Path) -> None:
    with subprocess.Popen(
        [*PYTHON_M, "config", "show", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [("d", "doctor"), ("dlq ", "redrive"), ("dlq list --ev", "--event-type")],
)
def test_shells_complete_commands_and_options(words: str, expected: str) -> None:
    line = f"headwater {words}"
    ran = subprocess.run(
        PYTHON_M,
        env={
            **os.environ,
            "_HEADWATER_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in ran.stdout.split()
