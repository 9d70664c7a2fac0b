"""The command line: verbs that translate, call the store and translate back."""

import errno
import os
import sys

import typer

from headwater.cli.app import app
from headwater.cli.utf8_args import as_typed, is_utf8
from headwater.errors import HeadwaterError

# What the system says when nothing more can be written, wherever the output goes.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def main() -> None:
    """Runs the verb that the command line names; an error of ours is one line, not a traceback."""
    try:
        app(prog_name="headwater")
    except HeadwaterError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except UnicodeEncodeError:
        given = [word for word in sys.argv if not is_utf8(word)]
        if not given:
            raise
        typer.echo(f"error: {as_typed(given[0])} is not UTF-8 text", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # What waits to be written would fail once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        typer.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        sys.exit(1)
