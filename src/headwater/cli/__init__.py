"""The command line: parse arguments, call the store, print the result."""

import errno
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from headwater.core.short_repr import printable_lines
from headwater.errors import HeadwaterError

# Errors of a full disk, an exceeded quota or a broken device.
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# Each with its module of this package. Importing only the one in use keeps `--help` fast.
VERBS = {
    "demo": ("demo", "Show a short tour of Headwater on a real server."),
    "init": ("projects", "Write a small project: features, settings and a test that runs."),
    "check": ("projects", "Check a features file without touching its store."),
    "dev": ("development", "Serve a features file while you write it; open the web UI."),
    "serve": ("serving", "Serve a features file: API, worker and scheduler."),
    "ui": ("serving", "Serve a features file and open its web UI in the browser."),
    "worker": ("serving", "Run one more worker process for a features file."),
    "features": ("features", "Read, list, rename and drop features."),
    "events": ("events", "Publish, load, list and show events."),
    "history": ("history", "Read past values for the rows of a file; import, export."),
    "context": ("context", "Assemble, show, verify, export and compare contexts."),
    "eval": ("evaluation", "Evaluate changed code on recorded contexts, with gates."),
    "sources": ("sources", "List sources of SQL features; load them into Postgres tables."),
    "lake": ("lake", "Create, show, compact and expire the Iceberg tables of a lake."),
    "index": ("index", "Load, search, rebuild and drop indexes of documents."),
    "mcp": ("serving", "Serve features, contexts and records to models (MCP)."),
    "keys": ("keys", "Create, list and revoke API keys; keys that sign records."),
    "dlq": ("events", "List, show, redrive and discard dead letters."),
    "groups": ("operating", "List and drop consumer groups."),
    "lag": ("operating", "Show how many events are waiting, and for how long."),
    "metrics": ("projects", "Print a Grafana dashboard and Prometheus alert rules."),
    "refresh": ("operating", "Run a scheduled feature now."),
    "backfill": ("history", "Compute past values of a feature from stored events."),
    "rebuild": ("operating", "Restore online values from history."),
    "audit": ("operating", "Compare online values with history."),
    "audit-log": ("operating", "List administrative actions: who did what, and when."),
    "prune": ("operating", "Remove old history, events and records."),
    "forget": ("operating", "Erase one entity: values, history, events, values in records."),
    "mentions": ("operating", "List what others have with the id of an entity."),
    "migrate": ("operating", "Create or update the Postgres tables."),
    "backup": ("operating", "Copy the embedded store into a new folder while it is used."),
    "restore": ("operating", "Make an embedded store of a backup."),
    "graph": ("projects", "Print the dependency graph as Mermaid."),
    "docs": ("projects", "Write a page of all declarations, for a team's wiki."),
    "doctor": ("projects", "Examine the installation, and name problems and remedies."),
    "plan": ("plan", "Estimate processes, memory and disk for a load."),
    "config": ("projects", "Show the settings and where each value comes from."),
}


def main() -> None:
    """Run the command; print errors of Headwater as one line instead of a traceback."""
    _open_standard_streams()
    try:
        app(prog_name="headwater")
    except HeadwaterError as error:
        # It may quote a server, or a name that was found in a file.
        typer.echo(f"error: {printable_lines(str(error))}{_source(error)}", err=True)
        sys.exit(1)
    except UnicodeEncodeError:
        invalid = [argument for argument in sys.argv if not is_utf8(argument)]
        if not invalid:
            raise
        typer.echo(f"error: {quote_bytes(invalid[0])} is not UTF-8 text", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        # The interpreter flushes stdout at exit, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        typer.echo(f"error: cannot write the output: {error.strerror}", err=True)
        sys.exit(1)


def _open_standard_streams() -> None:
    """Open the null device in place of each standard stream that the caller has closed.

    Otherwise a file or a socket would get its number, and children would inherit it as theirs.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # A new descriptor has the lowest number that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    sys.stdin = sys.stdin or os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def is_utf8(argument: str) -> bool:
    """Return whether an argument is text; Python replaces other bytes by surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def quote_bytes(argument: str) -> str:
    """Return an argument in quotes, with its invalid bytes escaped."""
    return repr(os.fsencode(argument)).removeprefix("b")


def _source(error: HeadwaterError) -> str:
    """Return which server an error comes from, if it does."""
    response = error.response
    if response is None:
        return ""
    request = "" if response.request_id is None else f", request {response.request_id}"
    return f" ({response.url} answered {response.status}{request})"


class LazyCommands(TyperGroup):
    """A group that imports the module of a command when the command is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, command_of(str(name)), rest


def command_of(name: str) -> Any:
    """Return a command or a group of them, and import its module."""
    module = import_module(f"headwater.cli.{VERBS[name][0]}")
    return get_group(module.app.typer).commands[name]


app = typer.Typer(
    cls=LazyCommands,
    help="Keep features fresh with events, and assemble contexts that can be verified later.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:  # noqa: FBT001 - the signature that typer calls
    if requested:
        typer.echo(f"headwater {version('headwater')}")
        raise typer.Exit


@app.callback()
def headwater(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Accept the options that come before a command; log to standard error from here on."""
    import_module("headwater.core.logging").log.configure("info", "auto")


def _placeholder() -> None:
    """Stand in for a command in the list until its module is imported."""


for _name, (_, _help) in VERBS.items():
    app.command(_name, help=_help)(_placeholder)
