"""`headwater dev`: serve a features file while it is being written."""

import linecache
import os
import signal
import sys
import threading
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console

from headwater.cli.commands import (
    DECLARED_ARGUMENT,
    CommandCall,
    Commands,
    features_file,
    new_store_notice,
)
from headwater.cli.output import is_interactive, note, print_json_line
from headwater.cli.processes import run_long
from headwater.cli.projects import warnings_of
from headwater.cli.serving import Port, serve_with_reload
from headwater.core.logging import Level, StreamSink, log
from headwater.core.tracebacks import last_line
from headwater.core.ui_files import is_ui_installed
from headwater.declarations.runtime import runtime_of
from headwater.errors import DeclarationError, FeaturesFileError
from headwater.http.server.processes import serve as serve_http
from headwater.settings.schema import on_servers
from headwater.store.loader import locate

app = Commands(file=DECLARED_ARGUMENT)
_COLOURS = {"debug": "bright_black", "info": "green", "warning": "yellow", "error": "red"}
_DEAD_LETTER = "dead letter"
_FAILED_REQUEST = "request failed"
_CAUSE = ("error", "traceback")


@app.command()
def dev(
    call: CommandCall,
    *,
    port: Port = None,
    open: Annotated[bool, typer.Option("--open/--no-open")] = True,
    loads: Annotated[bool, typer.Option("--loads", hidden=True)] = False,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    restarted: Annotated[bool, typer.Option("--restarted", hidden=True)] = False,
) -> None:
    """Serve a features file while you write it: API, worker, scheduler and web UI.

    A change of a Python file of the project restarts the server; if the new file has a mistake, it
    is shown, and the last good one goes on. It shows the warnings of `headwater check`, and each
    handler or request that fails with its line.

    Args:
        port: Port to listen on; 0 takes a free port. Default: http.port.
        open: Open the web UI in the browser; without a terminal it is never opened.
    """
    path = features_file(call.file)
    if loads:
        with _shown_line():
            _ = call.local
        return
    if parent is not None:
        _serve(call, port, parent, opens=open and not restarted, restarted=restarted)
        return
    try:
        source = locate(path)
    except FeaturesFileError as error:
        problem = f"{error}; `headwater init` writes a project to start with"
        raise FeaturesFileError(problem) from error
    command = [sys.executable, "-m", "headwater", "dev", str(path)]
    reading, writing = os.pipe()  # the server ends when this process is gone, which closes the pipe
    serve = [*command, f"--parent={reading}", "--open" if open else "--no-open"]
    serve += [] if port is None else [f"--port={port}"]
    serve += ["--json"] if call.as_json else []
    code = serve_with_reload([*command, "--loads"], serve, source.root, pass_fds=(reading,))
    os.close(writing)
    raise typer.Exit(code)


def _serve(
    call: CommandCall, port: int | None, parent: int, *, opens: bool, restarted: bool
) -> None:
    """Serve the file in this process, until a signal arrives or the process that watches ends."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with _shown_line():
        store = call.local
    settings = store.settings
    if not call.as_json:
        for warning in warnings_of(runtime_of(store).registry):
            note(f"warning: {warning}")
        log.use(DevelopmentSink(settings.log.level, call.file))
    announce_if_new = new_store_notice(settings)

    def ready(url: str) -> None:
        announce_if_new()
        if call.as_json:
            print_json_line({"url": url})
            return
        place = "in Redis and Postgres" if on_servers(settings) else f"in {settings.home}"
        typer.echo(f"Serving {features_file(call.file)} at {url}/ (data {place}).")
        if restarted:
            return
        typer.echo("It restarts when a Python file of the project changes. Press Ctrl-C to stop.")
        if opens and is_ui_installed() and is_interactive():
            webbrowser.open(f"{url}/")

    chosen = settings.http.port if port is None else port
    run_long(serve_http(store, host=settings.http.host, port=chosen, on_ready=ready))


def _end_with(parent: int) -> None:
    """Stop this process as Ctrl-C does when the other end of the pipe is closed."""
    os.read(parent, 1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _shown_line() -> Iterator[None]:
    """Print the line of a features file that cannot be loaded, above the error itself."""
    try:
        yield
    except DeclarationError as error:
        if error.location is not None:
            line = linecache.getline(error.location.file, error.location.line).strip()
            note(f"{error.location}\n    {line}")
        raise


class DevelopmentSink(StreamSink):
    """Writes records as text, in colour on a terminal, and dead letters with their line of code."""

    def __init__(self, level: Level, file: Path | None) -> None:
        super().__init__(level, "console", None)
        console = Console(stderr=True)  # which knows NO_COLOR
        self._has_colour = console.is_terminal and not console.no_color
        self._file = "" if file is None else f" --file {quote(str(file))}"
        plain = self._render
        self._render = lambda records: "".join(self._painted(plain([record])) for record in records)

    def write(self, level: Level, event: str, fields: Mapping[str, Any]) -> None:
        """Write a record, and below it what failed, in which line, and how to try it again."""
        is_request = event == _FAILED_REQUEST
        shown = {name: fields[name] for name in fields if not is_request or name not in _CAUSE}
        super().write(level, event, shown)
        if is_request or event == _DEAD_LETTER:
            with self._lock:
                self._lines.append(self._cause(fields) if is_request else self._remedies(fields))
            self.flush()

    def _painted(self, line: str) -> str:
        """Return a line of text with the colour of its level."""
        at, level, rest = line.split(maxsplit=2)
        shown = self._style(f"{level:<7}", _COLOURS[level])
        return f"{self._style(at, 'bright_black')} {shown} {rest}"

    def _cause(self, request: Mapping[str, Any]) -> str:
        place = last_line(request.get("traceback", ""))
        cause = self._style(f"  {request['error']}", "red")
        return f"{cause}\n    {place}\n" if place else f"{cause}\n"

    def _remedies(self, letter: Mapping[str, Any]) -> str:
        feature, entity_id = letter["feature"], quote(letter["entity_id"])
        lines = [
            self._style(f"  {feature} failed: {letter['error']}", "red"),
            f"    {letter['raised_at']}",
            f"    try it:   headwater features test {feature} {entity_id}"
            f" --event-id {quote(letter['event_id'])}{self._file}",
            f"    again:    headwater dlq redrive --all --feature {feature}{self._file}",
        ]
        return "\n".join(lines) + "\n"

    def _style(self, text: str, colour: str) -> str:
        return typer.style(text, fg=colour) if self._has_colour else text
