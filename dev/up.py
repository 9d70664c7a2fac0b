"""`make up` and `make down`: the two servers of the tests, with persistent data."""

import argparse
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.servers import ServerStartError, free_port, lasting_postgres, lasting_valkey

REDIS_PORT = 16379
POSTGRES_PORT = 15432


def main() -> None:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the data")
    parser.add_argument("--stop", action="store_true", help="stop the servers of the folder")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.stop:
        stop(folder)
    else:
        run(folder)


def run(folder: Path) -> None:
    """Run both servers until Ctrl-C, SIGTERM or `make down`."""
    folder.mkdir(exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            holding(folder),
            lasting_postgres(folder, chosen(POSTGRES_PORT)) as postgres_url,
            lasting_valkey(folder, chosen(REDIS_PORT)) as redis_url,
        ):
            say(folder, redis_url, postgres_url)
            while True:
                signal.pause()
    except ServerStartError as failed:
        sys.exit(str(failed))
    except KeyboardInterrupt:
        tell("Both servers stopped; their data stays.")


def stop(folder: Path) -> None:
    """Stop the servers of a folder; return when they have stopped."""
    file = folder / "up.pid"
    if not file.exists():
        tell("No servers run here.")
        return
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tell("No servers run here.")
        except BlockingIOError:
            os.kill(int(lock.read()), signal.SIGTERM)
            fcntl.flock(lock, fcntl.LOCK_EX)
            tell("Both servers stopped; their data stays.")


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold the folder's lock file, which contains the process id."""
    with (folder / "up.pid").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"Servers run on {folder} already; `make down` stops them.")
        write(lock, f"{os.getpid()}\n")
        yield


def write(file: TextIO, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def chosen(port: int) -> int:
    """Return the usual port, or a free one if it is in use."""
    with socket.socket() as probe:
        # A connection that has just been closed does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return free_port()
        return port


def say(folder: Path, redis_url: str, postgres_url: str) -> None:
    """Print the settings and write them to a file for other shells."""
    settings = {
        "HEADWATER_ENV": "production",
        "HEADWATER_REDIS_URL": redis_url,
        "HEADWATER_POSTGRES_URL": postgres_url,
    }
    lines = "".join(f"export {name}={value}\n" for name, value in settings.items())
    file = folder / "env"
    file.touch(mode=0o600)
    file.write_text(lines)
    sys.stdout.write(lines)
    sys.stdout.flush()
    tell(f"Both servers run until Ctrl-C; in another shell: . {file} && headwater migrate")


def tell(text: str) -> None:
    """Print a message to standard error, apart from the settings."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
