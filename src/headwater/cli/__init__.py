"""The command line: parse arguments, call the store, print the result."""

import errno
import os
import sys

import typer

from headwater.cli.app import app
from headwater.cli.utf8_args import is_utf8, quote_bytes
from headwater.core.short_repr import printable_lines
from headwater.errors import HeadwaterError

# Errors of a full disk, an exceeded quota or a broken device.
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """Run the command; print errors of Headwater as one line instead of a traceback."""
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


def _source(error: HeadwaterError) -> str:
    """Return which server an error comes from, if it does."""
    response = error.response
    if response is None:
        return ""
    request = "" if response.request_id is None else f", request {response.request_id}"
    return f" ({response.url} answered {response.status}{request})"
