"""`headwater mcp`: the MCP server, over stdio or streamable HTTP."""

import sys
from contextlib import redirect_stdout
from types import ModuleType

from headwater.cli.options import FileArgument, command_group, declared_store
from headwater.cli.runner import run
from headwater.errors import MissingExtraError

app = command_group("Serve a features file to models.")


@app.command()
def mcp(file: FileArgument = None) -> None:
    """Serve features, contexts and records to models, by the Model Context Protocol.

    Over stdio, the host that starts this process is the local user and may call everything.
    """
    transports = _transports()
    # The protocol owns standard output; a features file may print.
    with redirect_stdout(sys.stderr):
        store = declared_store(file)
    run(store, transports.serve_stdio, create=True)


def _transports() -> ModuleType:
    try:
        from headwater.mcp import transports  # noqa: PLC0415 - an extra, loaded by this verb alone
    except ModuleNotFoundError as error:
        raise MissingExtraError("`headwater mcp`", "mcp") from error
    return transports
